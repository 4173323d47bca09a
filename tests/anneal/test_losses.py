"""Unusual losses: spikes, zeros, and losses below 0."""

import math
import warnings

import pytest
import torch
from torch import nn

import mollifier
from tests.helpers import mlp


def model(depth: int = 3) -> nn.Module:
    return mollifier.mollify(mlp(4, *[5] * depth, 1))


def paper(k: float, v: float, t: int, layers: int = 3) -> list[float]:
    return [-math.expm1(-k * v * layer / (t * layers)) for layer in range(1, layers + 1)]


def noisy(t: int, noise: float, generator: torch.Generator) -> float:
    """A falling loss with log-normal noise."""
    return (0.1 + 0.6 * 0.999**t) * math.exp(noise * float(torch.randn((), generator=generator)))


@pytest.mark.parametrize(("noise", "tolerance"), [(0.1, 1e-12), (0.5, 1e-12), (1.0, 0.05)])
def test_ordinary_noise_leaves_the_papers_formula_as_it_is(noise, tolerance):
    generator = torch.Generator().manual_seed(0)
    annealer = mollifier.Annealer(model(), k=100.0, stop_at=0.05)
    average, largest = 0.0, 0.0
    for t in range(1, 1001):
        loss = noisy(t, noise, generator)
        average = 0.99 * average + 0.01 * loss
        annealer.step(loss)
        literal = paper(100.0, average / (1 - 0.99**t), t)
        largest = max(largest, *(abs(a - b) for a, b in zip(annealer.levels, literal, strict=True)))
    assert not annealer.finished
    assert largest < tolerance


@pytest.mark.parametrize("spike", [1e3, 1e30])
@pytest.mark.parametrize("length", [1, 50])
def test_a_spike_does_not_throw_the_levels_back(spike, length):
    annealer = mollifier.Annealer(model(), k=100.0)
    for _ in range(400):
        annealer.step(0.7)
    before = annealer.levels
    for _ in range(length):
        annealer.step(spike)
        for level, low in zip(annealer.levels, before, strict=True):
            assert level <= -math.expm1(1.25 * math.log1p(-low)) + 1e-12  # a quarter more at most
    after = mollifier.Annealer(model(), k=100.0)
    for _ in range(400 + length):
        after.step(0.7)
    for _ in range(1600):
        annealer.step(0.7)
        after.step(0.7)
    assert annealer.finished or annealer.levels == pytest.approx(after.levels, rel=0.05)


def test_one_spike_does_not_poison_the_average():
    annealer = mollifier.Annealer(model(), k=1e4)
    for _ in range(500):
        annealer.step(0.7)
    annealer.step(1e30)
    assert annealer.loss_average < 0.7 * 1.1
    for _ in range(200):
        annealer.step(0.7)
    assert annealer.loss_average == pytest.approx(0.7, rel=0.02)


def test_without_the_guard_it_is_the_papers_formula_to_the_letter():
    annealer = mollifier.Annealer(model(), k=100.0, loss_average=0.9, guard=False)
    average = 0.0
    for t in range(1, 300):
        loss = 1e30 if t == 200 else 0.7
        average = 0.9 * average + 0.1 * loss
        annealer.step(loss)
        assert annealer.levels == pytest.approx(paper(100.0, average / (1 - 0.9**t), t), rel=1e-9)
    assert annealer.levels == [1.0, 1.0, 1.0]


def test_a_real_rise_is_followed_by_the_average():
    annealer = mollifier.Annealer(model(), k=1e4)
    for _ in range(200):
        annealer.step(0.01)
    for _ in range(700):
        annealer.step(5.0)
    assert annealer.loss_average == pytest.approx(5.0, rel=0.01)


@pytest.mark.parametrize("loss", [-1.0, torch.tensor(-3.0)])
def test_a_negative_loss_is_left_out_and_said_so(loss):
    annealer, clean = (mollifier.Annealer(model(), k=10.0) for _ in range(2))
    annealer.step(0.5)
    clean.step(0.5)
    with pytest.warns(RuntimeWarning, match=r"below 0 .*pass loss - lower_bound .*loss_average=None"):
        annealer.step(loss)
    clean.step()
    assert annealer.levels == clean.levels
    assert all(0 < level < 1 for level in annealer.levels)
    assert not annealer.finished
    assert annealer.skipped_losses == 1
    annealer.step(loss)  # and only once: warnings are errors here


def test_where_all_losses_are_negative_v_is_1():
    annealer, fixed = mollifier.Annealer(model(), k=10.0), mollifier.Annealer(model(), k=10.0, loss_average=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for _ in range(20):
            annealer.step(-5.0)
            fixed.step(-5.0)
    assert annealer.levels == fixed.levels


def test_schedules_that_do_not_need_a_positive_loss_take_any():
    seen = []
    own = mollifier.Annealer(model(), lambda t, layer, layers, v: seen.append(v) or 0.5)
    linear = mollifier.Annealer(model(), "linear", horizon=10)
    for annealer in (own, linear):
        annealer.step(-2.0)  # warnings are errors here
        assert annealer.loss_average == pytest.approx(-2.0)
    assert seen == pytest.approx([-2.0] * 3)


def test_zeros_before_any_other_loss_do_not_end_annealing():
    annealer = mollifier.Annealer(model(), k=10.0)
    for t in range(1, 4):
        annealer.step(0.0)
        assert annealer.levels == pytest.approx(paper(10.0, 1.0, t))
    annealer.step(0.7)
    assert annealer.loss_average == pytest.approx(0.7)
    assert annealer.skipped_losses == 0


def test_a_training_that_has_reached_zero_goes_to_the_end():
    annealer = mollifier.Annealer(model(), k=100.0, loss_average=0.9)
    for _ in range(20):
        annealer.step(0.7)
    for _ in range(100):
        annealer.step(0.0)
    assert annealer.finished
    assert 20 < annealer.updates < 100
