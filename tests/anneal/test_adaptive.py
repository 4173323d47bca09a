"""The adaptive front: no constant, no horizon; it moves while the loss follows."""

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import nn

import mollifier
from mollifier.anneal._adaptive import FASTEST
from mollifier.schedules import front_at
from tests.helpers import BasicBlock, mlp


def annealer(depth: int = 4, **settings) -> mollifier.Annealer:
    return mollifier.Annealer(mollifier.mollify(mlp(4, *[5] * depth, 1)), "adaptive", **settings)


def walk(anneal: mollifier.Annealer, loss: Callable[[int], float | None], updates: int) -> list[float]:
    seen = []
    for update in range(updates):
        anneal.step(loss(update))
        seen.append(anneal.progress)
    return seen


def test_it_needs_nothing_and_ends_by_itself():
    anneal = annealer()
    seen = walk(anneal, lambda t: 0.7, 500)
    assert seen == sorted(seen)
    assert anneal.finished
    assert anneal.levels == [0.0] * 4
    assert seen.index(1.0) == pytest.approx((4 - 1 + 6) / FASTEST, abs=2)


def test_the_levels_are_those_of_a_front_at_its_place():
    anneal = annealer()
    place = walk(anneal, lambda t: 0.7, 100)[-1] * (4 - 1 + 6)
    assert anneal.levels == pytest.approx([front_at(place, layer, 6.0) for layer in (1, 2, 3, 4)], rel=1e-12)
    assert anneal.levels[0] < anneal.levels[1]


def test_it_goes_at_its_full_speed_and_takes_that_up_again_after_it_has_waited():
    windows = 20 - 1 + 6
    steady = walk(annealer(20), lambda t: 0.7, 200)
    assert steady[199] == pytest.approx(200 * FASTEST / windows)
    seen = walk(annealer(20, loss_average=0.0), lambda t: 1.4 * 0.7 if 100 <= t < 140 else 0.7, 900)
    assert seen[139] == seen[99]
    assert seen[149] - seen[139] < 0.6 * 10 * FASTEST / windows  # half as fast after 40 updates of waiting
    assert seen[889] - seen[879] > 0.99 * 10 * FASTEST / windows


def test_it_waits_where_the_loss_does_not_follow_and_goes_back_where_it_is_lost():
    def after(rise: float) -> list[float]:
        return walk(annealer(20, loss_average=0.0), lambda t: 0.7 if t < 100 else rise * 0.7, 130)

    follows, waits, lost = after(1.1), after(1.4), after(3.0)
    assert follows[129] > follows[99]
    assert waits[129] == waits[99]
    assert lost[129] == pytest.approx(lost[99] - 30 * FASTEST / (20 - 1 + 6))


def test_it_does_not_go_back_beyond_the_start():
    assert walk(annealer(loss_average=0.0), lambda t: 0.7 if t == 0 else 7.0, 50)[-1] == 0.0


def test_no_front_waits_for_ever():
    assert annealer_ends(lambda t: 0.7 if t < 50 else 2.0, 4000)
    assert annealer_ends(lambda t: 1.0 if t < 50 else 1e-12, 1000)
    assert annealer_ends(lambda t: 1.0 if t == 0 else 1e-3 if t % 2 else 1e-6, 1000)  # noise, but near 0


def annealer_ends(loss: Callable[[int], float], updates: int) -> bool:
    anneal = annealer(loss_average=0.0)
    walk(anneal, loss, updates)
    return anneal.finished


@pytest.mark.parametrize("every", [1, 7, 300])
@pytest.mark.parametrize("loss", [lambda t: 0.7, lambda t: 1.05**t, lambda t: None, lambda t: 0.0])
def test_with_a_horizon_it_ends_then_at_the_latest(every, loss):
    anneal = annealer(horizon=100, every=every)
    seen = walk(anneal, loss, 100)
    assert anneal.finished
    assert anneal.levels == [0.0] * 4
    assert all(later >= earlier for earlier, later in pairwise(seen))


def test_a_front_that_would_wait_goes_at_half_the_pace_of_its_horizon():
    anneal = annealer(20, horizon=1000, loss_average=0.0)
    seen = walk(anneal, lambda t: 2.0**t, 1000)
    assert seen[749] == pytest.approx(0.5, abs=0.01)
    assert seen[998] < 1.0 == seen[999]


