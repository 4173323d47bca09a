"""A whole sequence of a mollified LSTM or GRU layer in one call, both directions of it at once."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mollifier.functional import HALF_NORMAL_MEAN, Push
from mollifier.kernels._library import draw_seeds, library
from mollifier.kernels._unit import once, strength

NAMES = {torch.float32: "float", torch.float64: "double"}
GIVEN = ("h0", "c0", "w_ih", "w_hh", "b_ih", "b_hh", "a")


# `struct Options` and `struct Direction` of recurrent_cells.h
_options = struct.Struct("=8i3d").pack
_direction = struct.Struct("=6qd2Q28Q").pack
POINTERS = (
    *("x", "w_ih", "w_hh", "b_ih", "b_hh", "a", "h0", "c0"),
    *("z", "kept", "out", "cell", "mixed", "final_h", "final_c"),
    *("grad_out", "grad_final_h", "grad_final_c"),
    *("grad_z", "grad_hh", "grad_x", "grad_w_ih", "grad_w_hh", "grad_b_ih", "grad_b_hh"),
    *("grad_a", "grad_h", "grad_c"),
)
SAVED = ("h0", "c0", "w_ih", "w_hh", "z", "kept", "out")
Given = dict[str, Tensor | None]


class Clock(NamedTuple):
    """What t is in the gates' 1/t.

    Attributes:
        fixed: The same for all rows; 0: the row's place in its own sequence, from 1, in the direction of reading.
        before: Added to the place: what the stream had reached.
        cap: t never exceeds it; 0 for no cap.
    """

    fixed: int = 0
    before: int = 0
    cap: int = 0

    def inverse(self, positions: Tensor) -> Tensor:
        """1/t of these places."""
        t = torch.full_like(positions, self.fixed) if self.fixed else positions + self.before
        return 1.0 / (t.clamp_max(self.cap) if self.cap else t).double()


PLACES = Clock()


@dataclass
class Cell:
    """What a call needs beside its tensors.

    Attributes:
        hard: Hard-sigmoid gates?
        sizes: Rows of each step.
        reverse: Read backward?
        gates: Hold the gates?
        activations: Push the activations?
        expected: Is the noise its mean, instead of drawn?
        level: p.
        strength: Of the push: c p, or c p / (1 - p).
        line: Is the activation its tangent (odds at p = 1)?
        clock: What t is in the gates' 1/t.
        copied: The level of the copy of the layer below into the output; None if there is none.
    """

    hard: bool
    sizes: list[int]
    reverse: bool
    gates: bool = False
    activations: bool = False
    expected: bool = False
    level: float = 0.0
    strength: float = 0.0
    line: bool = False
    clock: Clock = PLACES
    copied: float | None = None

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
    """

    cell: Cell
    state: tuple[Tensor, ...]
    weights: tuple[Tensor, Tensor, Tensor | None, Tensor | None]
    a: Tensor | None = None

    def tensors(self) -> list[Tensor | None]:
        """In the order of `GIVEN` and in memory order."""
        c0 = self.state[1] if len(self.state) == 2 else None
        given = (self.state[0], c0, *self.weights, self.a)
        return [None if each is None else each.contiguous() for each in given]


def recurrent_layer(rows: Tensor, parts: list[Part]) -> list[tuple[Tensor, ...]]:
    """Of each direction the output rows, the final h and, for an LSTM, the final c."""
    rows = rows.contiguous()
    tensors = [tensor for part in parts for tensor in part.tensors()]
    keep = torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in (rows, *tensors))
    found = _Layer.apply([part.cell for part in parts], keep, rows, *tensors)  # type: ignore[no-untyped-call]
    each = len(found) // len(parts)
    return [found[k : k + each] for k in range(0, len(found), each)]


def _run(backward: bool, keep: bool, cells: list[Cell], seeds: list[tuple[int, int]], given: list[Given]) -> None:
    """Fill what is given of each direction."""
    first, rows, h0 = cells[0], given[0]["x"], given[0]["h0"]
    assert rows is not None
    assert h0 is not None
    options = _options(
        *(first.hard, first.gates, first.activations, first.expected),
        *(len(first.sizes), len(h0), rows.shape[1], h0.shape[1]),
        *(first.level, first.strength * (HALF_NORMAL_MEAN if first.expected else 1.0), 1e30 if first.line else 0.0),
    )
    directions = b"".join(
        _direction(
            *(cell.reverse, keep, cell.copied is not None, *cell.clock, cell.copied or 0.0, *seed),
            *[0 if (tensor := each.get(name)) is None else tensor.data_ptr() for name in POINTERS],
        )
        for cell, seed, each in zip(cells, seeds, given, strict=True)
    )
    function = getattr(library(), f"mollifier_{'gru' if given[0]['c0'] is None else 'lstm'}_{NAMES[rows.dtype]}")
    sizes = (ctypes.c_int64 * len(first.sizes))(*first.sizes)
    function(backward, options, sizes, directions, len(cells), torch.get_num_threads())


