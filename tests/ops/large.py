"""Sizes whose products do not fit into 32 bits: ``make test-large``. Takes less than 4 GiB, the last part 9, and a few minutes."""

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
    """A run of layers whose input, output and room each have more than 2³⁰ bytes, 3,000,000 rows of 100."""
    rows, width = 3_000_000, 100
    x = torch.randn(rows, width)
    level = torch.tensor(0.9, dtype=torch.float64)
    weight = torch.eye(width)
    link = ops.Link(weight, None, torch.zeros(1), activation("hardtanh", min_val=-1e9, max_val=1e9), level, level)
    out = ops.chain(x, [link])  # the identity, whatever is copied
    near(out[:3], x[:3])
    near(out[-3:], x[-3:])


def chain_backward() -> None:
    """The gradients of two layers of which one computes only what is not copied: what is kept has more than 2³⁰ bytes."""
    rows, width = 1_000_000, 100
    x, weight = torch.randn(rows, width, requires_grad=True), torch.eye(width).requires_grad_()
    wide = activation("hardtanh", min_val=-1e9, max_val=1e9)
    links = [
        ops.Link(weight, None, torch.zeros(1), wide, torch.tensor(p).double(), torch.tensor(p).double())
        for p in (0.5, 0.9)
    ]
    ops.chain(x, links).sum().backward()
    assert x.grad is not None
    assert weight.grad is not None
    near(x.grad[:3], torch.ones(3, width))  # the identity again
    near(x.grad[-3:], torch.ones(3, width))
    share = x.detach().sum(0) * (0.5 + 0.1)  # of the rows in which each unit is not copied
    assert (weight.grad - share).abs().max() < 10 * rows**0.5


@torch.no_grad()
def recurrent() -> None:
    """The number of a tile times the number of rows is beyond 2³² in one step of 1,200,000 sequences, and in each of two."""
    hidden = 32
    for steps, rows in ((1, 1_200_000), (2, 600_000)):  # one step has torch's products, two have our own
        module, x = mollifier.nn.HardSigmoidLSTM(hidden, hidden), torch.randn(steps, rows, hidden)
        out = module(x)[0]
        for some in (slice(0, 7), slice(rows // 2, rows // 2 + 7), slice(-7, None)):
            torch.testing.assert_close(out[:, some], module(x[:, some])[0])


def recurrent_backward() -> None:
    """The same going back; the gradients of the weights are those of both halves of the sequences together."""
    rows, hidden = 500_000, 32
    module, x = mollifier.nn.HardSigmoidLSTM(hidden, hidden), torch.randn(2, rows, hidden, requires_grad=True)

    def gradients(some: slice) -> list[torch.Tensor]:
        return list(torch.autograd.grad(module(x[:, some])[0].sum(), list(module.parameters())))

    whole, halves = (
        gradients(slice(None)),
        zip(*map(gradients, (slice(0, rows // 2), slice(rows // 2, None))), strict=True),
    )
    for got, parts in zip(whole, halves, strict=True):
        wanted = sum(parts)
        assert isinstance(wanted, torch.Tensor)
        assert (got - wanted).abs().max() < 1e-3 * wanted.abs().max()
    some = slice(-7, None)
    (last,) = torch.autograd.grad(module(x)[0][:, some].sum(), x)
    (alone,) = torch.autograd.grad(module(x[:, some])[0].sum(), x)
    torch.testing.assert_close(last[:, some], alone[:, some])


@torch.no_grad()
def long_sequence() -> None:
    """A sequence of 200,000 steps: their number times itself, or times their rows, is beyond 2³²."""
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
    parts: list[Callable[[], None]] = [long_sequence, recurrent, recurrent_backward, chain, chain_backward, unit]
    for part in parts:
        part()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"{part.__name__}: right; {peak:.1f} GiB at most so far", flush=True)


if __name__ == "__main__":
    main()
