"""What the kernels leave alone, and what does not depend on threads: determinism, resuming, denormals, saved bytes."""

import copy
from functools import partial

import pytest
import torch
from torch import nn

import mollifier
from mollifier import ops
from mollifier.activations import activation
from tests.ops.helpers import Spec, unit


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def unit_results():
    torch.manual_seed(0)
    x, below = torch.randn(600, 300, requires_grad=True), torch.randn(600, 200, requires_grad=True)
    a = torch.empty(300).uniform_(-2, 2).requires_grad_()
    spec = Spec(activation("sigmoid"), 0.5, 20.0, "paper", -1, 200)
    out = unit(x, below, a, spec)
    return [out, *torch.autograd.grad(out.square().sum(), [x, below, a])]


def sparse_results():
    torch.manual_seed(0)
    x, weight = torch.randn(600, 100, requires_grad=True), torch.randn(150, 100, requires_grad=True)
    a, bias = torch.empty(150).uniform_(-2, 2).requires_grad_(), torch.randn(150, requires_grad=True)
    link = ops.Link(weight, bias, a, activation("tanh"), *[torch.tensor(0.9)] * 2)
    out = ops.chain(x, [link])
    return [out, *torch.autograd.grad(out.square().sum(), [x, weight, bias, a])]


def recurrent_results(kind="GRU", bidirectional=False):
    torch.manual_seed(0)
    module = getattr(mollifier.nn, f"Mollified{kind}")(40, 165, num_layers=2, bidirectional=bidirectional, level=0.5)
    x = torch.randn(9, 30, 40, requires_grad=True)
    lengths = torch.arange(30) % 9 + 1  # of every length
    out, state = module(nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False))
    results = [out.data, *(state if kind == "LSTM" else [state])]
    loss = sum((number + each).square().sum() for number, each in enumerate(results))
    return [*results, *torch.autograd.grad(loss, [x, *module.parameters()])]


RECURRENT = [
    pytest.param(
        partial(recurrent_results, kind, bidirectional), id=f"{kind}-{'two-ways' if bidirectional else 'one-way'}"
    )
    for kind in ("LSTM", "GRU")
    for bidirectional in (False, True)
]


@pytest.mark.parametrize("results", [unit_results, sparse_results, *RECURRENT])
def test_bit_for_bit_the_same_on_any_number_of_threads(results, threads):
    threads(1)
    one = results()
    for count in (2, 3, 5):
        threads(count)
        assert all(torch.equal(x, y) for x, y in zip(one, results(), strict=True))


@pytest.mark.parametrize("kind", ["mlp", "lstm"])
def test_resuming_in_the_middle_is_bit_for_bit(kind):
    def build():
        torch.manual_seed(4)
        if kind == "lstm":
            return mollifier.nn.MollifiedLSTM(6, 12, num_layers=2, level=0.8)
        model = nn.Sequential(nn.Linear(6, 32), nn.Sigmoid(), nn.Linear(32, 32), nn.Sigmoid(), nn.Linear(32, 2))
        return mollifier.mollify(model, level=0.8)

    def train(model, optimizer, steps):
        for _ in range(steps):
            optimizer.zero_grad()
            out = model(torch.randn(5, 4, 6) if kind == "lstm" else torch.randn(20, 6))
            (out[0] if kind == "lstm" else out).square().mean().backward()
            optimizer.step()

    whole = build()
    optimizer = torch.optim.Adam(whole.parameters(), 1e-2)
    torch.manual_seed(5)
    train(whole, optimizer, 3)
    kept = copy.deepcopy((whole.state_dict(), optimizer.state_dict(), torch.get_rng_state()))
    train(whole, optimizer, 3)

    resumed = build()
    again = torch.optim.Adam(resumed.parameters(), 1e-2)
    resumed.load_state_dict(kept[0])
    again.load_state_dict(kept[1])
    torch.set_rng_state(kept[2])
    train(resumed, again, 3)
    assert all(torch.equal(one, two) for one, two in zip(whole.parameters(), resumed.parameters(), strict=True))


def test_denormals_survive(threads):
    for count in (1, 2):
        threads(count)
        unit_results()
        sparse_results()
        recurrent_results()
        tiny = torch.full((1 << 20,), 1e-40)
        assert ((tiny * 0.5) > 0).all()  # on every thread of the pool
        assert 5e-324 * 1.0 > 0


@pytest.mark.parametrize(("shape", "most"), [((128, 200), 8.1), ((64, 64, 24, 24), 4.1)])
def test_bytes_kept_for_the_backward_pass(shape, most):
    kept = {}

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    x, below = torch.randn(shape, requires_grad=True), torch.randn(shape, requires_grad=True)
    unit_dim = -1 if len(shape) == 2 else -3
    a = torch.ones(shape[unit_dim], requires_grad=True)
    spec = Spec(activation("sigmoid"), 0.5, 20.0, "paper", unit_dim, shape[unit_dim])
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        unit(x, below, a, spec)
    assert sum(kept.values()) / x.numel() < most