def _seeds(cells: list[Cell]) -> list[tuple[int, int]]:
    """For each direction that of its noise and that of its copy; those that draw nothing take none from the generator."""
    noisy = [(cell.gates or cell.activations) and not cell.expected for cell in cells]
    copied = [cell.copied is not None for cell in cells]
    drawn = iter(draw_seeds(sum(noisy) + sum(copied)))
    noise = [next(drawn) if each else 0 for each in noisy]
    return list(zip(noise, [next(drawn) if each else 0 for each in copied], strict=True))


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, cells: list[Cell], keep: bool, rows: Tensor, *tensors: Tensor | None) -> Any:
        ctx.set_materialize_grads(False)
        every: list[Given] = []
        found, saved = [], []
        for cell, k in zip(cells, range(0, len(tensors), len(GIVEN)), strict=True):
            given = dict(zip(GIVEN, tensors[k : k + len(GIVEN)], strict=True))
            h0, c0, w_ih, _ = tensors[k : k + 4]
            assert h0 is not None
            assert w_ih is not None
            z, out = rows.new_empty(len(rows), len(w_ih)), rows.new_empty(len(rows), h0.shape[1])
            given |= {"x": rows, "z": z, "out": out, "final_h": torch.empty_like(h0)}
            given["kept"] = torch.empty_like(z) if keep else rows.new_empty(len(h0), len(w_ih))
            given["mixed"] = None if cell.copied is None else torch.empty_like(out)
            found += [out if given["mixed"] is None else given["mixed"], given["final_h"]]
            if c0 is not None:
                given |= {"cell": torch.empty_like(out), "final_c": torch.empty_like(c0)}
                found.append(given["final_c"])
            every.append(given)
            saved += [given[name] for name in SAVED]
        seeds = _seeds(cells)
        _run(False, keep, cells, seeds, every)
        if keep:
            ctx.save_for_backward(rows, *saved)
        ctx.rest = cells, seeds, every[0]["b_ih"] is not None
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        once()
        rows, *saved = ctx.saved_tensors
        cells, seeds, biased = ctx.rest
        every: list[Given] = []
        each = len(grads) // len(cells)
        for number, cell in enumerate(cells):
            given: Given = dict(zip(SAVED, saved[number * len(SAVED) : (number + 1) * len(SAVED)], strict=True))
            h0, c0, z, out = (given[name] for name in ("h0", "c0", "z", "out"))
            assert h0 is not None
            assert z is not None
            assert out is not None
            above = (None if grad is None else grad.contiguous() for grad in grads[number * each : (number + 1) * each])
            given |= zip(("grad_out", "grad_final_h", "grad_final_c"), above, strict=False)
            if given["grad_out"] is None:
                given["grad_out"] = torch.zeros_like(out)
            given |= {"x": rows, "grad_z": torch.empty_like(z), "grad_hh": torch.empty_like(z) if c0 is None else None}
            given["grad_x"] = torch.empty_like(rows) if ctx.needs_input_grad[2] else None
            given["grad_b_ih"], given["grad_b_hh"] = rows.new_empty(z.shape[1]), rows.new_empty(z.shape[1])
            given["grad_a"] = rows.new_empty(1 if c0 is None else 2, h0.shape[1]) if cell.activations else None
            for name in ("w_ih", "w_hh"):
                given[f"grad_{name}"] = torch.empty_like(given[name])  # type: ignore[arg-type]
            given["grad_h"], given["grad_c"] = torch.empty_like(h0), None if c0 is None else torch.empty_like(c0)
            every.append(given)
        _run(True, True, cells, seeds, every)
        by_x = every[0]["grad_x"]
        for given in every[1:]:
            if by_x is not None and (more := given["grad_x"]) is not None:
                by_x += more
        found = [None, None, by_x]
        for given in every:
            found += [given["grad_h"], given["grad_c"], given["grad_w_ih"], given["grad_w_hh"]]
            found += [given["grad_b_ih"], given["grad_b_hh"]] if biased else [None, None]
            found.append(given["grad_a"])
        return tuple(found)
