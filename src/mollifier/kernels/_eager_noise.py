"""Noise of the eager functions: 32 bits an element in one call, 16 for |ξ| by a table, 16 for the copy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

# Integers as wide as a floating-point number: choosing by masks of bits costs a fifth of what torch.where does.
INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
CELLS = 1 << 16


def channels_last(x: Tensor) -> bool:
    """Does it lie so in memory?"""
    return x.dim() == 4 and not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last)


def draw(seed: int, shape: Sequence[int], last: bool = False) -> Tensor:
    """Random int32 of this shape, its channels last in memory or not; always the same of one seed."""
    count = math.prod(shape)
    generator = torch.Generator("cpu").manual_seed(seed)
    wide = torch.empty((count + 1) // 2, dtype=torch.int64, device="cpu").random_(-(2**63), None, generator=generator)
    bits = wide.view(torch.int32)[:count]
    if last:
        n, c, h, w = shape
        return bits.view(n, h, w, c).permute(0, 3, 1, 2)
    return bits.view(*shape)


@cache
def _half_normal(dtype: torch.dtype) -> Tensor:
    """|ξ| in the middle of each of 65536 cells of the same probability."""
    middles = (torch.arange(CELLS, dtype=torch.float64, device="cpu") + 0.5) / CELLS
    return (math.sqrt(2.0) * torch.erfinv(middles)).to(dtype)


def normals(bits: Tensor, dtype: torch.dtype) -> Tensor:
    """|ξ| of the low 16 bits."""
    cells = torch.bitwise_and(bits, CELLS - 1)
    table = _half_normal(dtype)
    if cells.is_contiguous():
        return table.index_select(0, cells.view(-1)).view(cells.shape)  # many times faster than table[cells]
    order = sorted(range(bits.dim()), key=bits.stride, reverse=True)
    flat = cells.permute(order)
    drawn = table.index_select(0, flat.reshape(-1)).view(flat.shape)
    back = [order.index(dim) for dim in range(bits.dim())]
    return drawn.permute(back)


def copied(bits: Tensor, level: float, dtype: torch.dtype) -> Tensor:
    """Masks, all bits set where the high 16 bits say copy: with probability p, to the resolution of 16 bits."""
    edge = math.ceil(min(max(level, 0.0), 1.0) * CELLS) - CELLS // 2
    mask = torch.bitwise_right_shift(bits, 16).sub_(edge).bitwise_right_shift_(31)
    return mask.to(INTEGERS[dtype.itemsize])


def noise(seed: int, count: int) -> tuple[Tensor, Tensor]:
    """The |ξ| and the uniforms of a seed, for tests and for whoever wants to see them."""
    bits = draw(seed, [count])
    return normals(bits, torch.float32), (torch.bitwise_right_shift(bits, 16) + CELLS // 2).float() / CELLS
