"""Schedules as functions of (t, layer, layers, v)."""

import math

import pytest
import torch
from hypothesis import given, strategies as st

from mollifier.schedules import BUILT_IN, cosine, exponential, front, front_width, linear, solve_k, square_root

times = st.floats(0.0, 1e5)
losses = st.floats(0.0, 100.0)


@st.composite
def places(draw: st.DrawFn) -> tuple[int, int]:
    """A layer and the number of layers."""
    layers = draw(st.integers(1, 12))
    return draw(st.integers(1, layers)), layers


@st.composite
def schedules(draw: st.DrawFn):
    """A built-in schedule with its options filled in: (t, layer, layers, v) -> p, and its p_min."""
    name = draw(st.sampled_from(sorted(BUILT_IN)))
    p_min = draw(st.sampled_from([0.0, 0.1, 0.5]))
    options = {"p_min": p_min}
    if name == "exponential":
        options["k"] = draw(st.floats(0.1, 1e4))
    else:
        options["horizon"] = draw(st.floats(1.0, 1e5))
    if name == "square_root":
        options["printed"] = draw(st.booleans())
    return lambda t, layer, layers, v: BUILT_IN[name](t, layer, layers, v, **options), p_min


@given(schedules(), times, places(), losses)
def test_levels_stay_in_p_min_and_1(schedule, t, place, v):
    level, p_min = schedule
    assert p_min <= level(t, *place, v) <= 1.0


@given(schedules(), times, times, places(), losses)
def test_levels_fall_with_time(schedule, one, two, place, v):
    level, _ = schedule
    assert level(max(one, two), *place, v) <= level(min(one, two), *place, v)


@given(schedules(), times, places(), losses, losses)
def test_levels_rise_with_the_loss(schedule, t, place, one, two):
    level, _ = schedule
    assert level(t, *place, min(one, two)) <= level(t, *place, max(one, two))


@given(schedules(), times, st.integers(2, 12), losses)
def test_lower_layers_become_plain_first(schedule, t, layers, v):
    level, _ = schedule
    ladder = [level(t, layer, layers, v) for layer in range(1, layers + 1)]
    assert ladder == sorted(ladder)


@given(schedules(), places(), losses)
def test_all_start_at_1(schedule, place, v):
    assert schedule[0](0, *place, v) == 1.0


@given(schedules(), times, st.integers(1, 12), losses)
def test_tensors_and_floats_agree(schedule, t, layers, v):
    level, _ = schedule
    numbers = torch.arange(1, layers + 1, dtype=torch.float64)
    together = level(t, numbers, layers, torch.tensor(v, dtype=torch.float64))
    assert together.dtype == torch.float64
    assert together.tolist() == pytest.approx([level(t, layer, layers, v) for layer in range(1, layers + 1)], abs=1e-12)


@given(st.floats(1.0, 1e5), places(), losses, st.floats(0.1, 1e4))
def test_exponential_is_the_papers_formula(t, place, v, k):
    layer, layers = place
    paper = 1 - math.exp(-k * v * layer / (t * layers))
    assert exponential(t, layer, layers, v, k=k) == pytest.approx(paper, abs=1e-12)


def test_exponential_has_the_papers_limits_in_v():
    assert exponential(10, 1, 3, 0.0) == 0.0
    assert exponential(10, 1, 3, 1e9) == 1.0


@given(st.floats(0.0, 1.5), places(), st.floats(1.0, 1e5))
def test_the_others_are_their_formulas(share, place, horizon):
    layer, layers = place
    mine = horizon * layer / layers  # lower layers are done sooner by l/L
    done = min(share, 1.0)
    t = share * mine
    assert linear(t, layer, layers, horizon=horizon) == pytest.approx(1 - done, abs=1e-9)
    assert square_root(t, layer, layers, horizon=horizon) == pytest.approx(math.sqrt(1 - done), abs=1e-6)
    printed = square_root(t, layer, layers, horizon=horizon, printed=True)
    assert printed == pytest.approx(1 - math.sqrt(done), abs=1e-6)
    assert cosine(t, layer, layers, horizon=horizon) == pytest.approx((1 + math.cos(math.pi * done)) / 2, abs=1e-9)


@pytest.mark.parametrize("schedule", [linear, square_root, cosine])
def test_a_horizon_must_be_above_0(schedule):
    with pytest.raises(ValueError, match=r"horizon=0: expected a number of updates above 0"):
        schedule(1, 1, 1, horizon=0)


@given(st.integers(2, 10_000), st.integers(1, 30), st.floats(0.01, 50.0), st.floats(0.01, 0.9))
def test_solve_k_meets_the_threshold_at_the_horizon_and_no_update_sooner(updates, layers, v, share):
    stop_at = share * layers
    k = solve_k(updates, layers, v, stop_at)

    def total(t: int) -> float:
        return sum(exponential(t, layer, layers, v, k=k) for layer in range(1, layers + 1))

    assert total(updates) == pytest.approx(stop_at, rel=1e-9)
    assert total(updates - 1) > stop_at * (1 + 1e-9)


@pytest.mark.parametrize(
    "wrong", [{"stop_at": 0.0}, {"stop_at": 3.0}, {"v": 0.0}, {"v": -1.0}, {"v": math.nan}, {"updates": 0}]
)
def test_solve_k_says_what_it_needs(wrong):
    with pytest.raises(ValueError, match=r"expected a horizon and a loss above 0, and 0 < stop_at < 3"):
        solve_k(**{"updates": 100, "layers": 3, "v": 1.0, "stop_at": 0.1, **wrong})


@pytest.mark.parametrize(("layers", "width"), [(1, 6.0), (50, 6.0), (72, 14.8), (200, 66.0)])
def test_a_front_widens_with_the_depth(layers, width):
    assert front_width(layers) == pytest.approx(width)
    levels = [front(400, layer, layers, horizon=1000) for layer in range(1, layers + 1)]
    assert levels == [front(400, layer, layers, horizon=1000, width=width) for layer in range(1, layers + 1)]
