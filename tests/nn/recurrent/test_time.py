"""t in the gates' 1/t: the position in each sequence, in the direction of reading; carried, capped, or the annealer's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import mollifier
from mollifier.nn import RecurrentOptions

from .helpers import CELLS, packed, padded, pair, recurrent_weights_off

KINDS = ["LSTM", "GRU"]


def bag(kind: str, **options: Any) -> Any:
    """One unit that sums its inputs with the gates' weights: at level 1 its state is (1 - 1/t) state + x / t."""
    _, module = pair(kind, 1, 1, options=RecurrentOptions(copy=False, push="odds", **options))
    recurrent_weights_off(module)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "mollifier" not in name:
                parameter.fill_(1.0 if name.startswith("weight_ih") else 0.0)
    return module


def ones(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None, None]


def weights_of(module: Any, state: Any = None, steps: int = 3) -> list[float]:
    """1/t of each step: what a 1 at this step alone leaves in the state at once."""
    found = []
    for step in range(steps):
        x = torch.zeros(steps, 1, 1, dtype=torch.float64)
        x[step] = 1.0
        found.append(round(float(module(x, state)[0][step].detach()), 6))
    return found


def zero_state(kind: str) -> Any:
    zero = torch.zeros(1, 1, 1, dtype=torch.float64)
    return (zero, zero) if "LSTM" in kind else zero


@pytest.mark.parametrize("kind", KINDS)
def test_t_counts_from_one_at_every_call(kind: str) -> None:
    module = bag(kind)
    want = [1.0, 0.5, round(1 / 3, 6)]
    assert weights_of(module) == want
    assert weights_of(module, zero_state(kind)) == want


@pytest.mark.parametrize("kind", KINDS)
def test_t_is_capped(kind: str) -> None:
    assert weights_of(bag(kind, time_cap=2), steps=4) == [1.0, 0.5, 0.5, 0.5]


