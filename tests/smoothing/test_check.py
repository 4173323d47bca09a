"""The definition of a mollifier, and which functions meet it."""

import math

import pytest
import torch
from torch import Generator, Tensor

from mollifier.functional import copy_mix, noisy_activation, noisy_gate
from mollifier.nn import Sign, Step
from mollifier.smoothing import check_mollifier

KERNEL = (1e-4, 0.05, 0.5, 2.0, 10.0, 1e4)  # σ of a kernel runs to infinity
WEIGHT = torch.tensor([[0.9, -0.4, 0.3], [0.2, 1.1, -0.7], [-0.5, 0.6, 0.8]], dtype=torch.float64)


def phi(z: Tensor) -> Tensor:
    return 0.5 * (1 + torch.erf(z / math.sqrt(2)))


def step(x: Tensor) -> Tensor:
    return (x >= 0).to(x.dtype)


def test_gaussian_convolutions_of_functions_without_a_derivative_pass() -> None:
    assert check_mollifier(lambda x, s: phi(x / s), step, sigmas=KERNEL).ok
    smoothed = lambda x, s: x * phi(x / s) + s * torch.exp(-0.5 * (x / s) ** 2) / math.sqrt(2 * math.pi)  # noqa: E731
    assert check_mollifier(smoothed, torch.relu, sigmas=KERNEL).ok
    noisy = lambda x, s, g: torch.relu(x - s * torch.randn(x.shape, generator=g, dtype=x.dtype))  # noqa: E731
    assert check_mollifier(smoothed, torch.relu, noisy=noisy, sigmas=KERNEL, strict=True).ok


@pytest.mark.parametrize("name", ["sigmoid", "tanh"])
def test_the_noisy_activation_passes(name: str) -> None:
    def mean(x: Tensor, p: float) -> Tensor:
        return noisy_activation(x, name, level=p, a=1.0, noise="exact", push="odds")

    def noisy(x: Tensor, p: float, generator: Generator) -> Tensor:
        return noisy_activation(x, name, level=p, a=1.0, push="odds", generator=generator)

    report = check_mollifier(mean, getattr(torch, name), noisy=noisy, easy="affine")
    assert report.ok, str(report)
    assert len(report.properties) == 4


def block(x: Tensor, p: float, noise: str, generator: Generator | None = None) -> Tensor:
    psi = noisy_activation(x @ WEIGHT, "tanh", level=p, a=1.0, noise=noise, generator=generator)
    return copy_mix(x, psi, level=p, noise=noise, generator=generator)


def test_the_block_with_its_copy_passes() -> None:
    report = check_mollifier(
        lambda x, p: block(x, p, "exact"),
        lambda x: torch.tanh(x @ WEIGHT),
        noisy=lambda x, p, g: block(x, p, "sample", g),
        easy="identity",
        dim=3,
    )
    assert report.ok, str(report)


@pytest.mark.parametrize("target", [0.25, 1.0])
def test_the_recurrent_gate_passes(target: float) -> None:
    def constant(x: Tensor) -> Tensor:
        return torch.full_like(x, target)

    plug_in = check_mollifier(
        lambda x, p: noisy_gate(x, target, level=p, noise="expected"), torch.sigmoid, easy=constant
    )
    unbiased = check_mollifier(
        lambda x, p: noisy_gate(x, target, level=p, noise="exact", unbiased=True),
        torch.sigmoid,
        noisy=lambda x, p, g: noisy_gate(x, target, level=p, unbiased=True, generator=g),
        easy=constant,
    )
    assert plug_in.ok, str(plug_in)
    assert unbiased.ok, str(unbiased)


@pytest.mark.parametrize("kind", [Step, Sign])
def test_binary_units_pass(kind: type[Step] | type[Sign]) -> None:
    unit = kind().double()

    def mean(x: Tensor, p: float) -> Tensor:
        unit.set_level(p)
        return unit.eval()(x)

    def noisy(x: Tensor, p: float, generator: Generator) -> Tensor:
        unit.set_level(p)
        return unit.train()(x)

    levels = (1e-14, 0.01, 0.1, 0.5, 0.9, 1.0)  # the width goes with the fourth root
    report = check_mollifier(
        mean, kind(level=0), noisy=noisy, sigmas=levels, easy=lambda x: unit.slope * x + 0.5 * (1 + unit.low)
    )
    assert report.ok, str(report)


def test_what_is_known_to_fall_short() -> None:
    """Facts of the method that the card states."""

    def activation(name: str, noise: str, push: str):
        return lambda x, p: noisy_activation(x, name, level=p, a=1.0, noise=noise, push=push)

    # Algorithm 1 with finite c and without the copy does not reach its tangent
    assert check_mollifier(activation("tanh", "exact", "paper"), torch.tanh, easy="affine").failed == ["easy"]
    # the plug-in mean E|ξ| has a kink where the push meets the tangent; the true mean has none
    assert check_mollifier(activation("tanh", "expected", "odds"), torch.tanh, easy="affine").failed == [
        "differentiable"
    ]
    # the noise leaves the ReLU its kink, since it vanishes at 0
    assert check_mollifier(activation("relu", "exact", "odds"), torch.relu, easy="affine").failed == ["differentiable"]
    # the mean of the sampled gate, clipped by f, is not the target at level 1
    gate = lambda x, p: noisy_gate(x, 0.25, level=p, noise="exact")  # noqa: E731
    assert check_mollifier(gate, torch.sigmoid, easy="affine").failed == ["easy"]


