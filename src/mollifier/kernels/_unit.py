"""The fused unit: noisy activation and copy in one pass over the data, the noise hashed from a seed and never stored."""

from __future__ import annotations

import ctypes
import math
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor

from mollifier.functional import Push
from mollifier.kernels._library import DTYPES, KINDS, ActivationStruct, draw_seed, library

# Up to here psi's derivatives of features are kept for the backward pass (8 bytes an element in float32). Above, and for
# channels, whose convolutions cost so much more than a unit, they are made again (4 bytes).
KEEP = 1 << 20
# `struct Head` of unit.h
_pack = struct.Struct("=6Q2d2qQ").pack


_RELU_OUTPUT = ActivationStruct(len(KINDS), 1.0, 0.0, 0.0, 0.0)  # the last of `enum Act`


def _by_output(spec: Spec, x: Tensor) -> bool:
    """Do the derivatives follow from the output? A ReLU's do; of plain ones, too, torch keeps nothing else."""
    act = spec.act
    return act is not None and act.kind == KINDS["relu"] and not spec.residual and x.dtype != torch.bfloat16


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

    def head(self, act: ActivationStruct | None, dtype: torch.dtype, shape: tuple[int, ...], seed: int) -> bytes:
        """What forward and backward begin with."""
        at = 0 if act is None else ctypes.addressof(act)
        factor, line = strength(self.level, self.c, self.push)
        return _pack(DTYPES[dtype], *shape, at, self.level, factor, line, self.residual, seed)


def strength(level: float, c: float, push: Push) -> tuple[float, bool]:
    """The factor on the noise, and whether it is so large that the activation is its tangent."""
    if push == "paper":
        return c * level, False
    return c * level / max(1.0 - level, 1e-6), level >= 1.0


def once() -> None:
    """Refuse to be differentiated twice."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "the fused kernels have no second derivative: take it with frozen or expected noise (mollifier.frozen, eval()), "
            "or set MOLLIFIER_KERNELS=off"
        )


def fused_unit(x: Tensor, below: Tensor | None, a: Tensor | None, spec: Spec) -> Tensor:
    """φ of Algorithm 1 for x, with what is copied in ``below`` (None: no copy) and the learned a."""
    return cast(Tensor, _Unit.apply(x, below, a, spec))  # type: ignore[no-untyped-call]


class _Unit(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, below: Tensor | None, a: Tensor | None, spec: Spec) -> Tensor:
        act, unit_dim = spec.act, spec.unit_dim
        x, last = _laid_out(x, unit_dim)
        if below is not None:
            below = _like(below if below.dtype == x.dtype else below.to(x.dtype), last)
        flat = None if a is None else _numbers(a, x.dtype)
        out, slopes, size = torch.empty_like(x), None, x.numel()
        if act is not None and unit_dim == -1 and size <= KEEP and any(ctx.needs_input_grad):
            slopes = x.new_empty((2, size))
        rest = x.dtype, _shape(x.shape, unit_dim, spec.in_units, last), draw_seed()
        head = spec.head(act, *rest)
        by_x, by_a = (None, None) if slopes is None else _halves(slopes)
        library().mollifier_unit_forward(
            head,
            x.data_ptr(),
            None if below is None else below.data_ptr(),
            None if flat is None else flat.data_ptr(),
            0 if flat is None else flat.numel(),
            out.data_ptr(),
            by_x,
            by_a,
            torch.get_num_threads(),
        )
        if slopes is not None:
            ctx.save_for_backward(slopes)
        elif _by_output(spec, x):
            ctx.save_for_backward(out, flat)
            head = spec.head(_RELU_OUTPUT, *rest)
        elif act is not None:
            ctx.save_for_backward(x, flat)
        ctx.rest = head, last, None if below is None else below.shape, None if a is None else (a.shape, a.dtype)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        once()
        saved = ctx.saved_tensors
        head, last, below_shape, a = ctx.rest
        grad = _like(grad, last)
        x = flat = by_x = by_a = grad_a = below = None
        if len(saved) == 1:
            by_x, by_a = _halves(saved[0])
        elif saved:
            x, flat = (each.data_ptr() for each in saved)
        grad_x = torch.empty_like(grad)
        if below_shape is not None:
            below = grad.new_empty(below_shape)
            below = below.to(memory_format=torch.channels_last) if last else below
        if a is not None:
            grad_a = grad.new_empty(a[0], dtype=torch.float64 if grad.dtype == torch.float64 else torch.float32)
        library().mollifier_unit_backward(
            head,
            grad.data_ptr(),
            x,
            by_x,
            by_a,
            flat,
            0 if grad_a is None else grad_a.numel(),
            below is not None,
            grad_x.data_ptr(),
            None if below is None else below.data_ptr(),
            None if grad_a is None else grad_a.data_ptr(),
            torch.get_num_threads(),
        )
        if grad_a is not None and grad_a.dtype != a[1]:
            grad_a = grad_a.to(a[1])
        return grad_x, below, grad_a, None


def _halves(slopes: Tensor) -> tuple[int, int]:
    """Addresses of psi's derivatives by x and by a."""
    first = slopes.data_ptr()
    return first, first + slopes.numel() // 2 * slopes.element_size()


def _numbers(a: Tensor, dtype: torch.dtype) -> Tensor:
    """The a in the type that is computed in."""
    kind = torch.float64 if dtype == torch.float64 else torch.float32
    return a if a.dtype == kind and a.is_contiguous() else a.detach().to(kind).contiguous()


def _like(tensor: Tensor, last: bool) -> Tensor:
    """In memory order, channels last or not."""
    if last:
        return tensor.contiguous(memory_format=torch.channels_last)
    return tensor if tensor.is_contiguous() else tensor.contiguous()


def _laid_out(x: Tensor, unit_dim: int) -> tuple[Tensor, bool]:
    """x in memory order, and whether its channels come last."""  # noqa: D403
    if x.is_contiguous():
        return x, False
    last = unit_dim == -3 and x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    return (x if last else x.contiguous()), last


@lru_cache(maxsize=1024)
def _shape(shape: torch.Size, unit_dim: int, in_units: int, last: bool) -> tuple[int, int, int, int]:
    """(outer, units, inner, units below), as the kernels want it."""
    units, total = shape[unit_dim], math.prod(shape)
    inner = 1 if last else math.prod(shape[len(shape) + unit_dim + 1 :])
    return total // (units * inner), units, inner, in_units
