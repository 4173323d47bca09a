"""A whole sequence of a mollified LSTM or GRU layer in one call, one direction."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mollifier.functional import Push
from mollifier.kernels._library import draw_seed, library
from mollifier.kernels._unit import once, strength

GEMMS = {torch.float32: ("float", "sgemm_"), torch.float64: ("double", "dgemm_")}


class OptionsStruct(ctypes.Structure):
    """`struct Options` of recurrent.cpp."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("hard", "gates", "activations", "steps", "batch", "hidden", "reverse")),
        *((name, ctypes.c_double) for name in ("level", "strength", "extra")),
    )


@dataclass
class Cell:
    """What a call needs beside its tensors.

    Attributes:
        hard: Hard-sigmoid gates?
        sizes: Rows of each step.
        reverse: Read backward?
        gates: Hold the gates?
        activations: Push the activations?
        level: p.
        strength: Of the push: c p, or c p / (1 - p).
        line: Is the activation its tangent (odds at p = 1)?
    """

    hard: bool
    sizes: list[int]
    reverse: bool
    gates: bool = False
    activations: bool = False
    level: float = 0.0
    strength: float = 0.0
    line: bool = False

    def mollify(self, level: float, c: float, push: Push, gates: bool, activations: bool) -> None:
        """Make a plain cell noisy."""
        self.level, self.gates, self.activations = level, gates, activations
        self.strength, self.line = strength(level, c, push)

    def pack(self, hidden: int) -> tuple[OptionsStruct, Any]:
        """As the kernels want it."""
        flags = [int(self.hard), int(self.gates), int(self.activations)]
        shape = [len(self.sizes), self.sizes[0], hidden, int(self.reverse)]
        packed = OptionsStruct(*flags, *shape, self.level, self.strength, 1e30 if self.line else 0.0)
        return packed, (ctypes.c_int64 * len(self.sizes))(*self.sizes)

    def before(self, initial: Tensor, rows: Tensor) -> Tensor:
        """The state before each row: the row of the step before, or the initial state."""
        batch = self.sizes[0]
        if self.sizes[-1] == batch:
            return torch.cat([rows[batch:], initial] if self.reverse else [initial, rows[:-batch]])
        firsts = [0]
        for size in self.sizes:
            firsts.append(firsts[-1] + size)
        index: list[int] = []
        for t, size in enumerate(self.sizes):
            last = t + 1 if self.reverse else t - 1
            going = min(size, self.sizes[last]) if 0 <= last < len(self.sizes) else 0
            index += [batch + firsts[last] + k if k < going else k for k in range(size)]
        return torch.cat([initial, rows]).index_select(0, torch.tensor(index))

    def final(self, rows: Tensor) -> Tensor:
        """The last state of each sequence."""
        if self.reverse:
            return rows[: self.sizes[0]].clone()
        if self.sizes[-1] == self.sizes[0]:
            return rows[-self.sizes[0] :].clone()
        ends = [0] * self.sizes[0]
        first = 0
        for size in self.sizes:
            ends[:size] = range(first, first + size)
            first += size
        return rows.index_select(0, torch.tensor(ends))


@cache
def _gemm(name: str) -> int | None:
    """Address of torch's own matrix product, or None where this build does not show it."""
    for file in (Path(torch.__file__).parent / "lib").glob("libtorch_cpu.*"):
        try:
            return ctypes.cast(getattr(ctypes.CDLL(str(file)), name), ctypes.c_void_p).value
        except (OSError, AttributeError):
            continue
    return None


def has_product(dtype: torch.dtype) -> bool:
    """Can the recurrent kernels run in this type?"""
    return dtype in GEMMS and _gemm(GEMMS[dtype][1]) is not None


def _call(kind: str, dtype: torch.dtype, cell: Cell, hidden: int, *args: Any) -> None:
    name, gemm = GEMMS[dtype]
    packed, sizes = cell.pack(hidden)
    function = getattr(library(), f"mollifier_{kind}_{name}")
    pointers = [ctypes.c_void_p(arg.data_ptr()) if isinstance(arg, Tensor) else arg for arg in args]
    threads = ctypes.c_int(torch.get_num_threads())
    function(ctypes.byref(packed), ctypes.c_void_p(_gemm(gemm)), sizes, *pointers, threads)