@pytest.mark.parametrize("kind", KINDS)
def test_t_runs_over_a_stream_when_it_is_carried(kind: str) -> None:
    module, whole = bag(kind, carry_time=True), bag(kind)
    x = torch.randn(7, 2, 1, dtype=torch.float64)
    want = whole(x)[0]
    state, parts = None, []
    for window in x.split([3, 2, 2]):
        output, state = module(window, state)
        parts.append(output)
    torch.testing.assert_close(torch.cat(parts), want, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(module(x)[0], want, rtol=1e-12, atol=1e-12)  # without a state, a new stream
    capped = bag(kind, carry_time=True, time_cap=4)
    _, state = capped(ones(0, 0, 0))
    assert float(capped(ones(1), state)[0].detach()) == pytest.approx(1 / 4)
    assert float(capped(ones(1), state)[0].detach()) == pytest.approx(1 / 4)


@pytest.mark.parametrize("kind", KINDS)
def test_an_evaluation_does_not_disturb_the_training_stream(kind: str) -> None:
    module = bag(kind, carry_time=True, activations=False, gates=True)
    module.train()
    _, state = module(ones(0, 0, 0))
    module.eval()(ones(0, 0, 0, 0, 0))
    assert module.get_buffer("_mollifier.time").tolist() == [5, 3]
    module.train()(ones(1), state)
    assert module.get_buffer("_mollifier.time").tolist() == [5, 4]
    with torch.inference_mode():
        module.eval()(ones(0, 0))
    assert module.get_buffer("_mollifier.time").tolist() == [2, 4]


def test_only_the_forward_direction_is_carried() -> None:
    options = RecurrentOptions(copy=False, carry_time=True)
    _, module = pair("GRU", 1, 1, bidirectional=True, options=options)
    recurrent_weights_off(module)
    x = torch.randn(4, 2, 1, dtype=torch.float64)
    _, state = module(x)
    (again, _), (fresh, _) = module(x, state), module(x)
    assert not torch.allclose(again[..., 0], fresh[..., 0])
    torch.testing.assert_close(again[..., 1], fresh[..., 1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_t_is_the_annealing_step_when_asked(kind: str) -> None:
    module = bag(kind, time="annealing")
    annealer = mollifier.Annealer(module, lambda t, layer, layers, v: 1.0, every=2)
    for update in range(1, 8):
        annealer.step(1.0)
        t = max(1, update // 2)
        assert weights_of(module) == [round(1 / t, 6)] * 3
    other = bag(kind, time="annealing")
    resumed = mollifier.Annealer(other, lambda t, layer, layers, v: 1.0, every=2)
    resumed.load_state_dict(annealer.state_dict())
    assert weights_of(other) == weights_of(module)
    third = bag(kind, time="annealing")
    third.load_state_dict(module.state_dict(), strict=True)
    assert weights_of(third) == weights_of(module)


def outputs(cell: Any, x: Tensor, state: Any = None) -> tuple[list[float], Any]:
    found = []
    for step in x:
        state = cell(step, state)
        found.append(float((state[0] if isinstance(state, tuple) else state).detach()))
    return found, state


@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell"])
def test_a_cell_counts_as_long_as_its_own_state_comes_back(kind: str) -> None:
    cell = bag(kind)
    found, state = outputs(cell, ones(1, 2, 6))
    assert found == pytest.approx([1.0, 1.5, 3.0])
    assert outputs(cell, ones(3), state)[0] == pytest.approx([3.0])  # t = 4
    detached = tuple(s.detach() for s in state) if isinstance(state, tuple) else state.detach()
    assert outputs(cell, ones(7), detached)[0] == pytest.approx([7.0]), "a window begins: t = 1"
    assert outputs(cell, ones(7))[0] == pytest.approx([7.0])
    one = outputs(cell, ones(5), state)[0]
    assert one == outputs(cell, ones(5), state)[0], "t belongs to the state, so two streams do not mix"


@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell"])
def test_an_unbatched_cell_counts_as_well(kind: str) -> None:
    cell = bag(kind)
    assert outputs(cell, ones(1, 2, 6)[:, 0])[0] == pytest.approx([1.0, 1.5, 3.0])


@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell"])
def test_a_cell_goes_on_with_any_state_when_time_is_carried(kind: str) -> None:
    cell = bag(kind, carry_time=True)
    _, state = outputs(cell, ones(1, 2, 6))
    detached = tuple(s.detach() for s in state) if isinstance(state, tuple) else state.detach()
    assert outputs(cell, ones(7), detached)[0] == pytest.approx([4.0])  # t = 4
    assert outputs(cell, ones(7))[0] == pytest.approx([7.0]), "none: a new stream"
    assert outputs(bag(kind, time_cap=2), ones(1, 3, 6, 6))[0] == pytest.approx([1.0, 2.0, 4.0, 5.0])


@pytest.mark.parametrize("kind", CELLS)
def test_a_cell_at_level_one_hands_its_input_on_as_its_state(kind: str) -> None:
    """A cell's output is its state, so the copy enters the recurrence."""
    _, cell = pair(kind, 3, 4)
    x = torch.randn(2, 3, dtype=torch.float64)
    state = cell(x)
    h = state[0] if isinstance(state, tuple) else state
    assert torch.equal(h, torch.cat([x, x.new_zeros(2, 1)], -1))


@pytest.mark.parametrize("kind", KINDS)
def test_packed_sequences_have_their_own_t(kind: str) -> None:
    """Each from 1, in both directions, whatever the others' lengths: as if each were alone."""
    options = RecurrentOptions(copy=False)
    _, module = pair(kind, 2, 3, num_layers=2, bidirectional=True, options=options, level=0.7)
    lengths = [2, 5, 1, 5, 3]
    x = torch.randn(5, 5, 2, dtype=torch.float64)
    together = padded(module(packed(x, lengths))[0])
    for example, length in enumerate(lengths):
        alone = module(x[:length, example : example + 1])[0][:, 0]
        torch.testing.assert_close(together[:length, example], alone, rtol=1e-12, atol=1e-12)
