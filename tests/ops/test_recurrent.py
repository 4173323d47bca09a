"""Whole sequences of an LSTM or GRU layer against the reference loop with the same noise."""

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

import mollifier
from mollifier import ops
from mollifier.nn.recurrent import RecurrentMollifier, modules
from mollifier.nn.recurrent._layer import LayerMollifier, cell_of
from mollifier.ops import _loop, _recurrent
from tests.ops.helpers import TOLERANCE, assert_near, draw_seed

MODULES = {
    ("LSTM", "sigmoid"): nn.LSTM,
    ("LSTM", "hard_sigmoid"): mollifier.nn.HardSigmoidLSTM,
    ("GRU", "sigmoid"): nn.GRU,
    ("GRU", "hard_sigmoid"): mollifier.nn.HardSigmoidGRU,
}


def one(module, layer, direction, rows, sizes, state, time=None):
    """One layer and direction by the operator, and the same arguments for the loop; layer None is a plain one."""
    settings = {} if layer is None else layer.settings(rows, time)
    if settings.get("a") is not None:
        settings["a"] = settings["a"][direction : direction + 1]
    cell = cell_of(module, layer, sizes)
    cell.reverse = direction == 1
    given = rows, [state], [modules.weights_of(module, direction)], cell
    assert _recurrent._serves(*given, "sample", "sample")
    return ops.recurrent(*given, **settings)[0], (given, settings)


def same(kind, gate, dtype, sizes, hidden, direction, bias, level, options, seed):
    """One layer and direction by both, with the same draws; level None is a plain layer."""
    torch.manual_seed(seed)
    module = MODULES[kind, gate](5, hidden, bidirectional=True, bias=bias, dtype=dtype)
    rows = torch.randn(sum(sizes), 5, dtype=dtype, requires_grad=True)
    parts = 2 if kind == "LSTM" else 1
    state = tuple(torch.randn(sizes[0], hidden, dtype=dtype, requires_grad=True) for _ in range(parts))
    layer, inputs = None, [rows, *state]
    noisy_parts = (3, 2) if kind == "LSTM" else (2, 1)
    torch.manual_seed(seed + 1)
    normal, _ = ops.noise(draw_seed(), len(rows) * sum(noisy_parts) * hidden)
    normal = normal.to(dtype).view(len(rows), 1, -1, hidden)
    before = None
    if level is not None:
        layer = RecurrentMollifier(module, options, level=level).layer(0)
        before = torch.tensor(7) if options.carry_time else None
        if options.time == "annealing":
            layer.clock.fill_(4)
        inputs += [layer.a] if layer.a is not None else []
    inputs += [getattr(module, name) for name in module._all_weights[direction]]
    torch.manual_seed(seed + 1)
    got, (given, settings) = one(module, layer, direction, rows, sizes, state, before)
    noise = normal[:, :, : noisy_parts[0]], normal[:, :, noisy_parts[0] :]
    rest = [settings.get(name) for name in ("a", "level", "time")]
    (wanted,) = _loop.loop(*given, *rest, *noise)
    got, wanted = list(got), list(wanted)
    grads = [torch.randn_like(each) for each in wanted]
    got += torch.autograd.grad(got, inputs, grads)
    wanted += torch.autograd.grad(wanted, inputs, grads)
    assert_near(got, wanted, 3 * TOLERANCE[dtype])