def test_wrong_ones_fail_each_in_its_property() -> None:
    tanh = torch.tanh
    wrong = {
        "converges": lambda x, p: (1 - p) * tanh(x) + p * x + 0.01,
        "easy": lambda x, p: (1 - 0.9 * p) * tanh(x) + 0.9 * p * x,
        "differentiable": lambda x, p: (1 - p) * tanh(x) + p * x + 0.05 * p * (1 - p) * (x - 0.123).abs(),
    }
    for name, transform in wrong.items():
        assert check_mollifier(transform, tanh, easy="affine").failed == [name]
    jump = lambda x, p: (1 - p) * tanh(x) + p * x + 0.01 * p * (1 - p) * step(x - 1 / 3)  # noqa: E731
    assert check_mollifier(jump, tanh, easy="affine").failed == ["differentiable"]
    biased = check_mollifier(
        lambda x, p: (1 - p) * tanh(x) + p * x,
        tanh,
        noisy=lambda x, p, g: (1 - p) * tanh(x) + p * x + 0.1 * p * torch.rand(x.shape, generator=g),
    )
    assert biased.failed == ["expectation"]
    concave = lambda x, p: (1 - p) * tanh(x) - p * x.square()  # noqa: E731
    assert check_mollifier(concave, tanh).failed == ["easy"]
    assert check_mollifier(lambda x, p: (1 - p) * tanh(x) + p * x.square(), tanh).ok  # convex is enough…
    assert check_mollifier(lambda x, p: (1 - p) * tanh(x) + p * x.square(), tanh, easy="affine").failed == ["easy"]


def test_strict_raises_with_the_whole_report() -> None:
    with pytest.raises(ValueError, match=r"(?s)not a mollifier.*FAILS: converges.*holds: differentiable"):
        check_mollifier(lambda x, p: x.sin() + 1.0, torch.sin, strict=True)


def test_composition_of_mollifiers_is_one_where_their_limits_are_affine() -> None:
    def layer(x: Tensor, p: float) -> Tensor:
        return block(x, p, "exact")

    def plain(x: Tensor) -> Tensor:
        return torch.tanh(x @ WEIGHT)

    composed = check_mollifier(
        lambda x, p: layer(layer(layer(x, p), p), p), lambda x: plain(plain(plain(x))), dim=3, easy="identity"
    )
    assert composed.ok, str(composed)


def test_composition_of_noisy_mollifiers_is_one() -> None:
    """The mean of the composed draws (not the composition of the means) keeps both limits and is differentiable."""
    nodes, weights = torch.tensor([[-(3**0.5)], [0.0], [3**0.5]]).double(), torch.tensor([1 / 6, 2 / 3, 1 / 6]).double()

    # noise of three values, so that the mean over both layers is a sum of nine terms
    def noisy(x: Tensor, p: float, xi: Tensor) -> Tensor:
        return (1 - p) * torch.tanh(x + p * xi) + p * x

    def mean(x: Tensor, p: float) -> Tensor:
        inner = [noisy(x, p, xi) for xi in nodes]
        return sum(weights[i] * weights[j] * noisy(inner[i], p, nodes[j]) for i in range(3) for j in range(3))  # type: ignore[return-value]

    def draws(x: Tensor, p: float, generator: Generator) -> Tensor:
        for _ in range(2):
            x = noisy(x, p, nodes[torch.multinomial(weights, len(x), True, generator=generator)])
        return x

    report = check_mollifier(mean, lambda x: torch.tanh(torch.tanh(x)), noisy=draws, easy="identity")
    assert report.ok, str(report)


def test_the_claim_of_composition_needs_more_than_convex_limits() -> None:
    """As printed it is too strong: -x is convex and so is x², but -x² is not."""
    square = lambda x, p: (1 - p) * torch.tanh(x) + p * x.square()  # noqa: E731
    minus = lambda x, p: (1 - p) * torch.tanh(x) - p * x  # noqa: E731
    assert check_mollifier(square, torch.tanh).ok
    assert check_mollifier(minus, torch.tanh).ok
    both = check_mollifier(lambda x, p: minus(square(x, p), p), lambda x: torch.tanh(torch.tanh(x)))
    assert both.failed == ["easy"]


def test_bad_questions() -> None:
    with pytest.raises(ValueError, match="at least three increasing numbers"):
        check_mollifier(lambda x, p: x, torch.abs, sigmas=(1.0, 0.5))
    with pytest.raises(ValueError, match="easy='flat'"):
        check_mollifier(lambda x, p: x, torch.abs, easy="flat")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="shape"):
        check_mollifier(lambda x, p: x.sum(), torch.abs)
