"""Algorithm 1 and the copy mix as functions: their limits, their bounds, and the paper's own lines."""

import math

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from mollifier.activations import activation, names
from mollifier.functional import copy_mix, noisy_activation, noisy_gate
from tests.helpers import doubles

NAMES = names()
MODES = ["sample", "expected", "exact"]
X = torch.linspace(-9.0, 9.0, 181)
levels = st.floats(0.0, 1.0)
numbers = st.floats(-30.0, 30.0)
# one unit: x, a and ξ
units = st.lists(st.tuples(numbers, st.floats(-2.0, 2.0), st.floats(-5.0, 5.0)), min_size=1, max_size=20)


def columns(rows: list[tuple[float, ...]]) -> list[Tensor]:
    return [doubles(list(column)) for column in zip(*rows, strict=True)]


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


# f and u as the paper (or the definition) writes them, for what lies inside its tangent
LITERAL = {
    "sigmoid": (sigmoid, lambda x: 0.25 * x + 0.5),
    "hard_sigmoid": (lambda x: torch.clip(0.25 * x + 0.5, 0, 1), lambda x: 0.25 * x + 0.5),
    "tanh": (lambda x: 2 * sigmoid(2 * x) - 1, lambda x: x),
    "hardtanh": (lambda x: torch.clip(x, -1, 1), lambda x: x),
    "relu": (lambda x: torch.where(x > 0, x, 0.0), lambda x: x),
    "softsign": (lambda x: x / (1 + abs(x)), lambda x: x),
    "leaky_relu": (lambda x: torch.where(x > 0, x, 0.01 * x), lambda x: x),
    "elu": (lambda x: torch.where(x > 0, x, torch.exp(x) - 1), lambda x: x),
}


def algorithm_1(name: str, x: Tensor, a: Tensor, c: float, p: float, xi: Tensor) -> Tensor:
    """Lines 2 to 6 of Algorithm 1, word for word."""
    f, u = LITERAL[name]
    zero = torch.zeros_like(x)
    delta = u(x) - f(x)
    sigma = (sigmoid(a * delta) - 0.5) ** 2
    s = p * c * sigma * abs(xi)
    f_star, u_star = f(x) - f(zero), u(x) - u(zero)
    sgn = torch.sign(u_star)
    return sgn * torch.minimum(abs(u_star), abs(f_star + sgn * abs(s))) + u(zero)


@pytest.mark.parametrize("name", LITERAL)
@given(units=units, p=levels, c=st.floats(0.0, 200.0))
def test_it_is_algorithm_1(name, units, p, c):
    x, a, xi = columns(units)
    psi = noisy_activation(x, name, level=p, a=a, c=c, noise=xi)
    torch.testing.assert_close(psi, algorithm_1(name, x, a, c, p, xi), rtol=1e-12, atol=1e-11)


