"""A horizon binds: annealing ends at that update, whatever the losses were."""

import math
from itertools import pairwise

import pytest
import torch
from torch import nn

import mollifier
from mollifier.schedules import BUILT_IN, solve_k, timed_exponential
from tests.helpers import mlp

LOSSES = {
    "steady": lambda t: 0.7,
    "a high first one": lambda t: 1e4 if t == 1 else 1.0,
    "rising": lambda t: 1.05**t,
    "falling": lambda t: 0.9**t,
    "zero in the end": lambda t: 1.0 if t < 20 else 0.0,
    "zero": lambda t: 0.0,
    "none": lambda t: None,
    "spikes": lambda t: 1e30 if t % 7 == 0 else 0.5,
}


def model(depth: int = 3) -> nn.Module:
    return mollifier.mollify(mlp(4, *[5] * depth, 1))


def path(annealer: mollifier.Annealer, loss, updates: int = 500) -> list[list[float]]:
    seen = []
    while not annealer.finished and annealer.updates < updates:
        annealer.step(loss(annealer.updates + 1))
        seen.append(annealer.levels)
    return seen


@pytest.mark.parametrize("every", [1, 5, 7, 300])
@pytest.mark.parametrize("schedule", [*sorted(BUILT_IN), lambda t, layer, layers, v: 0.9])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_it_ends_at_the_horizon_and_not_before(schedule, every, loss):
    annealer = mollifier.Annealer(model(), schedule, horizon=100, every=every)
    seen = path(annealer, loss)
    assert len(seen) == annealer.updates == 100
    last = 100 // 9 + 1 if schedule == "front" else 1  # the last layer is plain a window before the horizon
    assert all(max(levels) > 0 for levels in seen[:-last])
    assert seen[-1] == [0.0, 0.0, 0.0]


def test_a_horizon_of_a_thousand_after_a_high_first_loss():
    annealer = mollifier.Annealer(model(6), "exponential", horizon=1000)
    seen = path(annealer, LOSSES["a high first one"], 2000)
    assert len(seen) == 1000
    assert sum(seen[29]) > 2.0  # it ended here, once
    assert sum(seen[499]) > 0.35  # above the threshold, which is 0.3


@pytest.mark.filterwarnings("ignore:Annealer. a loss was")
@pytest.mark.parametrize("loss", [math.nan, -1.0])
def test_losses_that_are_left_out_cannot_put_the_end_off(loss):
    annealer = mollifier.Annealer(model(), "exponential", horizon=20)
    assert len(path(annealer, lambda t: loss)) == 20


@pytest.mark.parametrize("stop_at", [None, 0.3])
def test_the_levels_that_are_held_are_those_of_the_horizon(stop_at):
    annealer = mollifier.Annealer(model(), "exponential", horizon=30, then="hold", stop_at=stop_at)
    levels = path(annealer, LOSSES["rising"])[-1]
    assert sum(levels) == pytest.approx(0.15 if stop_at is None else 0.3)
    cosine = mollifier.Annealer(model(), "cosine", horizon=30, then="hold", p_min=0.1, every=7)
    assert path(cosine, LOSSES["rising"])[-1] == pytest.approx([0.1, 0.1, 0.1])


def test_at_a_steady_loss_it_is_the_papers_schedule_with_the_solved_k():
    timed = path(mollifier.Annealer(model(), "exponential", horizon=100), lambda t: 0.7)
    paper = path(mollifier.Annealer(model(), k=solve_k(100, 3, 0.7, 0.15)), lambda t: 0.7)
    assert len(timed) == len(paper) == 100
    for one, two in zip(timed, paper, strict=True):
        assert one == pytest.approx(two, rel=1e-9)


def test_the_loss_bends_the_path():
    def loss_of(kind: str) -> list[list[float]]:
        return path(mollifier.Annealer(model(), "exponential", horizon=100, loss_average=0.5), LOSSES[kind])

    low, middle, high = (loss_of(kind)[49] for kind in ("falling", "steady", "rising"))
    assert all(a < b < c for a, b, c in zip(low, middle, high, strict=True))


@pytest.mark.parametrize("v", [0.0, 1e-30, 0.5, 1.0, 3.0, 1e30])
def test_the_timed_schedule_falls_to_its_end_for_every_loss(v):
    one = [timed_exponential(t, 3, 3, v, horizon=1000, end=0.07, first=1.0) for t in range(1001)]
    assert one[0] == 1.0
    assert all(later < earlier or later == 1.0 for earlier, later in pairwise(one))
    assert one[-1] == pytest.approx(-math.expm1(-0.07), rel=1e-12)
    layers = torch.tensor([3.0], dtype=torch.float64)
    value = torch.tensor(v, dtype=torch.float64)
    same = [float(timed_exponential(t, layers, 3, value, horizon=1000, end=0.07, first=1.0)) for t in (1, 500, 1000)]
    assert same == pytest.approx([one[1], one[500], one[1000]], rel=1e-12)


def test_a_threshold_that_was_asked_for_ends_the_others_sooner():
    annealer = mollifier.Annealer(model(), "linear", horizon=100, stop_at=1.0)
    assert len(path(annealer, LOSSES["steady"])) < 100
