"""The reference with the kernels' own noise, and how far two results are apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from mollifier import functional, ops
from mollifier.activations import Activation
from mollifier.functional import Push

# relative to the largest element
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10, torch.bfloat16: 1.6e-2}


@dataclass
class Spec:
    """What a call of the unit needs beside its tensors."""

    act: Activation | None
    level: float
    c: float = 20.0
    push: Push = "paper"
    unit_dim: int = -1
    in_units: int = 0
    residual: bool = False
    mode: str = "sample"


def unit(x: Tensor, below: Tensor | None, a: Tensor | None, spec: Spec) -> Tensor:
    """The operator, by its front."""
    level = torch.tensor(spec.level, dtype=torch.float64)
    settings = {"c": spec.c, "push": spec.push, "unit_dim": spec.unit_dim, "residual": spec.residual}
    return ops.unit(x, below, a, spec.act, level=level, normal=spec.mode, **settings)


def draw_seed() -> int:
    return int(ops.draw_seeds(1))


def noise_of(seed: int, shape: Sequence[int], channels_last: bool = False) -> tuple[Tensor, Tensor]:
    """The |ξ| and uniforms that the operators draw after torch.manual_seed(seed), as float64 tensors of this shape."""
    torch.manual_seed(seed)
    draws = ops.noise(draw_seed(), int(torch.Size(shape).numel()))
    if channels_last:
        n, c, h, w = shape
        return tuple(each.double().view(n, h, w, c).permute(0, 3, 1, 2) for each in draws)
    return tuple(each.double().view(*shape) for each in draws)


def unit_reference(
    x: Tensor,
    below: Tensor | None,
    a: Tensor | None,
    act: Activation | None,
    spec: Spec,
    noise: tuple[Tensor, Tensor],
) -> Tensor:
    """Algorithm 1 by mollifier.functional."""
    above = x
    normal, uniform = noise if spec.mode == "sample" else (spec.mode, spec.mode)
    if act is not None:
        assert a is not None
        shaped = a if a.numel() == 1 else a.view(-1, *[1] * (-spec.unit_dim - 1))
        normal = normal.to(x.dtype) if isinstance(normal, Tensor) else normal
        above = functional.noisy_activation(x, act, level=spec.level, a=shaped, c=spec.c, noise=normal, push=spec.push)
    if below is None:
        return above
    missing = x.shape[spec.unit_dim] - below.shape[spec.unit_dim]
    short = F.pad(below, (0, 0) * (-spec.unit_dim - 1) + (0, missing))
    return functional.copy_mix(short, above + short if spec.residual else above, level=spec.level, noise=uniform)


def as_double(*tensors: Tensor | None) -> list[Tensor | None]:
    return [None if each is None else each.detach().double().requires_grad_() for each in tensors]


def assert_near(got: Sequence[Tensor | None], wanted: Sequence[Tensor | None], tolerance: float) -> None:
    """Each tensor near its partner, relative to the partner's largest element (of 1 at least in outputs of order 1)."""
    for number, (one, two) in enumerate(zip(got, wanted, strict=True)):
        assert (one is None) == (two is None), f"tensor {number}: one is missing"
        if one is None or two is None:
            continue
        assert one.shape == two.shape
        error = (one.detach().double() - two.detach().double()).abs().max().item()
        size = two.detach().double().abs().max().item()
        assert error <= tolerance * max(size, 1e-2), f"tensor {number}: {error:.2e} off, of {size:.2e}"