def test_p_min_then_and_levels_to_start_from():
    held = annealer(p_min=0.1, then="hold")
    walk(held, lambda t: 0.7, 500)
    assert held.finished
    assert held.levels == pytest.approx([0.1] * 4)
    model = mollifier.mollify(mlp(4, 5, 5, 1), level=0.5)
    begun = mollifier.Annealer(model, "adaptive", then="restore")
    begun.step(0.7)
    assert mollifier.levels(model) == [0.5, 0.5]
    walk(begun, lambda t: 0.7, 500)
    assert not mollifier.is_mollified(model)


def test_losses_below_0_are_left_out():
    anneal = annealer()
    with pytest.warns(RuntimeWarning, match="the adaptive schedule need a loss that is not negative"):
        anneal.step(-1.0)
    assert anneal.loss_average == 1.0


def test_recurrent_layers_and_blocks_are_annealed_too():
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.head = nn.GRU(3, 5, num_layers=2, batch_first=True), nn.Linear(5, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.layer(x)[0][:, -1])

    for schedule, options in (("adaptive", {}), ("front", {"horizon": 40, "width": 2.0})):
        model = mollifier.mollify(Reader())
        anneal = mollifier.Annealer(model, schedule, **options)
        anneal.step(model(torch.randn(2, 6, 3)).square().mean())
        assert len(anneal.levels) == 2
        assert anneal.levels[0] < 1.0 == anneal.levels[1]
        walk(anneal, lambda t: 0.7, 500)
        assert mollifier.levels(model) == [0.0, 0.0]


@pytest.mark.parametrize("schedule", ["front", "adaptive"])
def test_residual_blocks_are_annealed_one_after_the_other(schedule):
    blocks = [BasicBlock(4, 4) for _ in range(3)]
    model = mollifier.mollify(nn.Sequential(nn.Conv2d(3, 4, 3), *blocks, nn.Flatten(), nn.LazyLinear(2)))
    anneal = mollifier.Annealer(model, schedule, horizon=60, width=1.0)
    below = []
    for _ in range(60):
        anneal.step(0.7)
        below.append(sum(0.0 < level < 1.0 for level in anneal.levels))
    assert mollifier.levels(model) == [0.0] * len(anneal.levels)
    assert len(anneal.levels) >= 3
    assert max(below) == 1  # a window wide: one block at a time


def test_a_learning_rate_can_be_tied_to_the_front():
    anneal = annealer(2, loss_average=0.0)
    optimizer = torch.optim.Adam([nn.Parameter(torch.zeros(1))], lr=1e-3)
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 0.1**anneal.progress)
    seen = []
    for update in range(300):
        optimizer.step()
        anneal.step(0.7 if update < 50 else 0.9)  # it waits for the reference to rise, about 30 updates
        rate.step()
        seen.append(optimizer.param_groups[0]["lr"])
    assert seen[0] == pytest.approx(1e-3, rel=0.02)
    assert seen[48] > seen[49] == seen[70] > seen[120]
    walk(anneal, lambda t: 0.7, 1000)
    rate.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(1e-4)


@pytest.mark.parametrize("width", [0, -1.0, math.inf, math.nan])
def test_a_width_must_be_above_0(width):
    with pytest.raises(ValueError, match=r"width=.*: expected a number above 0"):
        annealer(width=width)


@pytest.mark.parametrize("options", [{"horizon": 10}, {"schedule": "adaptive"}])
def test_the_default_width_grows_with_the_depth(options):
    shallow, deep = (mollifier.mollify(mlp(4, *depth * [4], 1)) for depth in (3, 60))
    assert mollifier.Annealer(shallow, **options).width == 6.0
    assert mollifier.Annealer(deep, **options).width == 10.0
    assert mollifier.Annealer(deep, **options, width=6.0).width == 6.0


def test_the_default_is_the_front_with_a_horizon_and_the_papers_without():
    model = mollifier.mollify(mlp(4, 5, 5, 1))
    assert mollifier.Annealer(model, horizon=10).schedule == "front"
    assert mollifier.Annealer(model).schedule == mollifier.Annealer(model, k=3.0).schedule == "exponential"
