"""The noisy gate: its limits, its sampled mean against quadrature, its gradient, and the unbiased one."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, strategies as st
from scipy import integrate

from mollifier.functional import Gate, noisy_gate

GATES: dict[Gate, tuple[Callable[[float], float], Callable[[float], float]]] = {
    "sigmoid": (
        lambda x: 0.5 * (1.0 + math.tanh(0.5 * x)),
        lambda y: math.log(min(max(y, 1e-4), 1 - 1e-4) / (1.0 - min(max(y, 1e-4), 1 - 1e-4))),
    ),
    "hard_sigmoid": (lambda x: min(1.0, max(0.0, 0.25 * x + 0.5)), lambda y: 4.0 * (y - 0.5)),
}
MEAN = math.sqrt(2.0 / math.pi)
every_gate = pytest.mark.parametrize("gate", GATES)


def true_mean(gate: Gate, x: float, target: float, level: float) -> float:
    """E f(x + p (f⁻¹(γ) - x) |ξ| / E|ξ|) by adaptive quadrature, with its kinks named."""
    f, inverse = GATES[gate]
    pull = level * (inverse(target) - x) / MEAN
    kinks = [(at - x) / pull for at in (-2.0, 0.0, 2.0)] if pull else []
    points = sorted(r for r in kinks if 0.0 < r < 10.0) or None

    def density(r: float) -> float:
        return f(x + pull * r) * MEAN * math.exp(-0.5 * r * r)

    return integrate.quad(density, 0.0, 10.0, points=points, limit=400, epsabs=1e-12)[0]


def doubles(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@every_gate
@given(x=st.floats(-8, 8), target=st.floats(0, 1), level=st.floats(0, 1))
def test_exact_mean_is_the_quadratures(gate: Gate, x: float, target: float, level: float) -> None:
    got = noisy_gate(doubles(x), target, gate, level=level, noise="exact")
    tolerance = 1e-9 if gate == "hard_sigmoid" else 3e-6  # closed form; 64 nodes
    assert abs(float(got) - true_mean(gate, x, target, level)) < tolerance


@every_gate
@pytest.mark.parametrize("target", [1.0, 0.5, 0.02, 0.0])
@pytest.mark.parametrize("level", [1.0, 0.4])
def test_sampled_mean_is_the_exact_one(gate: Gate, target: float, level: float) -> None:
    count = 200_000
    for x in (-3.0, 0.2, 2.5):
        sampled = noisy_gate(torch.full((count,), x, dtype=torch.float64), target, gate, level=level)
        assert abs(float(sampled.mean()) - true_mean(gate, x, target, level)) < 5 * float(sampled.std()) / count**0.5


def test_clipping_biases_the_sampled_gate() -> None:
    """READING: at p = 1, over x ~ N(0, 1), γ = 1 gives 0.85 and γ = 0.02 gives 0.16; the plug-in value is γ itself."""
    for target, printed in ((1.0, 0.85), (0.02, 0.16)):

        def weighted(x: float, target: float = target) -> float:
            return true_mean("hard_sigmoid", x, target, 1.0) * math.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)

        mean = integrate.quad(weighted, -8.0, 8.0, limit=200, epsabs=1e-6)[0]
        assert round(mean, 2) == printed
        torch.manual_seed(0)
        sampled = noisy_gate(torch.randn(400_000), target, "hard_sigmoid", level=1.0)
        assert abs(float(sampled.mean()) - mean) < 3e-3
        assert noisy_gate(
            torch.randn(3), target, "hard_sigmoid", level=1.0, noise="expected"
        ).tolist() == pytest.approx([target] * 3, abs=1e-7)


@every_gate
def test_expected_gate_goes_from_itself_to_its_target(gate: Gate) -> None:
    x = torch.linspace(-6, 6, 41, dtype=torch.float64)
    for target in (0.0, 1 / 3, 1.0):
        plain = noisy_gate(x, target, gate, level=0.0, noise="expected")
        f = torch.sigmoid if gate == "sigmoid" else lambda z: (0.25 * z + 0.5).clamp(0, 1)
        assert torch.equal(plain, f(x))
        assert torch.equal(noisy_gate(x, target, gate, level=1.0, noise="expected"), torch.full_like(x, target))
        middle = noisy_gate(x, target, gate, level=0.5, noise="expected")
        low, high = torch.minimum(plain, doubles(target)), torch.maximum(plain, doubles(target))
        assert bool(((low - 1e-4 <= middle) & (middle <= high + 1e-4)).all())


@every_gate
@pytest.mark.parametrize("noise", ["sample", "expected", "exact"])
@pytest.mark.parametrize("unbiased", [False, True])
def test_level_zero_is_the_plain_gate_and_gradient(gate: Gate, noise: str, unbiased: bool) -> None:
    x = torch.randn(50, dtype=torch.float64, requires_grad=True)
    f = torch.sigmoid if gate == "sigmoid" else lambda z: (0.25 * z + 0.5).clamp(0, 1)
    got = noisy_gate(x, 0.3, gate, level=0.0, noise=noise, unbiased=unbiased)  # type: ignore[arg-type]
    torch.testing.assert_close(got, f(x), rtol=0, atol=1e-14)
    grads = [torch.autograd.grad(out.sum(), x)[0] for out in (got, f(x))]
    torch.testing.assert_close(*grads, rtol=0, atol=1e-14)


def slopes(unbiased: bool, level: float, count: int = 200_000) -> torch.Tensor:
    torch.manual_seed(0)
    x = torch.randn(count, dtype=torch.float64, requires_grad=True)
    out = noisy_gate(x, 0.5, "sigmoid", level=level, unbiased=unbiased)
    return torch.autograd.grad(out.sum(), x)[0]


def test_sampled_gradient_has_the_wrong_sign_for_42_percent() -> None:
    """The factor 1 - p|ξ|/E|ξ| is negative where |ξ| > E|ξ| / p."""
    wrong = math.erfc(MEAN / math.sqrt(2.0))
    assert round(wrong, 2) == 0.42
    assert float((slopes(False, 1.0) < 0).double().mean()) == pytest.approx(wrong, abs=5e-3)
    rarer = math.erfc(2.0 * MEAN / math.sqrt(2.0))
    assert float((slopes(False, 0.5) < 0).double().mean()) == pytest.approx(rarer, abs=5e-3)


@pytest.mark.parametrize("level", [1.0, 0.5, 0.1])
def test_unbiased_gradient_never_turns(level: float) -> None:
    found = slopes(True, level)
    assert bool((found >= 0).all())
    assert float((found > 0).double().mean()) == pytest.approx(1.0 - level, abs=5e-3)


@every_gate
@pytest.mark.parametrize("level", [1.0, 0.6, 0.0])
def test_unbiased_mean_is_exact(gate: Gate, level: float) -> None:
    f, _ = GATES[gate]
    for x, target in ((-3.0, 1.0), (0.5, 0.02), (2.5, 0.0)):
        want = level * target + (1 - level) * f(x)
        for noise in ("expected", "exact"):
            got = noisy_gate(doubles(x), target, gate, level=level, noise=noise, unbiased=True)
            assert float(got) == pytest.approx(want, abs=1e-15)
        many = noisy_gate(torch.full((100_000,), x, dtype=torch.float64), target, gate, level=level, unbiased=True)
        assert set(many.tolist()) <= {target, float(torch.sigmoid(doubles(x))) if gate == "sigmoid" else f(x)}
        assert float(many.mean()) == pytest.approx(want, abs=5e-3)


@every_gate
@pytest.mark.parametrize("noise", ["expected", "exact", "tensor"])
@pytest.mark.parametrize("level", [0.3, 0.9])
def test_gradcheck(gate: Gate, noise: str, level: float) -> None:
    x = torch.tensor([-5.1, -1.3, 0.4, 1.7, 6.2], dtype=torch.float64, requires_grad=True)
    draws = torch.randn(5, dtype=torch.float64) if noise == "tensor" else noise
    for target in (0.1, 1.0):
        assert torch.autograd.gradcheck(lambda z, t=target: noisy_gate(z, t, gate, level=level, noise=draws), x)


def test_bad_arguments_are_named() -> None:
    x = torch.zeros(2)
    with pytest.raises(ValueError, match="gate='tanh'"):
        noisy_gate(x, 0.5, "tanh", level=0.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="noise='mean'"):
        noisy_gate(x, 0.5, level=0.5, noise="mean")  # type: ignore[arg-type]
