"""The linear layer with its unit, dense and sparse, against the reference with the same noise."""

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.nn import functional as F

from mollifier import kernels
from mollifier.activations import activation
from mollifier.kernels import _linear
from tests.kernels.native.helpers import TOLERANCE, as_double, assert_near, noise_of, unit_reference


@given(
    rows=st.integers(1, 40),
    sizes=st.tuples(st.integers(1, 70), st.integers(0, 50)),
    steps=st.sampled_from([None, 3]),
    biased=st.booleans(),
    level=st.sampled_from([0.0, 0.75, 0.99]) | st.floats(0.0, 1.0),
    push=st.sampled_from(["paper", "odds"]),
    name=st.sampled_from(["sigmoid", "hard_sigmoid", "tanh", "relu", "gelu"]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 2**20),
)
@settings(max_examples=150)
def test_equals_the_reference_with_its_noise(rows, sizes, steps, biased, level, push, name, dtype, seed):
    if push == "odds":
        level = min(level, 0.99)
    torch.manual_seed(seed)
    few, many = sizes[0], sum(sizes)
    shape = (rows, few) if steps is None else (steps, rows, few)
    x = torch.randn(shape, dtype=dtype).requires_grad_()
    weight = (torch.randn(many, few, dtype=dtype) / few**0.5).requires_grad_()
    bias = torch.randn(many, dtype=dtype).requires_grad_() if biased else None
    a = torch.empty(many, dtype=dtype).uniform_(-2, 2).requires_grad_()
    act = activation(name)
    spec = kernels.Spec(kernels.struct(act), level, 20.0, push)
    torch.manual_seed(seed + 1)
    out = kernels.fused_linear(x, weight, bias, a, spec)
    grad = torch.randn_like(out)
    noise = noise_of(seed + 1, out.shape)
    used = [each for each in (x, weight, bias, a) if each is not None]
    got = torch.autograd.grad(out, used, grad)
    copied = as_double(x, weight, bias, a)
    reference = unit_reference(F.linear(*copied[:3]), copied[0], copied[3], act, spec, noise)
    wanted = torch.autograd.grad(reference, [each for each in copied if each is not None], grad.double())
    assert_near([out, *got], [reference, *wanted], 3 * TOLERANCE[dtype])


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_dense_and_sparse_are_the_same_function(level, monkeypatch):
    x, weight, bias = torch.randn(90, 64, requires_grad=True), torch.randn(128, 64) / 8, torch.randn(128)
    a = torch.empty(128).uniform_(-2, 2)
    results = []
    for first in (0.0, 2.0):  # sparse at every level, then at none
        monkeypatch.setattr(_linear, "SPARSE_FROM", first)
        torch.manual_seed(5)
        out = kernels.fused_linear(x, weight, bias, a, kernels.Spec(kernels.struct(activation("sigmoid")), level, 20.0))
        results.append([out, *torch.autograd.grad(out.square().sum(), x)])
    assert_near(results[0], results[1], 2e-5)


def test_what_needs_no_gradient_gets_none():
    x, weight = torch.randn(5, 4), torch.randn(6, 4, requires_grad=True)
    for level in (0.5, 0.9):
        spec = kernels.Spec(kernels.struct(activation("tanh")), level, 20.0)
        out = kernels.fused_linear(x, weight, None, torch.ones(6), spec)
        out.sum().backward()
    assert weight.grad is not None
    assert x.grad is None
