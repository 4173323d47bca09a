"""What the kernels leave alone, and what does not depend on threads: determinism, resuming, denormals, saved bytes."""

import copy

import pytest
import torch
from torch import nn

import mollifier
from mollifier import kernels
from mollifier.activations import activation
from tests.kernels.native.helpers import assert_near


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def unit_results():
    torch.manual_seed(0)
    x, below = torch.randn(600, 300, requires_grad=True), torch.randn(600, 200, requires_grad=True)
    a = torch.empty(300).uniform_(-2, 2).requires_grad_()
    spec = kernels.Spec(kernels.struct(activation("sigmoid")), 0.5, 20.0, "paper", -1, 200)
    out = kernels.fused_unit(x, below, a, spec)
    return [out, *torch.autograd.grad(out.square().sum(), [x, below, a])]


def sparse_results():
    torch.manual_seed(0)
    x, weight = torch.randn(600, 100, requires_grad=True), torch.randn(150, 100, requires_grad=True)
    a, bias = torch.empty(150).uniform_(-2, 2).requires_grad_(), torch.randn(150, requires_grad=True)
    out = kernels.fused_linear(x, weight, bias, a, kernels.Spec(kernels.struct(activation("tanh")), 0.9, 20.0))
    return [out, *torch.autograd.grad(out.square().sum(), [x, weight, bias, a])]


def recurrent_results():
    torch.manual_seed(0)
    gru = mollifier.nn.MollifiedGRU(40, 160, level=0.5, dtype=torch.float64)
    x = torch.randn(9, 30, 40, dtype=torch.float64, requires_grad=True)
    out, h = gru(x)
    return [out, h, *torch.autograd.grad(out.square().sum() + h.sum(), [x, *gru.parameters()])]


@pytest.mark.parametrize("results", [unit_results, sparse_results])
def test_bit_for_bit_the_same_on_one_thread_and_two(results, threads):
    threads(1)
    one = results()
    threads(2)
    two = results()
    assert all(torch.equal(x, y) for x, y in zip(one, two, strict=True))


def test_recurrent_noise_is_the_same_on_one_thread_and_two(threads):
    # the matrix product is torch's, and may round differently on two threads
    threads(1)
    one = recurrent_results()
    threads(2)
    assert_near(recurrent_results(), one, 1e-12)


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
    spec = kernels.Spec(kernels.struct(activation("sigmoid")), 0.5, 20.0, "paper", unit_dim, shape[unit_dim])
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        kernels.fused_unit(x, below, a, spec)
    assert sum(kept.values()) / x.numel() < most
