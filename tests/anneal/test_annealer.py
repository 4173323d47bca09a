"""The Annealer in a training loop: what it averages, what it sets, when it ends."""

import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import mollifier
from mollifier.schedules import BUILT_IN
from tests.helpers import mlp


def model(depth: int = 3) -> nn.Module:
    return mollifier.mollify(mlp(4, *[5] * depth, 1))


def run(annealer: mollifier.Annealer, updates: int, loss: float | None = 0.7) -> int | None:
    """Steps at a constant loss; the update at which annealing ended."""
    for update in range(1, updates + 1):
        annealer.step(loss)
        if annealer.finished:
            return update
    return None


def test_a_training_loop_from_level_1_to_the_plain_network():
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    annealer = mollifier.Annealer(net, k=2.0)
    assert mollifier.levels(net) == annealer.levels == [1.0, 1.0, 1.0]
    x = torch.randn(32, 4)
    y = x.sum(1, keepdim=True)
    seen = []
    for t in range(1, 200):
        loss = F.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        annealer.step(loss)
        if annealer.finished:
            break
        paper = [1 - math.exp(-2.0 * annealer.loss_average * layer / (t * 3)) for layer in (1, 2, 3)]
        assert mollifier.levels(net) == pytest.approx(paper, abs=1e-12)
        assert sum(paper) > annealer.stop_at == pytest.approx(0.15)
        seen.append(mollifier.levels(net))
    assert annealer.finished
    assert annealer.updates == t == len(seen) + 1
    assert mollifier.levels(net) == [0.0, 0.0, 0.0]
    after = net(x)
    annealer.step(loss)  # and nothing happens any more
    assert annealer.updates == t
    assert torch.equal(mollifier.restore(net)(x), after)


def test_the_average_is_the_bias_corrected_one():
    annealer = mollifier.Annealer(model(), loss_average=0.9)
    losses = [3.0, 1.0, 0.5, 2.0, 0.1]
    for count in range(1, len(losses) + 1):
        annealer.step(losses[count - 1])
        weights = [0.9 ** (count - i) for i in range(1, count + 1)]
        by_hand = sum(w * loss for w, loss in zip(weights, losses, strict=False)) / sum(weights)
        assert annealer.loss_average == pytest.approx(by_hand, rel=1e-12)


def test_without_decay_the_average_is_the_last_loss():
    annealer = mollifier.Annealer(model(), loss_average=0.0)
    for loss in (3.0, 0.5):
        annealer.step(loss)
        assert annealer.loss_average == pytest.approx(loss)


def test_v_fixed_to_1_does_not_look_at_the_loss():
    fixed, free = (mollifier.Annealer(model(), loss_average=None, k=10.0) for _ in range(2))
    for loss in (5.0, math.nan, 0.1):
        fixed.step(loss)
        free.step()
    assert fixed.loss_average == 1.0
    assert fixed.levels == free.levels == pytest.approx([1 - math.exp(-10 * layer / 9) for layer in (1, 2, 3)])
    assert fixed.skipped_losses == 0


def test_without_any_loss_v_is_1():
    annealer = mollifier.Annealer(model(), k=10.0)
    annealer.step()
    assert annealer.loss_average == 1.0
    assert annealer.levels == pytest.approx([1 - math.exp(-10 * layer / 3) for layer in (1, 2, 3)])


def test_a_loss_that_is_not_finite_is_left_out_counted_and_warned_of_once():
    annealer, clean = (mollifier.Annealer(model(), k=1e4) for _ in range(2))
    for loss in (2.0, 1.0):
        annealer.step(loss)
        clean.step(loss)
    with pytest.warns(
        RuntimeWarning, match=r"a loss was not finite and was left out of the average \(1 so far"
    ) as seen:
        annealer.step(math.nan)
    assert len(seen) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for loss in (math.inf, torch.tensor(-math.inf), math.nan):
            annealer.step(loss)
    assert annealer.skipped_losses == 4
    assert annealer.updates == 6
    assert annealer.loss_average == clean.loss_average


@pytest.mark.parametrize("schedule", ["linear", BUILT_IN["linear"]])
def test_a_schedule_by_name_or_by_function(schedule):
    annealer = mollifier.Annealer(model(), schedule, horizon=100)
    run(annealer, 10)
    assert annealer.levels == pytest.approx([1 - 10 * 3 / (100 * layer) for layer in (1, 2, 3)])


def test_the_first_loss_solves_k_for_the_horizon():
    annealer = mollifier.Annealer(model(), "exponential", horizon=50)
    with pytest.warns(RuntimeWarning, match="not finite"):
        annealer.step(float("nan"))
    assert annealer.k is None
    assert annealer.levels == [1.0, 1.0, 1.0]
    annealer.step(0.7)
    assert annealer.k == pytest.approx(mollifier.schedules.solve_k(50, 3, 0.7, 0.15))


