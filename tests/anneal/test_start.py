"""Where an Annealer starts, what it prints, and how it restores the model at the end."""

import copy
import math
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import mollifier
from tests.helpers import mlp


def model(depth: int = 3, **options) -> nn.Module:
    return mollifier.mollify(mlp(4, *[5] * depth, 1), **options)


def test_it_starts_from_the_levels_that_the_model_has():
    net = model(level=0.5)
    annealer = mollifier.Annealer(net, k=10.0)
    assert mollifier.levels(net) == annealer.levels == [0.5, 0.5, 0.5]
    for t in range(1, 60):
        annealer.step(0.7)
        paper = [-math.expm1(-10 * 0.7 * layer / (t * 3)) for layer in (1, 2, 3)]
        # each waits until the schedule has come down to it
        assert mollifier.levels(net) == pytest.approx([min(0.5, p) for p in paper])
    assert max(annealer.levels) < 0.5


def test_the_levels_of_a_loaded_checkpoint_stay():
    first = model()
    mollifier.set_level(first, [0.1, 0.2, 0.3])
    net = model()
    net.load_state_dict(first.state_dict())
    annealer = mollifier.Annealer(net, "linear", horizon=10)
    assert mollifier.levels(net) == [0.1, 0.2, 0.3]
    for _ in range(9):
        annealer.step(0.7)
        assert all(level <= top for level, top in zip(mollifier.levels(net), [0.1, 0.2, 0.3], strict=True))
    annealer.step(0.7)
    assert mollifier.levels(net) == [0.0, 0.0, 0.0]


def test_a_model_at_level_0_has_nothing_left_to_anneal():
    annealer = mollifier.Annealer(model(level=0.0))
    annealer.step(0.7)
    assert annealer.finished


def test_a_state_of_an_earlier_version_loads():
    old = mollifier.Annealer(model(), k=10.0)
    for _ in range(5):
        old.step(0.7)
    state = {key: value for key, value in old.state_dict().items() if key not in ("guard", "start", "lowest")}
    state["state"] = state["state"][:4]
    new = mollifier.Annealer(model(), k=3.0)
    new.load_state_dict(state)
    for loss in (0.5, 0.9):
        old.step(loss)
        new.step(loss)
        assert new.levels == old.levels


def test_its_repr():
    annealer = mollifier.Annealer(model(), k=10.0)
    annealer.step(0.7)
    assert repr(annealer) == (
        "Annealer('exponential', k=10, updates=1, v=0.7, levels=[0.903, 0.991, 0.999], finished=False)"
    )
    many = mollifier.Annealer(model(8), "linear", horizon=20)
    many.finish()
    assert repr(many) == (
        "Annealer('linear', horizon=20, updates=0, v=1, levels=[0.0, …, 0.0] of 8 blocks, finished=True)"
    )
    assert repr(mollifier.Annealer(model(1), math.hypot)).startswith("Annealer('hypot', updates=0")


@pytest.mark.parametrize("settings", [{"horizon": 40}, {"k": 1.0}, {"k": 1.0, "stop_at": 0.5}])
def test_progress_goes_from_0_to_1(settings):
    annealer = mollifier.Annealer(model(), **settings)
    seen = [annealer.progress]
    while not annealer.finished:
        annealer.step(0.7)
        seen.append(annealer.progress)
    assert (seen[0], seen[-1]) == (0.0, 1.0)
    assert all(earlier < later for earlier, later in pairwise(seen))
    assert seen[-2] > 0.9


def test_then_restore_gives_the_plain_network_in_the_middle_of_a_loop():
    net = model()
    alias, keys = net, [key for key in net.state_dict() if "_mollifier" not in key]
    twin = copy.deepcopy(net)
    x = torch.randn(16, 4)
    for each, then in ((net, "restore"), (twin, "plain")):
        torch.manual_seed(1)
        optimizer = torch.optim.SGD(each.parameters(), lr=0.1)
        annealer = mollifier.Annealer(each, horizon=5, then=then)
        for _ in range(10):
            loss = F.mse_loss(each(x), x.sum(1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            annealer.step(loss)
    assert alias is net
    assert not mollifier.is_mollified(net)
    assert list(net.state_dict()) == keys
    assert torch.equal(net(x), twin(x))
    assert annealer.finished
    assert annealer.levels == [0.0, 0.0, 0.0]


def test_then_restore_with_finish_and_with_a_loaded_end():
    net, other = model(), model()
    annealer = mollifier.Annealer(net, then="restore")
    annealer.finish()
    assert not mollifier.is_mollified(net)
    mollifier.Annealer(other, then="restore").load_state_dict(annealer.state_dict())
    assert not mollifier.is_mollified(other)
    fresh = mollifier.Annealer(model(), then="restore")
    with pytest.raises(ValueError, match="the model was restored"):
        annealer.load_state_dict(fresh.state_dict())


def test_then_restore_of_a_compiled_model():
    net = torch.compile(model(), backend="eager")
    x = torch.randn(3, 4)
    annealer = mollifier.Annealer(net, horizon=2, then="restore")
    for _ in range(3):
        net(x).sum().backward()
        annealer.step(0.7)
    assert not mollifier.is_mollified(net)
    assert torch.equal(net(x), net._orig_mod(x))


@pytest.mark.usefixtures("process_group")
def test_then_restore_is_refused_where_it_cannot_work():
    ddp = nn.parallel.DistributedDataParallel(model())
    with pytest.raises(
        ValueError, match=r"DistributedDataParallel keeps references to .*restore\(model.module\) after"
    ):
        mollifier.Annealer(ddp, then="restore")
    with pytest.raises(ValueError, match="residual=True"):
        mollifier.Annealer(model(residual=True), then="restore")
    by_hand = nn.Sequential(nn.Linear(4, 4), mollifier.nn.NoisyActivation("tanh", 4))
    with pytest.raises(ValueError, match=r"was not mollified by mollify\(\)"):
        mollifier.Annealer(by_hand, then="restore")
    with pytest.raises(ValueError, match=r'optimizer=… needs then="restore"'):
        mollifier.Annealer(model(), optimizer=torch.optim.SGD(by_hand.parameters(), lr=0.1))
