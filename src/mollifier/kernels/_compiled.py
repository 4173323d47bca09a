"""The native unit as an operation that torch.compile puts into its graph as it stands: one node forward, one backward."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor

from mollifier.activations import Activation
from mollifier.functional import Push
from mollifier.kernels._library import DTYPES, ActivationStruct, library, parts
from mollifier.kernels._unit import _laid_out, _like, _numbers, _pack, _shape, strength

Rest = tuple[float, str, int, int, bool]  # c, push, unit_dim, in_units, residual


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _native() -> bool:
    """Asked once, while a graph is traced: this is no place to compile C++ in."""
    plain = not torch._C._are_functorch_transforms_active() and torch.autograd.forward_ad._current_level < 0
    # (asked here, outside of what is traced: torch 2.8 takes every compilation for an export)
    return plain and not torch.compiler.is_exporting() and library() is not None


def compiled_serves(x: Tensor) -> bool:
    """Is this being traced by torch.compile, for tensors that the native kernels take? On accelerators the reference is compiled."""
    return torch.compiler.is_compiling() and x.device.type == "cpu" and x.dtype in DTYPES and bool(_native())


def compiled_unit(
    x: Tensor,
    below: Tensor | None,
    a: Tensor | None,
    act: Activation | None,
    levels: tuple[Tensor, Tensor],
    c: float = 0.0,
    push: Push = "paper",
    unit_dim: int = -1,
    residual: bool = False,
) -> Tensor:
    """φ of Algorithm 1, the levels of noise and copy as tensors: a graph that holds their numbers is traced anew at every step."""
    seed = torch.randint(0, 2**62, (), dtype=torch.int64, device="cpu")
    numbers = [] if act is None else list(parts(act))
    below, in_units = (None, 0) if below is None else (below.to(x.dtype), below.shape[unit_dim])
    return cast(Tensor, unit(x, below, a, torch.stack(levels), seed, numbers, c, push, unit_dim, in_units, residual))


@lru_cache(maxsize=256)
def _struct(kind: float, *rest: float) -> ActivationStruct:
    return ActivationStruct(int(kind), *rest)


def _head(x: Tensor, last: bool, level: Tensor, seed: Tensor, act: list[float], rest: Rest) -> bytes:
    c, push, unit_dim, in_units, residual = rest
    at = ctypes.addressof(_struct(*act)) if act else 0
    of_noise, of_copy = level.tolist()
    factor = strength(of_noise, c, cast(Push, push))
    return _pack(DTYPES[x.dtype], *_shape(x.shape, unit_dim, in_units, last), at, of_copy, *factor, residual, int(seed))


def _at(tensor: Tensor | None) -> int | None:
    return None if tensor is None or not tensor.numel() else tensor.data_ptr()


# The schemas are written out: torch below 2.7 reads no list[float] from annotations.
_REST = "Tensor level, Tensor seed, float[] act, float c, str push, int unit_dim, int in_units, bool residual"


@torch.library.custom_op(
    "mollifier::unit", mutates_args=(), schema=f"(Tensor x, Tensor? below, Tensor? a, {_REST}) -> Tensor"
)
def unit(
    x: Tensor,
    below: Tensor | None,
    a: Tensor | None,
    level: Tensor,
    seed: Tensor,
    act: list[float],
    c: float,
    push: str,
    unit_dim: int,
    in_units: int,
    residual: bool,
) -> Tensor:
    """The kernel, its noise made of the seed."""
    x, last = _laid_out(x, unit_dim)
    out = torch.empty_like(x)
    if x.numel():
        below = None if below is None else _like(below, last)
        flat = None if a is None else _numbers(a, x.dtype)
        head = _head(x, last, level, seed, act, (c, push, unit_dim, in_units, residual))
        count = 0 if flat is None else flat.numel()
        tail = count, out.data_ptr(), None, None, torch.get_num_threads()
        library().mollifier_unit_forward(head, x.data_ptr(), _at(below), _at(flat), *tail)
    return out


@torch.library.custom_op(
    "mollifier::unit_backward",
    mutates_args=(),
    schema=f"(Tensor grad, Tensor x, Tensor? a, {_REST}) -> (Tensor, Tensor, Tensor)",
)
def unit_backward(
    grad: Tensor,
    x: Tensor,
    a: Tensor | None,
    level: Tensor,
    seed: Tensor,
    act: list[float],
    c: float,
    push: str,
    unit_dim: int,
    in_units: int,
    residual: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients by x, below and a; one of what is not there has no elements. x is asked for its layout, too."""
    x, last = _laid_out(x, unit_dim)
    grad = _like(grad, last)
    grad_x, grad_below, grad_a = _gradients(x, a, unit_dim, in_units)
    if grad.numel():
        flat = None if a is None else _numbers(a, x.dtype)
        head = _head(x, last, level, seed, act, (c, push, unit_dim, in_units, residual))
        library().mollifier_unit_backward(
            head,
            grad.data_ptr(),
            x.data_ptr(),
            *(None, None, _at(flat), grad_a.numel(), in_units > 0),
            *(grad_x.data_ptr(), _at(grad_below), _at(grad_a)),
            torch.get_num_threads(),
        )
    return grad_x, grad_below, grad_a


def _gradients(x: Tensor, a: Tensor | None, unit_dim: int, in_units: int) -> tuple[Tensor, Tensor, Tensor]:
    """Room for them, laid out as x is."""
    shape = list(x.shape)
    shape[unit_dim] = in_units
    kind = torch.float64 if x.dtype == torch.float64 else torch.float32
    last = _laid_out(x, unit_dim)[1]
    below = x.new_empty(shape).contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)
    return torch.empty_like(x), below, x.new_empty([0] if a is None else a.shape, dtype=kind)


@unit.register_fake
def _(
    x: Tensor, below: Any, a: Any, level: Any, seed: Any, act: Any, c: float, push: str, unit_dim: int, *rest: Any
) -> Tensor:
    return torch.empty_like(_laid_out(x, unit_dim)[0])


@unit_backward.register_fake
def _(
    grad: Tensor,
    x: Tensor,
    a: Any,
    level: Any,
    seed: Any,
    act: Any,
    c: float,
    push: str,
    unit_dim: int,
    in_units: int,
    *rest: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    return _gradients(_laid_out(x, unit_dim)[0], a, unit_dim, in_units)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, below, a, level, seed, *ctx.rest = inputs
    ctx.copies = below is not None
    ctx.save_for_backward(x, a, level, seed)


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, a, level, seed = ctx.saved_tensors
    grad_x, grad_below, grad_a = unit_backward(grad, x, a, level, seed, *ctx.rest)
    by_a = None if a is None else grad_a.to(a.dtype)
    return grad_x, grad_below if ctx.copies else None, by_a, *(None,) * 8


unit.register_autograd(_backward, setup_context=_setup)