@given(units=units, p=levels, c=st.floats(0.0, 200.0))
def test_relu_is_the_form_of_the_appendix(units, p, c):
    x, a, xi = columns(units)
    sigma = (sigmoid(a * (x - torch.relu(x))) - 0.5) ** 2
    s = torch.minimum(abs(x), p * c * sigma * abs(xi))
    psi = noisy_activation(x, "relu", level=p, a=a, c=c, noise=xi)
    torch.testing.assert_close(psi, torch.relu(x) - s, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("name", NAMES)
@given(units=units, p=levels, c=st.floats(0.0, 1e6), mode=st.sampled_from(["frozen", *MODES]))
def test_psi_lies_between_f_and_u(name, units, p, c, mode):
    """Also for silu, gelu and mish, which are not monotone: the push goes straight from f to u, on whichever side u is."""
    x, a, xi = columns(units)
    act = activation(name)
    f, u = act.f(x), act.u(x)
    psi = noisy_activation(x, name, level=p, a=a, c=c, noise=xi if mode == "frozen" else mode)
    rounding = 1e-14 * (1 + f.abs() + u.abs())
    assert (psi >= torch.minimum(f, u) - rounding).all()
    assert (psi <= torch.maximum(f, u) + rounding).all()


@pytest.mark.parametrize("name", ["silu", "gelu", "mish"])
@given(units=units, p=st.floats(0.01, 1.0), more=st.floats(1.0, 10.0))
def test_without_monotony_more_noise_still_comes_nearer_to_u(name, units, p, more):
    x, a, xi = columns(units)
    u = activation(name).u(x)
    little, much = (noisy_activation(x, name, level=p, a=a, c=c, noise=xi) for c in (5.0, 5.0 * more))
    assert ((u - much).abs() <= (u - little).abs() + 1e-12).all()
    assert ((u - much) * (u - little) >= -1e-12).all()  # and never passes it


@pytest.mark.parametrize("push", ["paper", "odds"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("level", [0.0, torch.tensor(0.0, dtype=torch.float64)], ids=["float", "tensor"])
@pytest.mark.parametrize("name", NAMES)
def test_level_0_is_f_bit_for_bit(name, level, dtype, push):
    x = X.to(dtype, copy=True).requires_grad_()  # (0 is among them, where some have a kink)
    for mode in MODES:
        psi = noisy_activation(x, name, level=level, a=torch.linspace(-2, 2, 181), noise=mode, push=push)
        plain = activation(name).f(x)
        assert torch.equal(psi, plain)
        assert torch.equal(*(torch.autograd.grad(out.sum(), x)[0] for out in (psi, plain)))


@pytest.mark.parametrize("name", NAMES)
@given(xs=st.lists(numbers, min_size=1, max_size=20), a=st.floats(0.1, 2.0), sign=st.sampled_from([-1.0, 1.0]))
def test_with_large_noise_psi_goes_to_u_as_p_goes_to_1(name, xs, a, sign):
    x = doubles(xs)
    psi = noisy_activation(x, name, level=1 - 1e-9, a=sign * a, c=1e12, noise="expected")
    # σ vanishes with the square of the gap, so that gaps below about 16 / (c a²) stay open
    torch.testing.assert_close(psi, activation(name).u(x), rtol=1e-12, atol=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_a_small_level_changes_little(name):
    x = X.double()
    psi = noisy_activation(x, name, level=1e-9, a=1.0, noise="expected")
    torch.testing.assert_close(psi, activation(name).f(x), rtol=0, atol=1e-8)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NAMES)
def test_by_the_odds_level_1_is_u_with_finite_gradients(name, mode):
    x = X.to(torch.float64, copy=True).requires_grad_()
    a = torch.linspace(-2, 2, 181, dtype=torch.float64, requires_grad=True)
    level = torch.tensor(1.0, dtype=torch.float64)
    psi = noisy_activation(x, name, level=level, a=a, noise=mode, push="odds")
    assert torch.equal(psi, activation(name).u(x))
    psi.sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, activation(name).slope))
    assert torch.equal(a.grad, torch.zeros_like(a))


@given(units=units, p=st.floats(0.0, 0.999))
def test_by_the_odds_is_the_papers_push_at_another_c(units, p):
    x, a, xi = columns(units)
    odds = noisy_activation(x, "tanh", level=p, a=a, c=20.0, noise=xi, push="odds")
    paper = noisy_activation(x, "tanh", level=1.0, a=a, c=20.0 * p / (1 - p), noise=xi)
    torch.testing.assert_close(odds, paper, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_expected_plugs_in_the_mean_of_the_half_normal(name):
    x = X.double()
    plugged = torch.full_like(x, math.sqrt(2 / math.pi))
    expected = noisy_activation(x, name, level=0.6, a=1.3, noise="expected")
    assert torch.equal(expected, noisy_activation(x, name, level=0.6, a=1.3, noise=plugged))


def test_only_the_size_of_a_and_of_the_noise_matter():
    x, xi = X.double(), torch.randn(181, dtype=torch.float64)
    one = noisy_activation(x, "sigmoid", level=0.5, a=1.7, noise=xi)
    assert torch.equal(one, noisy_activation(x, "sigmoid", level=0.5, a=-1.7, noise=-xi))
    assert torch.equal(noisy_activation(x, "sigmoid", level=0.5, a=0.0, noise=xi), torch.sigmoid(x))


def test_a_is_per_unit_and_c_and_p_may_be_tensors():
    x, a, xi = torch.randn(5, 3), torch.tensor([0.0, 1.0, 2.0]), torch.randn(5, 3)
    whole = noisy_activation(x, "tanh", level=torch.tensor(0.5), a=a, c=torch.tensor(20.0), noise=xi)
    for unit in range(3):
        one = noisy_activation(x[:, unit], "tanh", level=0.5, a=float(a[unit]), c=20.0, noise=xi[:, unit])
        torch.testing.assert_close(whole[:, unit], one)


@pytest.mark.parametrize("name", NAMES)
def test_far_from_0_it_lies_between_the_activation_and_its_tangent(name):
    act = activation(name)
    x = torch.tensor([-1e30, -1e4, 1e4, 1e30], requires_grad=True)
    f, u = act.f(x), act.u(x)
    for mode in MODES:
        psi = noisy_activation(x, name, level=0.5, a=2.0, noise=mode)
        slack = 1e-6 * (f.abs() + u.abs())
        assert (torch.minimum(f, u) - slack <= psi).all()
        assert (psi <= torch.maximum(f, u) + slack).all()
        slope = torch.autograd.grad(psi.sum(), x, retain_graph=True)[0]
        assert (slope.abs() <= 3.0).all()  # that of f, of u, or of f and the growing push


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("target", [0.0, 1.0])
def test_a_gate_at_the_ends_is_the_same_in_every_precision(dtype, target):
    """Half precision rounds 1 - 1e-4 to 1, whose logit is infinite: a draw of 0 then gave NaN, and so did the gradient."""
    x = torch.linspace(-2, 2, 5, dtype=dtype).requires_grad_()
    xi = torch.tensor([0.0, 0.5, 1.0, 2.0, 3.0], dtype=dtype)
    out = noisy_gate(x, target, level=0.5, noise=xi)
    (slope,) = torch.autograd.grad(out.sum(), x)
    exact = noisy_gate(y := x.detach().double().requires_grad_(), target, level=0.5, noise=xi.double())
    (exact_slope,) = torch.autograd.grad(exact.sum(), y)
    torch.testing.assert_close(out.detach().double(), exact.detach(), rtol=0, atol=0.01)
    torch.testing.assert_close(slope.double(), exact_slope, rtol=0.02, atol=0.02)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match=r"the input is torch.complex64, .*mollify\(model, exclude=…\)"):
        noisy_activation(torch.zeros(3, dtype=torch.complex64), "tanh", level=0.5, a=1.0)
    with pytest.raises(ValueError, match=r"noise='mean': expected 'sample', 'expected', 'exact' or a tensor of normal"):
        noisy_activation(X, "tanh", level=0.5, a=1.0, noise="mean")
    with pytest.raises(ValueError, match=r"push='hard': expected 'paper' or 'odds'"):
        noisy_activation(X, "tanh", level=0.5, a=1.0, push="hard")
    with pytest.raises(ValueError, match=r"noise='mean': .* tensor of uniform draws"):
        copy_mix(X, X, level=0.5, noise="mean")
    with pytest.raises(ValueError, match=r"below has shape \(2, 3\), above \(2, 4\)"):
        copy_mix(torch.zeros(2, 3), torch.zeros(2, 4), level=0.5)
