"""On an accelerator an Annealer reads from the device only occasionally."""

import copy
import warnings
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import mollifier
from mollifier.anneal import POLL
from mollifier.nn import Annealed
from tests.helpers import mlp

SCHEDULES = [
    {"k": 500.0},
    {"k": 500.0, "guard": False},
    {"schedule": "linear", "horizon": 1000},
    {"schedule": "square_root", "horizon": 1000, "every": 3},
    {"schedule": "cosine", "horizon": 1000, "then": "hold"},
    {"schedule": "front", "horizon": 1000},
    {"schedule": "adaptive"},
    {"schedule": "adaptive", "horizon": 1000, "every": 3, "p_min": 0.05},
]
OURS = [{"schedule": "exponential", "horizon": 50}, {"schedule": "adaptive"}, {"schedule": "adaptive", "horizon": 5}]


class NoQuestions(TorchDispatchMode):
    """Fails where the host asks for a value, as .item(), float() and bool() do: on an accelerator it would wait."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            raise AssertionError("the host asked the device for a value")
        return func(*args, **(kwargs or {}))


def remote(*args: Any, **settings: Any) -> mollifier.Annealer:
    """An Annealer that treats the CPU as it treats an accelerator."""
    annealer = mollifier.Annealer(*args, **settings)
    annealer._on_host = False
    return annealer


@pytest.mark.parametrize("settings", SCHEDULES)
def test_a_step_asks_the_device_for_nothing(settings):
    net = mollifier.mollify(mlp(4, 5, 5, 1))
    annealer = remote(net, **settings)
    with NoQuestions():
        for _ in range(POLL - 1):
            annealer.step(torch.tensor(0.7))
    assert 0 < mollifier.levels(net)[0] < 1
    for _ in range(-POLL % annealer.every):
        annealer.step(torch.tensor(0.7))
    with NoQuestions(), pytest.raises(AssertionError, match="asked the device"):
        annealer.step(torch.tensor(0.7))  # the look of update 100, or of the next tick


def test_a_horizon_is_solved_for_at_the_first_loss_and_asks_for_nothing_after_it():
    annealer = remote(mollifier.mollify(mlp(4, 5, 5, 1)), "exponential", horizon=1000)
    annealer.step(torch.tensor(0.7))
    with NoQuestions():
        for _ in range(POLL - 2):
            annealer.step(torch.tensor(0.7))


@pytest.mark.parametrize("settings", SCHEDULES)
def test_no_value_is_needed_at_all(settings):
    """A meta tensor has none, and refuses every question by itself."""
    net = mollifier.mollify(mlp(4, 5, 5, 1)).to("meta")
    annealer = mollifier.Annealer(net, **settings)
    for _ in range(POLL - 1):
        annealer.step(torch.ones((), device="meta"))
    for _ in range(-POLL % annealer.every):
        annealer.step(torch.ones((), device="meta"))
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        annealer.step(torch.ones((), device="meta"))


@pytest.mark.usefixtures("accelerator")
def test_an_end_that_the_host_has_not_seen_is_an_end():
    plain = mlp(4, 5, 5, 1)
    net = mollifier.mollify(copy.deepcopy(plain))
    annealer = remote(net, k=0.1)
    x = torch.randn(64, 4)
    for _ in range(30):
        annealer.step(0.7)
    assert mollifier.levels(net) == [0.0, 0.0]
    parts = [part for part in net.modules() if isinstance(part, Annealed)]
    assert all(part.active for part in parts)  # the host does not know it yet
    for mode in (True, False):
        assert torch.equal(net.train(mode)(x), plain(x))
    net(x).sum().backward()
    plain(x).sum().backward()
    gradients = dict(net.named_parameters())
    assert all(torch.equal(gradients[name].grad, weight.grad) for name, weight in plain.named_parameters())

    for _ in range(POLL - 30):
        annealer.step(0.7)
    assert annealer.finished
    assert not any(part.active for part in parts)
    updates = annealer.updates
    annealer.step(0.7)
    assert annealer.updates == updates


def test_an_end_in_between_stays_whatever_the_loss_does():
    net = mollifier.mollify(mlp(4, 5, 5, 1))
    annealer = remote(net, k=1.0, loss_average=0.0)
    for loss in (1e-6, 1e6, 1e6):  # the levels would come back up
        annealer.step(loss)
        assert annealer.levels == mollifier.levels(net) == [0.0, 0.0]
    mollifier.set_level(net, 1.0)
    held = remote(net, k=1.0, loss_average=0.0, then="hold")
    held.step(0.01)
    before = held.levels
    assert all(before)
    held.step(1e6)
    assert held.levels == mollifier.levels(net) == before


def test_finished_may_be_asked_before_the_look():
    annealer = remote(mollifier.mollify(mlp(4, 5, 1)), k=0.1)
    for _ in range(10):
        annealer.step(0.7)
    assert annealer.finished


def test_the_warning_waits_for_the_look():
    annealer = remote(mollifier.mollify(mlp(4, 5, 1)), k=1e6)
    for _ in range(POLL - 1):
        annealer.step(float("nan"))  # warnings are errors here
    with pytest.warns(RuntimeWarning, match=r"\(100 so far"):
        annealer.step(float("nan"))


@pytest.mark.usefixtures("accelerator")
@pytest.mark.parametrize("every", [1, 3, 7, 100, 250])
def test_the_look_comes_every_hundred_updates_or_at_the_next_tick(every):
    annealer = remote(mollifier.mollify(mlp(4, 5, 1)), k=1e-9, every=every)
    parts = [part for group in annealer._groups for part in group]
    updates = 0
    while any(part.active for part in parts):
        updates += 1
        annealer.step(0.7)
    assert updates == every * -(-POLL // every) if every < POLL else updates == every


@pytest.mark.parametrize("schedule", ["exponential", "linear"])
def test_the_host_knows_the_horizon_and_need_not_ask(schedule):
    annealer = remote(mollifier.mollify(mlp(4, 5, 1)), schedule, horizon=10)
    parts = [part for group in annealer._groups for part in group]
    for _ in range(10):
        assert all(part.active for part in parts)
        annealer.step(0.7)
    assert not any(part.active for part in parts)


@pytest.mark.parametrize("losses", [[0.7, 0.1, 1e30, 0.0, 0.3, 5.0], [0.0, 0.0, 2.0, 1.9], [0.5, float("nan"), 0.4]])
@pytest.mark.parametrize(
    "settings", [{"k": 3.0}, {"k": 3.0, "guard": False}, {"horizon": 50}, {"k": 30.0, "every": 2}, *OURS]
)
def test_an_accelerator_anneals_as_the_cpu_does(losses, settings):
    far, near = (
        remote(mollifier.mollify(mlp(4, 5, 5, 1)), **settings),
        mollifier.Annealer(mollifier.mollify(mlp(4, 5, 5, 1)), **settings),
    )
    for loss in losses:
        far.step(loss)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            near.step(loss)
        assert far.levels == pytest.approx(near.levels, rel=1e-12)
        assert far.loss_average == pytest.approx(near.loss_average, rel=1e-12)
        assert far.skipped_losses == near.skipped_losses


def test_a_negative_loss_is_noticed_at_the_look_and_sets_no_level_to_0():
    annealer = remote(mollifier.mollify(mlp(4, 5, 5, 1)), k=1e4)
    for _ in range(POLL - 1):
        annealer.step(-1.0)  # warnings are errors here
    assert all(level > 0.9 for level in annealer.levels)
    with pytest.warns(RuntimeWarning, match=r"a loss was below 0 .*\(100 so far.*loss_average=None"):
        annealer.step(-1.0)