@given(
    kind=st.sampled_from(["LSTM", "GRU"]),
    gate=st.sampled_from(["sigmoid", "hard_sigmoid"]),
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
@settings(max_examples=150)
def test_equals_the_reference_loop_with_its_noise(
    kind, gate, dtype, sizes, hidden, direction, bias, level, gates, activations, push, time, seed
):
    options = mollifier.nn.RecurrentOptions(gates=gates, activations=activations, copy=False, push=push, **time)
    same(kind, gate, dtype, sizes, hidden, direction, bias, level, options, seed)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_at_a_real_size(kind):
    options = mollifier.nn.RecurrentOptions(copy=False)
    same(kind, "sigmoid", torch.float64, [20] * 7 + [11, 3], 130, 1, True, 0.5, options, 3)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_both_directions_at_once_are_each_by_itself(kind, threads):
    torch.manual_seed(5)
    module = MODULES[kind, "sigmoid"](7, 60, bidirectional=True)
    options = mollifier.nn.RecurrentOptions(copy=False, carry_time=True, time_cap=5)
    layer = RecurrentMollifier(module, options, level=0.5).layer(0)
    sizes = [9, 9, 6, 2]
    rows = torch.randn(sum(sizes), 7, requires_grad=True)
    time = torch.tensor(2)
    states = [tuple(torch.randn(9, 60, requires_grad=True) for _ in range(1 + (kind == "LSTM"))) for _ in range(2)]
    inputs = [rows, *states[0], *states[1], layer.a, *module.parameters()]

    def results(run):
        torch.manual_seed(6)
        flat = [each for found in run() for each in found]
        return [*flat, *torch.autograd.grad(sum((k + each).square().sum() for k, each in enumerate(flat)), inputs)]

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    weights, cell = [modules.weights_of(module, k) for k in (0, 1)], cell_of(module, layer, sizes)
    at_once = results(lambda: ops.recurrent(rows, states, weights, cell, **layer.settings(rows, time)))
    torch.set_num_threads(before)
    alone = results(lambda: [one(module, layer, k, rows, sizes, states[k], time)[0] for k in (0, 1)])
    assert all(torch.equal(one, two) for one, two in zip(at_once, alone, strict=True))


@given(
    kind=st.sampled_from(["LSTM", "GRU"]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    inputs=st.integers(1, 70),
    more=st.sampled_from([0, 0, 1, 9, 40]),
    both=st.booleans(),
    level=st.sampled_from([0.01, 0.5, 1.0]),
    threads=st.integers(1, 3),
    seed=st.integers(0, 2**20),
)
@settings(max_examples=60)
def test_a_copy_made_along_with_the_layer_is_the_copy_after_it(
    kind, dtype, lengths, inputs, more, both, level, threads, seed
):
    torch.manual_seed(seed)
    module = getattr(mollifier.nn, f"Mollified{kind}")(
        inputs, inputs + more, num_layers=2, bidirectional=both, level=level, dtype=dtype
    )
    x = torch.randn(max(lengths), len(lengths), inputs, dtype=dtype, requires_grad=True)
    grad = torch.randn(sum(lengths), (inputs + more) * (1 + both), dtype=dtype)
    fused = LayerMollifier.fused_copies

    def results():
        torch.manual_seed(seed)
        out, _ = module(nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False))
        return out.data, torch.autograd.grad(out.data, [x, *module.parameters()], grad)

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        together, together_grads = results()
        LayerMollifier.fused_copies = lambda self: None
        apart, apart_grads = results()
    finally:
        LayerMollifier.fused_copies = fused
        torch.set_num_threads(before)
    assert torch.equal(together, apart)
    assert_near(together_grads, apart_grads, TOLERANCE[dtype])


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_a_hook_on_the_copy_is_called(kind):
    module = getattr(mollifier.nn, f"Mollified{kind}")(3, 4, level=0.5)
    assert module._mollifier.layer(0).fused_copies() is not None
    calls = []
    module._mollifier.layer(0).copies[0].register_forward_hook(lambda *given: calls.append(given))
    module(torch.randn(4, 2, 3))
    assert len(calls) == 1


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("used", ["output", "state", "first part of the state"])
def test_what_is_not_used_has_a_gradient_of_zero(kind, used):
    torch.manual_seed(1)
    module = getattr(mollifier.nn, f"Mollified{kind}")(5, 20, level=0.5)
    x = torch.randn(6, 3, 5, requires_grad=True)

    def grads(rest):
        torch.manual_seed(2)
        out, state = module(x)
        parts = state if kind == "LSTM" else (state,)
        mine = {"output": [out], "state": parts, "first part of the state": parts[:1]}[used]
        total = sum(each.square().sum() for each in mine)
        total = total + rest * sum((0.0 * each).sum() for each in (out, *parts)) if rest else total
        return torch.autograd.grad(total, [x, *module.parameters()])

    assert all(torch.equal(one, two) for one, two in zip(grads(0), grads(1), strict=True))
    assert grads(0)[0].abs().sum() > 0


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_short_sequences_cost_no_memory_of_the_longest(kind):
    module = getattr(mollifier.nn, f"Mollified{kind}")(8, 32, level=0.5)
    mine = {each.data_ptr() for each in module.parameters()}

    def kept(lengths):
        found = {}

        def pack(tensor):
            if tensor.data_ptr() not in mine:
                found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        x = nn.utils.rnn.pack_padded_sequence(torch.randn(40, len(lengths), 8), lengths)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            module(x)
        return sum(found.values())

    assert kept([40] + [1] * 39) < 0.1 * kept([40] * 40)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("level", [0.2, 0.9, 1.0])
@pytest.mark.parametrize("push", ["paper", "odds"])
def test_expected_values_and_their_first_two_derivatives_are_those_of_the_reference(kind, level, push, monkeypatch):
    torch.manual_seed(1)
    options = mollifier.nn.RecurrentOptions(push=push)
    module = getattr(mollifier.nn, f"Mollified{kind}")(
        9, 20, num_layers=2, bidirectional=True, level=level, options=options, dtype=torch.float64
    ).eval()
    x = torch.randn(7, 3, 9, dtype=torch.float64, requires_grad=True)
    before = torch.get_rng_state()

    def results():
        out, state = module(nn.utils.rnn.pack_padded_sequence(x, [7, 4, 1]))
        found = [out.data, *(state if kind == "LSTM" else [state])]
        inputs = [x, *module.parameters()]
        total = sum((k + each).square().sum() for k, each in enumerate(found))
        first = torch.autograd.grad(total, inputs, retain_graph=True, materialize_grads=True)
        (again,) = torch.autograd.grad(total, x, create_graph=True)
        second = torch.autograd.grad(again.square().sum(), inputs, materialize_grads=True)
        return [*found, *first, again, *second]

    got = results()
    monkeypatch.setattr(_recurrent, "_serves", lambda *_: False)
    assert_near(got, results(), 1e-9)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_gradcheck(kind):
    module = getattr(mollifier.nn, f"Mollified{kind}")(3, 4, level=0.5, dtype=torch.float64)
    x = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)

    def run(x):
        torch.manual_seed(2)
        return module(x)[0]

    assert torch.autograd.gradcheck(run, (x,))


def test_a_whole_module_uses_them_and_its_noise_follows_the_seed():
    lstm = mollifier.nn.MollifiedLSTM(6, 10, num_layers=2, bidirectional=True, level=0.5)
    x = torch.randn(7, 3, 6)
    torch.manual_seed(1)
    first = lstm(x)[0]
    torch.manual_seed(1)
    assert torch.equal(first, lstm(x)[0])
    assert not torch.equal(first, lstm(x)[0])
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiled:
        lstm(x)
    assert {"mollifier::recurrent"} <= {event.key for event in profiled.key_averages()}


def test_nan_is_not_hidden():
    gru = mollifier.nn.MollifiedGRU(3, 4, level=0.5, options=mollifier.nn.RecurrentOptions(copy=False))
    x = torch.randn(5, 2, 3)
    x[2, 0, 1] = float("nan")
    out, _ = gru(x)
    assert out[2:, 0].isnan().all()
    assert not out[:2].isnan().any()
    assert not out[:, 1].isnan().any()
