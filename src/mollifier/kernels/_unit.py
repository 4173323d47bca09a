"""The fused unit: noisy activation and copy in one pass over the data, the noise hashed from a seed and never stored."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor

from mollifier.functional import Push
from mollifier.kernels._library import DTYPES, ActivationStruct, draw_seed, library

# Up to here psi's derivatives of features are kept for the backward pass (8 bytes an element in float32). Above, and for
# channels, whose convolutions cost so much more than a unit, they are made again (4 bytes).
KEEP = 1 << 20


@dataclass
class Spec:
    """What a call needs beside its tensors.

    Attributes:
        act: The activation; None for a copy without noise.
        level: p.
        c: Factor on the noise.
        push: ``"paper"`` or ``"odds"``.
        unit_dim: Where the units are, from the end.
        in_units: Units of below; fewer than x's are padded with zeros.
        residual: Add below to what is not copied.
    """

    act: ActivationStruct | None
    level: float
    c: float = 0.0
    push: Push = "paper"
    unit_dim: int = -1
    in_units: int = 0
    residual: bool = False

    def head(self, dtype: torch.dtype, shape: Any, seed: int) -> tuple[Any, ...]:
        """The arguments that forward and backward begin with."""
        act = None if self.act is None else ctypes.addressof(self.act)
        return DTYPES[dtype], shape, act, self.level, *strength(self.level, self.c, self.push), self.residual, seed


def strength(level: float, c: float, push: Push) -> tuple[float, bool]:
    """The factor on the noise, and whether it is so large that the activation is its tangent."""
    if push == "paper":
        return c * level, False
    return c * level / max(1.0 - level, 1e-6), level >= 1.0


def once() -> None:
    """Refuse to be differentiated twice."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "the native kernels have no second derivative: take it with frozen or expected noise (mollifier.frozen, eval()), "
            "or set MOLLIFIER_KERNELS=off"
        )


def fused_unit(x: Tensor, below: Tensor | None, a: Tensor | None, spec: Spec) -> Tensor:
    """φ of Algorithm 1 for x, with what is copied in ``below`` (None: no copy) and the learned a."""
    return cast(Tensor, _Unit.apply(x, below, a, spec))  # type: ignore[no-untyped-call]


class _Unit(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, below: Tensor | None, a: Tensor | None, spec: Spec) -> Tensor:
        x, last = _laid_out(x, spec.unit_dim)
        if below is not None:
            how = torch.channels_last if last else torch.contiguous_format
            below = (below if below.dtype == x.dtype else below.to(x.dtype)).contiguous(memory_format=how)
        flat = None if a is None else numbers(a, x.dtype)
        keep = spec.act is not None and any(ctx.needs_input_grad) and spec.unit_dim == -1 and x.numel() <= KEEP
        out, slopes, head = call_forward(x, below, flat, spec, keep, last)
        if slopes is not None:
            ctx.save_for_backward(slopes)
        elif spec.act is not None:
            ctx.save_for_backward(x, flat)
        ctx.rest = head, last, None if below is None else below.shape, None if a is None else (a.shape, a.dtype)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        once()
        head, last, below_shape, a = ctx.rest
        saved = ctx.saved_tensors
        how = torch.channels_last if last else torch.contiguous_format
        grad = grad.contiguous(memory_format=how)
        below = None if below_shape is None else torch.empty(below_shape, dtype=grad.dtype, memory_format=how)
        grad_x, grad_a = call_backward(head, grad, saved, below, None if a is None else a[0])
        if grad_a is not None and grad_a.dtype != a[1]:
            grad_a = grad_a.to(a[1])
        return grad_x, below, grad_a, None


def call_forward(
    x: Tensor, below: Tensor | None, a: Tensor | None, spec: Spec, keep: bool, last: bool = False
) -> tuple[Tensor, Tensor | None, tuple[Any, ...]]:
    """The output, psi's two derivatives if they are to be kept, and what the backward pass begins with."""
    out = torch.empty_like(x)
    slopes = torch.empty((2, x.numel()), dtype=x.dtype) if keep else None
    first = None if slopes is None else slopes.data_ptr()
    head = spec.head(x.dtype, _shape(tuple(x.shape), spec.unit_dim, spec.in_units, last), draw_seed())
    library().mollifier_unit_forward(
        *head,
        x.data_ptr(),
        None if below is None else below.data_ptr(),
        None if a is None else a.data_ptr(),
        0 if a is None else a.numel(),
        out.data_ptr(),
        first,
        None if first is None else first + x.numel() * x.element_size(),
        torch.get_num_threads(),
    )
    return out, slopes, head


def call_backward(
    head: tuple[Any, ...], grad: Tensor, saved: tuple[Tensor, ...], below: Tensor | None, a_shape: torch.Size | None
) -> tuple[Tensor, Tensor | None]:
    """Gradients by x and by a, from the kept derivatives or from x and a; that by below is written to ``below``."""
    x = a = by_x = by_a = None
    if len(saved) == 1:
        by_x = saved[0].data_ptr()
        by_a = by_x + grad.numel() * grad.element_size()
    elif saved:
        x, a = (each.data_ptr() for each in saved)
    grad_x = torch.empty_like(grad)
    grad_a = None
    if a_shape is not None:
        grad_a = torch.empty(a_shape, dtype=torch.float64 if grad.dtype == torch.float64 else torch.float32)
    library().mollifier_unit_backward(
        *head,
        *(grad.data_ptr(), x, by_x, by_a, a),
        0 if grad_a is None else grad_a.numel(),
        below is not None,
        grad_x.data_ptr(),
        None if below is None else below.data_ptr(),
        None if grad_a is None else grad_a.data_ptr(),
        torch.get_num_threads(),
    )
    return grad_x, grad_a


def numbers(a: Tensor, dtype: torch.dtype) -> Tensor:
    """The a in the type that is computed in."""
    kind = torch.float64 if dtype == torch.float64 else torch.float32
    return a if a.dtype == kind and a.is_contiguous() else a.detach().to(kind).contiguous()


def _laid_out(x: Tensor, unit_dim: int) -> tuple[Tensor, bool]:
    """x in memory order, and whether its channels come last."""  # noqa: D403
    if x.is_contiguous():
        return x, False
    last = unit_dim == -3 and x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    return (x if last else x.contiguous()), last


@lru_cache(maxsize=1024)
def _shape(shape: tuple[int, ...], unit_dim: int, in_units: int, last: bool) -> Any:
    """(outer, units, inner, units below), as the kernels want it."""
    units, total = shape[unit_dim], math.prod(shape)
    inner = 1 if last else math.prod(shape[len(shape) + unit_dim + 1 :])
    return (ctypes.c_int64 * 4)(total // (units * inner), units, inner, in_units)
