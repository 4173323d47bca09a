"""Saving and resuming an Annealer, and everything that it refuses."""

import copy
import math
from pathlib import Path

import pytest
import torch
from torch import nn

import mollifier
from tests.helpers import mlp

LOSSES = [2.0, 1.5, math.nan, 0.4, 0.9, 0.3, 0.8]
SETTINGS = [
    {"k": 5.0},
    {"horizon": 40},
    {"schedule": "exponential", "horizon": 40},
    {"schedule": "adaptive"},
    {"schedule": "adaptive", "horizon": 5, "width": 2.0},
    {"schedule": "cosine", "horizon": 20, "every": 2, "then": "hold"},
    {"schedule": lambda t, layer, layers, v: 0.9**t * layer / layers},
    {"k": 5.0, "loss_average": None},
]


def model(depth: int = 3) -> nn.Module:
    return mollifier.mollify(mlp(4, *[5] * depth, 1))


def walk(annealer: mollifier.Annealer, losses: list[float]) -> list[list[float]]:
    seen = []
    for loss in losses:
        annealer.step(loss)
        seen.append([*annealer.levels, annealer.loss_average])
    return seen


@pytest.mark.filterwarnings("ignore:Annealer. a loss was not finite")
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("at", [1, 3, 5])
def test_it_continues_bit_for_bit(settings, at, tmp_path: Path):
    whole = walk(mollifier.Annealer(model(), **settings), LOSSES)
    first = mollifier.Annealer(model(), **settings)
    walk(first, LOSSES[:at])
    torch.save(first.state_dict(), tmp_path / "annealer.pt")

    net = model()
    second = mollifier.Annealer(net, **settings)
    second.load_state_dict(torch.load(tmp_path / "annealer.pt", weights_only=True))
    assert mollifier.levels(net) == first.levels
    assert (second.updates, second.skipped_losses) == (at, first.skipped_losses)
    assert walk(second, LOSSES[at:]) == whole[at:]


def test_the_settings_come_with_the_state():
    first = mollifier.Annealer(model(), k=7.0, stop_at=0.3, every=2, then="hold", p_min=0.1, loss_average=0.5)
    second = mollifier.Annealer(model())
    second.load_state_dict(first.state_dict())
    for name in ("k", "stop_at", "every", "then", "p_min", "beta"):
        assert getattr(second, name) == getattr(first, name)


def test_the_saved_state_does_not_go_on_changing():
    annealer = mollifier.Annealer(model(), k=1.0)
    annealer.step(1.0)
    saved = annealer.state_dict()
    kept = copy.deepcopy(saved)
    annealer.step(0.1)
    assert all(torch.equal(saved[key], kept[key]) for key in ("state", "levels"))
    other = mollifier.Annealer(model(), k=1.0)
    other.load_state_dict(saved)
    other.step(0.1)
    assert all(torch.equal(saved[key], kept[key]) for key in ("state", "levels"))


def test_an_ended_one_stays_ended():
    first = mollifier.Annealer(model())
    first.finish()
    net = model()
    second = mollifier.Annealer(net)
    second.load_state_dict(first.state_dict())
    assert second.finished
    assert mollifier.levels(net) == [0.0, 0.0, 0.0]
    assert not any(part.active for part in net.modules() if isinstance(part, mollifier.nn.Annealed))


def test_an_ended_one_can_be_set_back():
    net = model()
    annealer = mollifier.Annealer(net, k=5.0)
    annealer.step(0.7)
    middle, levels = annealer.state_dict(), mollifier.levels(net)
    annealer.finish()
    annealer.load_state_dict(middle)
    assert not annealer.finished
    assert mollifier.levels(net) == levels


def test_a_resumed_one_does_not_warn_again():
    first = mollifier.Annealer(model())
    with pytest.warns(RuntimeWarning, match="not finite"):
        first.step(math.nan)
    second = mollifier.Annealer(model())
    second.load_state_dict(first.state_dict())
    second.step(math.nan)  # warnings are errors here
    assert second.skipped_losses == 2


