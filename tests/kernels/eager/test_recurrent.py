"""Whole sequences of an LSTM or GRU layer by the eager functions against the reference loop with the same noise."""

import copy

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from torch import nn

import mollifier
from mollifier import kernels
from mollifier.kernels._eager_noise import draw, normals
from mollifier.kernels._library import draw_seed
from mollifier.nn.recurrent import RecurrentMollifier, _native, _run
from mollifier.nn.recurrent._sequence import Sequence
from tests.kernels.native.helpers import TOLERANCE, assert_near

pytestmark = pytest.mark.usefixtures("eager")
CLASSES = {"LSTM": (nn.LSTM, mollifier.nn.HardSigmoidLSTM), "GRU": (nn.GRU, mollifier.nn.HardSigmoidGRU)}
# where the noise of the gates lies, and that of the activations
PARTS = {"LSTM": ([0, 1, 3], [2, 4]), "GRU": ([0, 1], [2])}


def same(kind, hard, dtype, sizes, hidden, direction, bias, level, options, seed):
    """One layer and direction by both, with the same draws; level None is a plain layer."""
    torch.manual_seed(seed)
    module = CLASSES[kind][hard](5, hidden, bidirectional=True, bias=bias, dtype=dtype)
    rows = torch.randn(sum(sizes), 5, dtype=dtype, requires_grad=True)
    state = tuple(torch.randn(sizes[0], hidden, dtype=dtype, requires_grad=True) for _ in range(1 + (kind == "LSTM")))
    steps, layer, clock, inputs = _run.plain_steps(module, len(sizes)), None, kernels.PLACES, [rows, *state]
    if level is not None:
        added = RecurrentMollifier(module, options, level=level)
        layer = added.layer(0)
        sequence = Sequence(rows, sizes, (), None, None, True)
        before = torch.tensor(7) if options.carry_time else None
        if options.time == "annealing":
            layer.clock.fill_(4)
        inverse = _run.inverse_time(added, layer, sequence.positions(direction), before, direction)
        clock = _native.clock(added, layer, before, direction)
        torch.manual_seed(seed + 1)
        parts = sum(map(len, PARTS[kind]))
        noise = normals(draw(draw_seed(), (len(rows), parts, hidden)), dtype)
        noise = noise[:, None].expand(-1, 2, -1, -1)
        noise = tuple(noise[:, :, which] for which in PARTS[kind])
        steps = _run.noisy_steps(module, layer, direction, inverse, noise, sizes)
        inputs += [layer.a] if layer.a is not None else []
    inputs += [getattr(module, name) for name in module._all_weights[direction]]
    assert _native.serves(module, rows)
    assert _native.takes(layer)
    torch.manual_seed(seed + 1)
    out, final = _native.one_direction(module, layer, direction, rows, sizes, state, clock)
    assert type(out.grad_fn).__name__ == f"_{kind}Backward"
    wanted_out, wanted_final = _run.one_direction(module, direction, rows, sizes, state, steps)
    got, wanted = [out, *final], [wanted_out, *wanted_final]
    grads = [torch.randn_like(each) for each in wanted]
    got += torch.autograd.grad(got, inputs, grads)
    wanted += torch.autograd.grad(wanted, inputs, grads)
    assert_near(got, wanted, 3 * TOLERANCE[dtype])


@given(
    kind=st.sampled_from(["LSTM", "GRU"]),
    hard=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=6).map(lambda sizes: sorted(sizes, reverse=True)),
    hidden=st.integers(1, 20),
    direction=st.integers(0, 1),
    bias=st.booleans(),
    level=st.sampled_from([None, 1.0]) | st.floats(0.01, 0.95),
    gates=st.booleans(),
    activations=st.booleans(),
    push=st.sampled_from(["paper", "odds"]),
    time=st.sampled_from([{}, {"time_cap": 2}, {"carry_time": True}, {"time": "annealing"}]),
    seed=st.integers(0, 2**20),
)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_equals_the_reference_loop_with_its_noise(
    kind, hard, dtype, sizes, hidden, direction, bias, level, gates, activations, push, time, seed
):
    options = mollifier.nn.RecurrentOptions(gates=gates, activations=activations, copy=False, push=push, **time)
    same(kind, hard, dtype, sizes, hidden, direction, bias, level, options, seed)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_at_a_real_size(kind):
    options = mollifier.nn.RecurrentOptions(copy=False)
    same(kind, False, torch.float64, [20] * 7 + [11, 3], 130, 1, True, 0.5, options, 3)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("level", [0.2, 0.9, 1.0])
@pytest.mark.parametrize("push", ["paper", "odds"])
def test_expected_values_without_a_derivative_are_those_of_the_reference(kind, level, push, monkeypatch):
    torch.manual_seed(1)
    options = mollifier.nn.RecurrentOptions(push=push)
    module = getattr(mollifier.nn, f"Mollified{kind}")(
        9, 20, num_layers=2, bidirectional=True, level=level, options=options, dtype=torch.float64
    ).eval()
    x = nn.utils.rnn.pack_padded_sequence(torch.randn(7, 3, 9, dtype=torch.float64), [7, 4, 1])
    calls, before = [], torch.get_rng_state()
    run = _native.directions
    monkeypatch.setattr(_native, "directions", lambda *given: calls.append(given) or run(*given))
    with torch.no_grad():
        (out, *_), state = module(x)
    by_kernels = 2 if level < 1.0 else 0
    assert len(calls) == by_kernels
    (wanted, *_), wanted_state = module(x)  # with derivatives
    assert len(calls) == by_kernels
    assert wanted.requires_grad
    both = zip((out, *state), (wanted, *wanted_state), strict=True)
    assert all(torch.allclose(one, two, rtol=1e-10, atol=1e-12) for one, two in both)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_gradcheck(kind):
    module = getattr(mollifier.nn, f"Mollified{kind}")(3, 4, level=0.5, dtype=torch.float64)
    x = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)

    def run(x):
        torch.manual_seed(2)
        return module(x)[0]

    assert torch.autograd.gradcheck(run, (x,))


def test_a_second_derivative_is_refused():
    module = mollifier.nn.MollifiedGRU(3, 4, level=0.5)
    x = torch.randn(4, 2, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="MOLLIFIER_KERNELS=off"):
        torch.autograd.grad(module(x)[0].sum(), x, create_graph=True)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_resuming_in_the_middle_is_bit_for_bit(kind):
    def train(model, optimizer, steps):
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(5, 4, 6))[0].square().mean().backward()
            optimizer.step()

    whole = getattr(mollifier.nn, f"Mollified{kind}")(6, 12, num_layers=2, level=0.8)
    optimizer = torch.optim.Adam(whole.parameters(), 1e-2)
    train(whole, optimizer, 3)
    kept = copy.deepcopy((whole.state_dict(), optimizer.state_dict(), torch.get_rng_state()))
    train(whole, optimizer, 3)
    resumed = getattr(mollifier.nn, f"Mollified{kind}")(6, 12, num_layers=2, level=0.8)
    again = torch.optim.Adam(resumed.parameters(), 1e-2)
    resumed.load_state_dict(kept[0])
    again.load_state_dict(kept[1])
    torch.set_rng_state(kept[2])
    train(resumed, again, 3)
    assert all(torch.equal(one, two) for one, two in zip(whole.parameters(), resumed.parameters(), strict=True))
