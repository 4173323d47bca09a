"""A run of linear layers with their units in one node; while p is high, only the units that are not copied are computed."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from mollifier.kernels._library import DTYPES, ActivationStruct, draw_seeds, library
from mollifier.kernels._unit import once

# Measured: from here on the dots that are left cost less than the dense product, if the weight fits the second-level cache.
SPARSE_FROM = 0.75
SPARSE_WEIGHT = 1 << 18
DENSE, SPARSE, COPY = range(3)
# Bytes that are asked for at once. Beyond 32 MiB glibc asks the system anew at every step, which costs more than the step's arithmetic.
LOT = 30 << 20
# `struct Layer` of chain.cpp
_pack = struct.Struct("=7Q3qQ2d3q").pack


class Link(NamedTuple):
    """A linear layer whose own input is copied, padded with zeros: out_features >= in_features.

    Attributes:
        weight: (out, in), in memory order, as are the others.
        bias: (out,), or None.
        a: (out,) or (1,).
        act: The activation.
        level: p.
        strength: Of the push: c p, or c p / (1 - p).
        line: Is the activation its tangent (odds at p = 1)?
        residual: Add below to what is not copied.
    """

    weight: Tensor
    bias: Tensor | None
    a: Tensor
    act: ActivationStruct
    level: float
    strength: float
    line: bool = False
    residual: bool = False


@cache
def product(dtype: torch.dtype) -> int | None:
    """Address of torch's own matrix product of this type, or None where this build does not show it."""
    name = {torch.float32: "sgemm_", torch.float64: "dgemm_"}.get(dtype)
    for file in (Path(torch.__file__).parent / "lib").glob("libtorch_cpu.*") if name else ():
        try:
            return ctypes.cast(getattr(ctypes.CDLL(str(file)), cast(str, name)), ctypes.c_void_p).value
        except (OSError, AttributeError):
            continue
    return None


def fused_chain(x: Tensor, links: list[Link]) -> Tensor:
    """φ of φ of … φ(x), the first link first."""
    if not torch.is_grad_enabled():
        return _forward(x, links, False)[0]
    for some in _lots(links, x.numel() // x.shape[-1] * x.element_size()):
        tensors = [tensor for link in some for tensor in link[:3]]
        x = cast(Tensor, _Chain.apply(x, some, *tensors))  # type: ignore[no-untyped-call]
    return x


def _lots(links: list[Link], column: int) -> Iterator[list[Link]]:
    """The links in lots that keep no more than `LOT` bytes; a unit of one link keeps three columns."""
    some: list[Link] = []
    size = 0
    for link in links:
        mine = 3 * column * len(link.weight)
        if some and size + mine > LOT:
            yield some
            some, size = [], 0
        some.append(link)
        size += mine
    yield some


def _whole(size: int) -> int:
    """The next multiple of 16 numbers, where what is in one tensor begins."""
    return (size + 15) // 16 * 16


def _kind(link: Link) -> int:
    if link.level >= 1.0:
        return COPY
    weight = link.weight
    sparse = link.level >= SPARSE_FROM and not link.residual and weight.dtype == torch.float32
    return SPARSE if sparse and weight.numel() <= SPARSE_WEIGHT else DENSE


def _forward(x: Tensor, links: list[Link], keep: bool) -> tuple[Tensor, Tensor, Tensor, list[tuple[Any, ...]]]:
    """The output, the input as rows, what is kept for the backward pass, and the end of what that packs for each layer."""
    rows = x if x.dim() == 2 and x.is_contiguous() else x.reshape(-1, x.shape[-1]).contiguous()
    kinds = [_kind(link) for link in links]
    seeds = iter(draw_seeds(len(kinds) - kinds.count(COPY)))
    count, width, size = len(rows), 0, _whole(len(links))
    ends, packed = [], []
    for link, kind in zip(links, kinds, strict=True):
        weight, bias, a, act, level, strength, line, residual = link
        out, units = weight.shape
        width = max(width, out)
        size += _whole(count * out) + (_whole(2 * count * out) if keep else 0)
        seed = 0 if kind == COPY else next(seeds)
        end = ctypes.addressof(act), units, out, a.numel(), seed, level, strength, kind, line, residual
        ends.append(end)
        packed.append(_pack(weight.data_ptr(), 0 if bias is None else bias.data_ptr(), a.data_ptr(), 0, 0, 0, *end))
    dtype, room = rows.dtype, _whole(count * width)
    y = rows.new_empty((*x.shape[:-1], out))
    kept = rows.new_empty(size - _whole(count * out))
    scratch = rows.new_empty(room if keep else 3 * room)
    library().mollifier_chain_forward(
        DTYPES[dtype],
        product(dtype),
        b"".join(packed),
        len(links),
        count,
        rows.data_ptr(),
        kept.data_ptr(),
        keep,
        scratch.data_ptr(),
        room,
        y.data_ptr(),
        torch.get_num_threads(),
    )
    return y, rows, kept, ends


class _Chain(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, links: list[Link], *tensors: Tensor | None) -> Tensor:
        y, rows, kept, ends = _forward(x, links, True)
        ctx.save_for_backward(rows, kept, *tensors[::3])
        ctx.rest = x.shape, ends, [a.shape for a in cast(tuple[Tensor, ...], tensors[2::3])]
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        once()
        rows, kept, *weights = ctx.saved_tensors
        shape, ends, a_shapes = ctx.rest
        dtype, count = rows.dtype, len(rows)
        by_x, _, *needed = ctx.needs_input_grad
        grad = grad.contiguous()
        grads: list[Tensor | None] = []
        packed, width = [], 0
        for number, weight in enumerate(weights):
            out = len(weight)
            width = max(width, out)
            by_weight, by_bias, by_a = needed[3 * number : 3 * number + 3]
            mine = (
                torch.empty_like(weight) if by_weight else None,
                rows.new_empty(out) if by_bias else None,
                rows.new_empty(a_shapes[number]) if by_a else None,
            )
            grads += mine
            pointers = [0 if each is None else each.data_ptr() for each in mine]
            packed.append(_pack(weight.data_ptr(), 0, 0, *pointers, *ends[number]))
        grad_x = rows.new_empty(shape) if by_x else None
        room = _whole(count * width)
        scratch = rows.new_empty(3 * room)
        library().mollifier_chain_backward(
            DTYPES[dtype],
            product(dtype),
            b"".join(packed),
            len(weights),
            count,
            rows.data_ptr(),
            kept.data_ptr(),
            grad.data_ptr(),
            scratch.data_ptr(),
            room,
            None if grad_x is None else grad_x.data_ptr(),
            torch.get_num_threads(),
        )
        return grad_x, None, *grads
