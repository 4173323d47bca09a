"""The kernels K: how to draw from one, and its score d log K / dξ. All are symmetric and have variance 1."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Generator, Tensor

Draw = Callable[[tuple[int, ...], Generator, torch.dtype], Tensor]
NODES = 8193


@dataclass(frozen=True)
class Kernel:
    """A kernel of one coordinate; for many coordinates, the product is used.

    Attributes:
        name: The name of the kernel.
        draw: ``(shape, generator, dtype) -> ξ``, on the generator's device.
        score: ``ξ -> d log K(ξ) / dξ``, or None if K has no derivative, and so no weak gradient in this form.
    """

    name: str
    draw: Draw
    score: Callable[[Tensor], Tensor] | None


def _normal(shape: tuple[int, ...], generator: Generator, dtype: torch.dtype) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=dtype, device=generator.device)


def _uniform(shape: tuple[int, ...], generator: Generator, dtype: torch.dtype) -> Tensor:
    draws = torch.rand(shape, generator=generator, dtype=dtype, device=generator.device)
    return (2.0 * draws - 1.0) * math.sqrt(3.0)


@cache
def _bump_table() -> tuple[Tensor, Tensor, float]:
    """Return nodes in (-1, 1), the distribution function there, and the standard deviation of exp(-1 / (1 - x²)) / Z."""
    x = torch.linspace(-1.0, 1.0, NODES, dtype=torch.float64)
    density = torch.exp(-1.0 / (1.0 - x.square()).clamp_min(1e-300))
    # the trapezoidal rule is exact up to rounding: all derivatives vanish at both ends
    total = density.sum()
    cdf = torch.cat([torch.zeros(1, dtype=x.dtype), (0.5 * (density[1:] + density[:-1])).cumsum(0) / total])
    return x, cdf, math.sqrt(float((density * x.square()).sum() / total))


def _bump(shape: tuple[int, ...], generator: Generator, dtype: torch.dtype) -> Tensor:
    # by the inverse of the distribution function, linear between nodes: the error is below 1e-7
    x, cdf, std = _bump_table()
    x, cdf = x.to(generator.device), cdf.to(generator.device)
    draws = torch.rand(shape, generator=generator, dtype=torch.float64, device=generator.device)
    right = torch.searchsorted(cdf, draws, right=True).clamp(1, NODES - 1)
    low, high = cdf[right - 1], cdf[right]
    part = (draws - low) / (high - low).clamp_min(1e-300)
    # no draw is beyond 0.99 (the probability is 1e-22) unless the generator returns 0, and the bound keeps the score finite
    return ((x[right - 1] + part.clamp(0.0, 1.0) * (x[1] - x[0])).clamp(-0.99, 0.99) / std).to(dtype)


def _bump_score(xi: Tensor) -> Tensor:
    std = _bump_table()[2]
    x = xi * std
    return -2.0 * std * x / (1.0 - x.square()).square()


KERNELS: dict[str, Kernel] = {
    "gaussian": Kernel("gaussian", _normal, torch.neg),
    "bump": Kernel("bump", _bump, _bump_score),
    "uniform": Kernel("uniform", _uniform, None),
}


def find_kernel(kernel: str | Kernel) -> Kernel:
    """Return the kernel with a name."""
    if isinstance(kernel, Kernel):
        return kernel
    if kernel not in KERNELS:
        raise ValueError(f"kernel={kernel!r}: expected one of {', '.join(KERNELS)}, or a Kernel")
    return KERNELS[kernel]
