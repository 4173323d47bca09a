"""Sizes whose products do not fit into 32 bits: ``make test-large``. Takes up to 4 GiB of memory and a few minutes."""

from __future__ import annotations

import resource
from collections.abc import Callable

import torch

import mollifier
from mollifier import ops
from mollifier.activations import activation
from mollifier.ops import _library, _loop, _recurrent

LEVEL = torch.tensor(0.5, dtype=torch.float64)
EDGE = 2**31


def near(got: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(got, wanted, rtol=2e-2, atol=2e-2)


@torch.no_grad()
def unit() -> None:
    """A copy of 2³¹ + 4096 elements of bfloat16, in place of which 32 bits would count below zero; from both of its ends."""
    rows = EDGE // 4096 + 1
    x = torch.zeros(rows, 4096, dtype=torch.bfloat16)
    x[-1] = 1.0
    out = ops.unit(x, None, torch.zeros(1), activation("tanh"), level=LEVEL)
    near(out[-1].float(), torch.full((4096,), 0.7616))
    assert not out[0].any()
    assert not out[rows // 2].any()


@torch.no_grad()
def chain() -> None:
    """More than 2³¹ numbers of room: 5,600,000 rows of 100 in a run of two layers that keeps nothing."""
    rows, width = 3_000_000, 100
    x = torch.randn(rows, width)
    level = torch.tensor(0.9, dtype=torch.float64)
    weight = torch.eye(width)
    link = ops.Link(weight, None, torch.zeros(1), activation("hardtanh", min_val=-1e9, max_val=1e9), level, level)
    out = ops.chain(x, [link])  # the identity, whatever is copied
    near(out[:3], x[:3])
    near(out[-3:], x[-3:])


@torch.no_grad()
def recurrent() -> None:
    """Rows times columns of the four gates beyond 2³¹: one step of 4,300,000 sequences, 125 units would be; here the index of a tile."""
    rows, hidden = 1_200_000, 32
    module, x = mollifier.nn.HardSigmoidLSTM(hidden, hidden), torch.randn(1, rows, hidden)
    out = module(x)[0]
    for some in (slice(0, 7), slice(rows // 2, rows // 2 + 7), slice(-7, None)):
        torch.testing.assert_close(out[:, some], module(x[:, some])[0])


@torch.no_grad()
def long_sequence() -> None:
    """A sequence of 70,000 steps of 40,000 bytes: steps times rows times gates beyond 2³¹."""
    x, state = torch.randn(200_000, 4), (torch.zeros(1, 8), torch.zeros(1, 8))
    weights = [torch.randn(32, 4) / 4, torch.randn(32, 8) / 4, None, None, None]
    layer = _loop.Layer("LSTM", [1] * 200_000)
    ((out, *_),) = ops.recurrent(x, [state], [weights], layer)
    last = _loop.Layer("LSTM", [1] * 500)  # the gates forget what is farther away
    ((tail, *_),) = _loop.loop(x[-500:], [state], [weights], last, None, None, None, "sample", "sample")
    torch.testing.assert_close(out[-1], tail[-1], rtol=1e-3, atol=1e-4)


def main() -> None:
    assert _library.LIBRARY is not None, ops.info()
    assert _recurrent is not None
    parts: list[Callable[[], None]] = [unit, chain, recurrent, long_sequence]
    for part in parts:
        part()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"{part.__name__}: right; {peak:.1f} GiB at most so far", flush=True)


if __name__ == "__main__":
    main()