def test_a_horizon_without_any_loss_is_met_at_v_one():
    annealer = mollifier.Annealer(model(), "exponential", horizon=50)
    updates = 0
    while not annealer.finished:
        updates += 1
        annealer.step()
    assert updates == 50


def test_annealing_ends_at_p_min():
    annealer = mollifier.Annealer(model(), k=1.0, p_min=0.2)
    end = run(annealer, 100, loss=1.0)
    assert 1 - math.exp(-1 / end) <= 0.2 < 1 - math.exp(-1 / (end - 1))  # the highest block has come down to it
    assert annealer.levels == [0.0, 0.0, 0.0]


def test_a_horizon_needs_somewhere_to_stop():
    with pytest.raises(ValueError, match="stop_at=0: the exponential schedule never reaches 0"):
        mollifier.Annealer(model(), "exponential", horizon=50, stop_at=0)


def test_a_falling_loss_ends_sooner():
    ends = []
    for fall in (1.0, 0.98):
        annealer = mollifier.Annealer(model(), k=10.0, loss_average=0.9)
        while not annealer.finished:
            annealer.step(fall**annealer.updates)
        ends.append(annealer.updates)
    assert ends[1] < ends[0] / 2


def test_finish_ends_it_at_once():
    net = model()
    annealer = mollifier.Annealer(net)
    annealer.step(0.7)
    assert not annealer.finished
    annealer.finish()
    assert annealer.finished
    assert annealer.levels == mollifier.levels(net) == [0.0, 0.0, 0.0]
    annealer.step(0.7)
    assert mollifier.levels(net) == [0.0, 0.0, 0.0]


def test_hold_keeps_the_levels_at_which_it_ended():
    net = model()
    annealer = mollifier.Annealer(net, "linear", horizon=20, stop_at=1.0, then="hold")
    end = run(annealer, 20)
    held = mollifier.levels(net)
    assert 0 < sum(held) <= 1.0
    assert held == pytest.approx([max(0.0, 1 - end * 3 / (20 * layer)) for layer in (1, 2, 3)])
    annealer.step(0.7)
    assert mollifier.levels(net) == annealer.levels == held


def test_stop_at_0_never_ends():
    net = model()
    annealer = mollifier.Annealer(net, "linear", horizon=10, stop_at=0)
    assert run(annealer, 30) is None
    assert mollifier.levels(net) == [0.0, 0.0, 0.0]
    endless = mollifier.Annealer(model(), k=1.0, stop_at=0)
    assert run(endless, 500) is None
    assert all(level > 0 for level in endless.levels)


def test_every_ticks_the_clock_and_averages_all_losses():
    slow, fast = mollifier.Annealer(model(), k=10.0, every=5), mollifier.Annealer(model(), k=10.0)
    for update in range(1, 11):
        slow.step(float(update))
        fast.step(float(update))
        if update < 5:
            assert slow.levels == [1.0, 1.0, 1.0]
    assert slow.loss_average == fast.loss_average
    assert slow.levels == pytest.approx([1 - math.exp(-10 * slow.loss_average * layer / 6) for layer in (1, 2, 3)])


def test_p_min_is_a_floor_until_the_end():
    annealer = mollifier.Annealer(model(), "linear", horizon=10, p_min=0.2, then="hold")
    assert run(annealer, 30) == 10
    run(annealer, 30)
    assert annealer.levels == pytest.approx([0.2, 0.2, 0.2])
    annealer.finish()
    assert annealer.levels == [0.0, 0.0, 0.0]


def test_a_schedule_of_ones_own():
    seen = []

    def halves(t: float, layer: int, layers: int, v: float) -> float:
        seen.append((t, layer, layers, v))
        return 0.5**t

    annealer = mollifier.Annealer(model(), halves, p_min=0.0)
    assert run(annealer, 10, loss=2.0) == 5  # 3 / 32 is below 0.15
    assert [call[:3] for call in seen[:4]] == [(1, 1, 3), (1, 2, 3), (1, 3, 3), (2, 1, 3)]
    assert [call[3] for call in seen] == pytest.approx([2.0] * 15)


def test_an_annealer_drives_nets_built_by_hand_and_wrapped_ones():
    hand = nn.Sequential(nn.Linear(4, 4), mollifier.nn.NoisyActivation("tanh", 4))
    for net in (hand, torch.compile(model(1), backend="eager"), nn.ModuleDict({"inside": model(1)})):
        annealer = mollifier.Annealer(net, k=1.0)
        annealer.step(0.5)
        assert mollifier.levels(net) == pytest.approx([1 - math.exp(-0.5)])


def test_the_loss_keeps_no_graph_alive():
    annealer = mollifier.Annealer(model())
    weight = torch.ones(1, requires_grad=True)
    annealer.step((weight * 2).sum().reshape(1))  # one number in any shape
    assert annealer.loss_average == 2.0
    assert not any(part.requires_grad for part in (annealer._average.numbers, annealer._levels))