def wrong_states() -> list[tuple[str, dict, str]]:
    good = mollifier.Annealer(model()).state_dict()
    return [
        ("another depth", mollifier.Annealer(model(2)).state_dict(), r"the state has 2 blocks, but the model has 3"),
        (
            "another schedule",
            mollifier.Annealer(model(), "linear", horizon=9).state_dict(),
            r"the state has schedule 'linear', but this Annealer has 'exponential'",
        ),
        ("not a state", {"lr": 0.1}, r"beta, every, .* missing: this is not the state of an Annealer"),
        ("one missing", {k: v for k, v in good.items() if k != "updates"}, r"load_state_dict: updates missing"),
    ]


@pytest.mark.parametrize(("state", "message"), [row[1:] for row in wrong_states()], ids=[r[0] for r in wrong_states()])
def test_a_wrong_state_is_refused_and_changes_nothing(state, message):
    net = model()
    annealer = mollifier.Annealer(net, k=5.0)
    annealer.step(0.7)
    before, levels = annealer.state_dict(), mollifier.levels(net)
    with pytest.raises(ValueError, match=message):
        annealer.load_state_dict(state)
    after = annealer.state_dict()
    assert {k: v for k, v in after.items() if not isinstance(v, torch.Tensor)} == {
        k: v for k, v in before.items() if not isinstance(v, torch.Tensor)
    }
    assert all(torch.equal(after[key], before[key]) for key in ("state", "levels"))
    assert mollifier.levels(net) == levels


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"schedule": "quadratic"}, r"schedule='quadratic': expected one of exponential, linear, square_root, cosine"),
        ({"k": 5.0, "horizon": 10}, r"k belongs to the exponential schedule"),
        ({"schedule": "linear", "k": 5.0}, r"k belongs to the exponential schedule"),
        ({"schedule": "linear"}, r"schedule='linear' needs horizon="),
        ({"k": 0.0}, r"k=0.0: expected a number above 0"),
        ({"k": math.nan}, r"k=nan: expected a number above 0"),
        ({"horizon": -1}, r"horizon=-1: expected a number above 0"),
        ({"horizon": math.inf}, r"horizon=inf: expected a number above 0"),
        ({"every": 0}, r"every=0: expected a number above 0"),
        ({"loss_average": 1.0}, r"loss_average=1.0: expected a decay in \[0, 1\), or None"),
        ({"loss_average": -0.1}, r"loss_average=-0.1: expected a decay"),
        ({"then": "stop"}, r"then='stop': expected 'plain', 'hold' or 'restore'"),
        ({"stop_at": 3}, r"stop_at=3: expected 0 <= stop_at < 3, the number of blocks"),
        ({"stop_at": -1}, r"stop_at=-1: expected 0 <= stop_at < 3"),
        ({"p_min": 1.5}, r"level 1.5: expected a number in \[0, 1\]"),
    ],
)
def test_wrong_arguments_are_refused_and_change_nothing(arguments, message):
    net = model()
    mollifier.set_level(net, [0.1, 0.2, 0.3])
    with pytest.raises(ValueError, match=message):
        mollifier.Annealer(net, **arguments)
    assert mollifier.levels(net) == pytest.approx([0.1, 0.2, 0.3])


def test_a_plain_model_cannot_be_annealed():
    with pytest.raises(
        ValueError, match=r"Annealer: Sequential is not mollified. Call mollifier.mollify\(model\) first"
    ):
        mollifier.Annealer(mlp(2, 2, 1))


@pytest.mark.parametrize("shape", [(3,), (0,), (2, 2)])
def test_a_loss_of_many_numbers_is_refused(shape):
    annealer = mollifier.Annealer(model())
    with pytest.raises(ValueError, match=r"the loss has shape \(.*\); expected one number, e.g. loss.mean\(\)"):
        annealer.step(torch.ones(shape))


@pytest.mark.parametrize("wrong", [1.5, -0.1, math.nan])
def test_a_schedule_of_ones_own_must_stay_in_0_and_1(wrong):
    net = model()
    annealer = mollifier.Annealer(net, lambda t, layer, layers, v: wrong)
    with pytest.raises(ValueError, match=r"level .*: expected a number in \[0, 1\]"):
        annealer.step(0.7)
    assert mollifier.levels(net) == [1.0, 1.0, 1.0]
