"""t of a cell belongs to the state: whose it is, and which step; computing a step again changes nothing."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import mollifier
from mollifier.nn import RecurrentOptions

from .helpers import CELLS

GATED = ["LSTMCell", "GRUCell"]
STREAM = RecurrentOptions(carry_time=True)


def cell(kind: str, options: RecurrentOptions | None = None, level: float = 0.7) -> Any:
    """In eval, so that nothing is drawn and t alone can differ."""
    return mollifier.mollify(CELLS[kind](3, 4, dtype=torch.float64), level=level, recurrent=options).eval()


def first(state: Any) -> Tensor:
    return state if isinstance(state, Tensor) else state[0]


def detached(state: Any) -> Any:
    return state.detach() if isinstance(state, Tensor) else tuple(part.detach() for part in state)


def unrolled(module: Any, x: Tensor, state: Any = None, **settings: Any) -> Any:
    """The cell over all steps, each of them checkpointed if settings are given."""

    def step(x: Tensor, *state: Any) -> Any:
        return module(x, None if not state else state[0] if len(state) == 1 else state)

    for row in x:
        parts = () if state is None else (state,) if isinstance(state, Tensor) else state
        state = checkpoint(step, row, *parts, **settings) if settings else step(row, *parts)
    return state


def gradients(module: Any, x: Tensor, state: Any, **settings: Any) -> list[Tensor]:
    leaves = [x, *module.parameters()]
    for leaf in leaves:
        leaf.grad = None
    first(unrolled(module, x, state, **settings)).square().sum().backward()
    return [leaf.grad for leaf in leaves]


@pytest.mark.parametrize("kind", GATED)
@pytest.mark.parametrize("use_reentrant", [True, False])
@pytest.mark.parametrize("options", [None, STREAM, RecurrentOptions(time="annealing")])
@pytest.mark.parametrize("start", ["none", "window"])
def test_checkpointing_changes_no_gradient(kind: str, use_reentrant: bool, options: Any, start: str) -> None:
    module, x = cell(kind, options), torch.randn(6, 2, 3, dtype=torch.float64, requires_grad=True)

    def run(**settings: Any) -> list[Tensor]:
        state = None
        if start == "window":  # the last window's state, detached: t starts anew, or runs on if it is carried
            state = detached(unrolled(module, x))
        return gradients(module, x, state, **settings)

    want = run()
    time = copy.deepcopy(dict(module._mollifier.named_buffers(recurse=False)))
    for one, two in zip(run(use_reentrant=use_reentrant), want, strict=True):
        torch.testing.assert_close(one, two)
    for name, buffer in module._mollifier.named_buffers(recurse=False):
        assert torch.equal(buffer, time[name])


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointing_a_stream_of_whole_sequences(use_reentrant: bool) -> None:
    gru = mollifier.mollify(nn.GRU(3, 4, dtype=torch.float64), level=0.7, recurrent=STREAM).eval()
    x = torch.randn(5, 2, 3, dtype=torch.float64, requires_grad=True)
    found = []
    for again in (False, True):
        state = gru(x)[1].detach()
        gru.zero_grad()
        x.grad = None
        out = checkpoint(gru, x, state, use_reentrant=use_reentrant)[0] if again else gru(x, state)[0]
        out.square().sum().backward()
        found.append([*(leaf.grad for leaf in (x, *gru.parameters())), gru._mollifier.time.clone()])
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize("kind", GATED)
def test_the_state_of_another_cell_starts_at_1(kind: str) -> None:
    encoder, decoder, x = cell(kind), cell(kind), torch.randn(10, 2, 3, dtype=torch.float64)
    state = unrolled(encoder, x)
    assert torch.equal(first(decoder(x[0], state)), first(decoder(x[0], detached(state))))
    assert not torch.equal(first(encoder(x[0], state)), first(encoder(x[0], detached(state))))


@pytest.mark.parametrize("kind", GATED)
def test_a_copy_is_another_cell_with_states_of_its_own(kind: str) -> None:
    module, x = cell(kind), torch.randn(10, 2, 3, dtype=torch.float64)
    state, twin = unrolled(module, x), copy.deepcopy(module)
    assert torch.equal(first(twin(x[0], state)), first(module(x[0], detached(state))))
    assert torch.equal(first(unrolled(twin, x)), first(state))


@pytest.mark.parametrize("kind", GATED)
def test_one_state_may_be_taken_twice(kind: str) -> None:
    """As a beam search does: t is a function of the state, not of the number of calls."""
    module, x = cell(kind), torch.randn(3, 2, 3, dtype=torch.float64)
    state = unrolled(module, x)
    assert torch.equal(first(module(x[0], state)), first(module(x[0], state)))