def lstm_layer(
    x: Tensor, state: tuple[Tensor, ...], w: Tensor, a: Tensor | None, time: Tensor | None, cell: Cell
) -> Any:
    """(W x + b of all rows, (h, c), w_hh, a (2, hidden), 1/t a row) → rows of h, final h, final c. x is overwritten."""
    return _LSTMLayer.apply(x, *state, w, a, _times(x, time), cell)  # type: ignore[no-untyped-call]


def gru_layer(
    x: Tensor,
    state: tuple[Tensor, ...],
    w: Tensor,
    b: Tensor | None,
    a: Tensor | None,
    time: Tensor | None,
    cell: Cell,
) -> Any:
    """(W x + b of all rows, (h,), w_hh, b_hh, a (1, hidden), 1/t a row) → rows of h, final h. x is overwritten."""
    return _GRULayer.apply(x, *state, w, b, a, _times(x, time), cell)  # type: ignore[no-untyped-call]


def _times(x: Tensor, time: Tensor | None) -> Tensor:
    return x.new_ones(len(x)) if time is None else time.detach().to(x.dtype).expand(len(x), 1).contiguous()


def _plain(like: Tensor, *tensors: Tensor | None) -> list[Tensor]:
    """In memory order; a tensor that is not there, and not read, as one without elements."""
    return [like.new_empty(0) if each is None else each.detach().contiguous() for each in tensors]


class _LSTMLayer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, h0: Tensor, c0: Tensor, w: Tensor, a: Tensor | None, time: Tensor, cell: Cell
    ) -> Any:
        z, h0, c0, w, flat = _plain(x, x, h0, c0, w, a)
        hidden = h0.shape[1]
        out, cells = z.new_empty(len(z), hidden), z.new_empty(len(z), hidden)
        seed = ctypes.c_uint64(draw_seed() if a is not None or cell.gates else 0)
        kept = torch.empty_like(z) if any(ctx.needs_input_grad) else None
        _call("lstm_forward", z.dtype, cell, hidden, w, time, flat, seed, h0, c0, z, kept, out, cells)
        ctx.save_for_backward(z, kept, h0, w, out)
        ctx.cell = cell
        return out, cell.final(out), cell.final(cells)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor, grad_h: Tensor, grad_c: Tensor) -> tuple[Tensor | None, ...]:
        once()
        z, kept, h0, w, out = ctx.saved_tensors
        cell = ctx.cell
        grad_out, grad_h, grad_c = grad_out.contiguous(), grad_h.clone().contiguous(), grad_c.clone().contiguous()
        grad_z, grad_a = torch.empty_like(z), z.new_zeros(2, h0.shape[1])
        tail = (grad_out, grad_h, grad_c, grad_z, grad_a)
        _call("lstm_backward", z.dtype, cell, h0.shape[1], w, z, kept, *tail)
        grad_w = grad_z.t() @ cell.before(h0, out)
        return grad_z, grad_h, grad_c, grad_w, grad_a if cell.activations else None, None, None


class _GRULayer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, h0: Tensor, w: Tensor, b: Tensor | None, a: Tensor | None, time: Tensor, cell: Cell
    ) -> Any:
        z, h0, w, flat = _plain(x, x, h0, w, a)
        hidden = h0.shape[1]
        out = z.new_empty(len(z), hidden)
        hh = torch.zeros_like(z) if b is None else b.detach().repeat(len(z), 1)
        seed = ctypes.c_uint64(draw_seed() if a is not None or cell.gates else 0)
        _call("gru_forward", z.dtype, cell, hidden, w, time, flat, seed, h0, z, hh, out)
        ctx.save_for_backward(z, h0, w, out, hh)
        ctx.rest = cell, b is not None
        return out, cell.final(out)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor, grad_h: Tensor) -> tuple[Tensor | None, ...]:
        once()
        z, h0, w, out, hh = ctx.saved_tensors
        cell, biased = ctx.rest
        grad_out, grad_h = grad_out.contiguous(), grad_h.clone().contiguous()
        grad_z, grad_hh, grad_a = torch.empty_like(z), torch.empty_like(z), z.new_zeros(1, h0.shape[1])
        tail = (grad_out, grad_h, grad_z, grad_hh, grad_a)
        _call("gru_backward", z.dtype, cell, h0.shape[1], w, z, hh, *tail)
        grad_w, grad_b = grad_hh.t() @ cell.before(h0, out), grad_hh.sum(0) if biased else None
        return grad_z, grad_h, grad_w, grad_b, grad_a if cell.activations else None, None, None
