"""A whole sequence of a mollified LSTM or GRU layer in one call, both directions of it at once."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mollifier.functional import Push
from mollifier.kernels._library import draw_seed, library
from mollifier.kernels._unit import once, strength

NAMES = {torch.float32: "float", torch.float64: "double"}
GIVEN = ("h0", "c0", "w_ih", "w_hh", "b_ih", "b_hh", "a", "time")


class OptionsStruct(ctypes.Structure):
    """`struct Options` of recurrent_cells.h."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("hard", "gates", "activations", "steps", "batch", "inputs", "hidden")),
        *((name, ctypes.c_double) for name in ("level", "strength", "extra")),
    )


class DirectionStruct(ctypes.Structure):
    """`struct Direction` of recurrent_cells.h."""

    _fields_ = (
        *(("reverse", ctypes.c_int64), ("keep", ctypes.c_int64), ("seed", ctypes.c_uint64)),
        *((name, ctypes.c_void_p) for name in ("x", "w_ih", "w_hh", "b_ih", "b_hh", "a", "time", "h0", "c0")),
        *((name, ctypes.c_void_p) for name in ("z", "kept", "out", "cell", "final_h", "final_c")),
        *(
            (name, ctypes.c_void_p)
            for name in ("grad_out", "grad_final_h", "grad_final_c", "grad_z", "grad_hh", "grad_x")
        ),
        *((name, ctypes.c_void_p) for name in ("grad_w_ih", "grad_w_hh", "grad_b", "grad_a", "grad_h", "grad_c")),
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


def has_product(dtype: torch.dtype) -> bool:
    """Are there native recurrent kernels for this type?"""
    return dtype in NAMES and library() is not None


@dataclass
class Part:
    """One direction of a layer.

    Attributes:
        cell: What it is beside its tensors.
        state: (h, c) of an LSTM, (h,) of a GRU; each (batch, hidden).
        weights: w_ih, w_hh, b_ih, b_hh; the biases may be None.
        a: (activations, hidden), if the activations are noisy.
        time: 1/t a row, if the gates are.
    """

    cell: Cell
    state: tuple[Tensor, ...]
    weights: tuple[Tensor, Tensor, Tensor | None, Tensor | None]
    a: Tensor | None = None
    time: Tensor | None = None

    def tensors(self, rows: Tensor) -> list[Tensor | None]:
        """In the order of `GIVEN`, in memory order and the rows' type."""
        c0 = self.state[1] if len(self.state) == 2 else None
        time = None if self.time is None else self.time.detach().to(rows.dtype).expand(len(rows), 1)
        given = (self.state[0], c0, *self.weights, self.a, time)
        return [None if each is None else each.contiguous() for each in given]


def recurrent_layer(rows: Tensor, parts: list[Part]) -> list[tuple[Tensor, ...]]:
    """Of each direction the output rows, the final h and, for an LSTM, the final c."""
    rows = rows.contiguous()
    tensors = [tensor for part in parts for tensor in part.tensors(rows)]
    keep = torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in (rows, *tensors))
    found = _Layer.apply([part.cell for part in parts], keep, rows, *tensors)  # type: ignore[no-untyped-call]
    each = len(found) // len(parts)
    return [found[k : k + each] for k in range(0, len(found), each)]


def _run(backward: bool, rows: Tensor, cells: list[Cell], directions: list[dict[str, Tensor | int | None]]) -> None:
    """Fill what the directions name."""
    first, h0 = cells[0], directions[0]["h0"]
    assert isinstance(h0, Tensor)
    options = OptionsStruct(
        *(int(first.hard), int(first.gates), int(first.activations)),
        *(len(first.sizes), len(h0), rows.shape[1], h0.shape[1]),
        *(first.level, first.strength, 1e30 if first.line else 0.0),
    )
    structs = [
        DirectionStruct(
            cell.reverse,
            x=rows.data_ptr(),
            **{name: each.data_ptr() if isinstance(each, Tensor) else each for name, each in direction.items()},
        )
        for cell, direction in zip(cells, directions, strict=True)
    ]
    function = getattr(library(), f"mollifier_{'gru' if directions[0]['c0'] is None else 'lstm'}_{NAMES[rows.dtype]}")
    sizes = (ctypes.c_int64 * len(first.sizes))(*first.sizes)
    packed = (DirectionStruct * len(structs))(*structs)
    function(backward, ctypes.byref(options), sizes, packed, len(structs), torch.get_num_threads())


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, cells: list[Cell], keep: bool, rows: Tensor, *tensors: Tensor | None) -> Any:
        directions, found, saved = [], [], []
        for cell, k in zip(cells, range(0, len(tensors), len(GIVEN)), strict=True):
            given = dict(zip(GIVEN, tensors[k : k + len(GIVEN)], strict=True))
            h0, c0, w_ih, w_hh = tensors[k : k + 4]
            assert h0 is not None
            assert w_ih is not None
            z, out = rows.new_empty(len(rows), len(w_ih)), rows.new_empty(len(rows), h0.shape[1])
            final_h = torch.empty_like(h0)
            kept = torch.empty_like(z) if keep else rows.new_empty(len(h0), len(w_ih))
            made: dict[str, Any] = {"z": z, "kept": kept, "out": out, "final_h": final_h}
            found += [out, final_h]
            if c0 is not None:
                found.append(torch.empty_like(c0))
                made |= {"cell": torch.empty_like(out), "final_c": found[-1]}
            made["seed"] = draw_seed() if cell.gates or cell.activations else 0
            directions.append({**given, **made, "keep": keep})
            saved += [h0, c0, w_ih, w_hh, z, kept, out]
        _run(False, rows, cells, directions)
        if keep:
            ctx.save_for_backward(rows, *saved)
        ctx.rest = cells, given["b_ih"] is not None
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        once()
        rows, *saved = ctx.saved_tensors
        cells, biased = ctx.rest
        directions: list[dict[str, Any]] = []
        each = len(grads) // len(cells)
        for number, cell in enumerate(cells):
            names = ("h0", "c0", "w_ih", "w_hh", "z", "kept", "out")
            given = dict(zip(names, saved[number * len(names) : (number + 1) * len(names)], strict=True))
            final = (grad.contiguous() for grad in grads[number * each : (number + 1) * each])
            given |= zip(("grad_out", "grad_final_h", "grad_final_c"), final, strict=False)
            h0, c0, z = given["h0"], given["c0"], given["z"]
            given["keep"] = True
            given["grad_z"] = torch.empty_like(z)
            given["grad_hh"] = torch.empty_like(z) if c0 is None else None
            given["grad_x"] = torch.empty_like(rows) if ctx.needs_input_grad[2] else None
            given["grad_w_ih"], given["grad_w_hh"] = torch.empty_like(given["w_ih"]), torch.empty_like(given["w_hh"])
            given["grad_b"] = rows.new_empty(2, z.shape[1])
            given["grad_a"] = rows.new_empty(1 if c0 is None else 2, h0.shape[1]) if cell.activations else None
            given["grad_h"], given["grad_c"] = torch.empty_like(h0), None if c0 is None else torch.empty_like(c0)
            directions.append(given)
        _run(True, rows, cells, directions)
        by_x = directions[0]["grad_x"]
        if by_x is not None and len(directions) == 2:
            by_x += directions[1]["grad_x"]
        found = [None, None, by_x]
        for given in directions:
            found += [given[f"grad_{name}"] for name in ("h", "c", "w_ih", "w_hh")]
            found += [*(given["grad_b"].unbind() if biased else (None, None)), given["grad_a"], None]
        return tuple(found)
