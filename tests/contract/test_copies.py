"""Row 6: deepcopy, pickle, torch.save of the model, and the round trip of its state_dict through a file."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import nn

import mollifier

from .helpers import assert_equal, seeded
from .zoo import CONVERTED, KINDS, Kind, by_name


def through_pickle(model: nn.Module) -> nn.Module:
    return pickle.loads(pickle.dumps(model))


def through_torch_save(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


WAYS: list[Callable[[nn.Module], nn.Module]] = [copy.deepcopy, through_pickle, through_torch_save]


@by_name(KINDS)
@pytest.mark.parametrize("way", WAYS, ids=["deepcopy", "pickle", "torch.save"])
def test_a_copy_computes_the_same_and_stands_alone(kind: Kind, way: Callable[[nn.Module], nn.Module]) -> None:
    model, x = kind.mollified(level=0.5), kind.input()
    kind.run(model.eval(), x)  # whatever is made at the first call is there now
    twin = way(model)
    assert twin is not model
    assert [type(part) for part in twin.modules()] == [type(part) for part in model.modules()]
    assert list(twin.state_dict()) == list(model.state_dict())
    assert not {p.data_ptr() for p in twin.parameters()} & {p.data_ptr() for p in model.parameters()}
    for training in (False, True):
        want = seeded(kind, copy.deepcopy(model).train(training), x)
        assert_equal(seeded(kind, copy.deepcopy(twin).train(training), x), want)

    before = kind.run(model.eval(), x)
    mollifier.set_level(twin, 0.0)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(1.0)
    assert mollifier.levels(model) == [0.5] * len(mollifier.levels(twin))
    assert_equal(kind.run(model.eval(), x), before)
    assert not torch.equal(kind.run(twin.eval(), x), before)


@by_name(KINDS)
@pytest.mark.parametrize("way", WAYS, ids=["deepcopy", "pickle", "torch.save"])
def test_a_copy_can_be_annealed_trained_and_restored(kind: Kind, way: Callable[[nn.Module], nn.Module]) -> None:
    twin, x = way(kind.mollified()), kind.input()
    assert mollifier.levels(twin) == [1.0] * len(mollifier.levels(twin))
    annealer = mollifier.Annealer(twin, k=1.0)
    annealer.step(1.0)
    assert all(0.0 < level < 1.0 for level in mollifier.levels(twin))
    third = way(twin)
    for each in (twin, third):
        torch.manual_seed(3)
        kind.run(each.train(), x).square().mean().backward()
    for one, other in zip(mollifier.added_parameters(twin), mollifier.added_parameters(third), strict=True):
        assert one.grad is not None
        assert torch.equal(one.grad, other.grad)
    annealer.finish()
    if kind.by_hand is None:
        assert len(mollifier.report(twin).blocks) == len(mollifier.levels(twin))
        mollifier.restore(twin, force=kind.residual)
        assert [type(part) for part in twin.modules()] == [type(part) for part in kind.plain().modules()]
        # through train() the running statistics moved, so the weights come from a fresh model
        twin.load_state_dict(kind.plain().state_dict(), strict=True)
        assert_equal(kind.run(twin.eval(), x), kind.run(kind.plain().eval(), x))


@by_name(CONVERTED)
def test_a_restored_model_pickles_as_a_plain_one(kind: Kind) -> None:
    model = kind.mollified(level=0.0)
    mollifier.restore(model, force=True)
    data = pickle.dumps(model)
    assert b"mollifier" not in data.replace(b"mollifier.nn.noisy", b""), "only the paper's hard-sigmoid is ours"
    twin = pickle.loads(data)
    assert_equal(kind.run(twin.eval(), kind.input()), kind.run(kind.plain().eval(), kind.input()))


@by_name(KINDS)
@pytest.mark.parametrize("level", [0.5, 0.0])
def test_state_dict_through_a_file(kind: Kind, level: float) -> None:
    """Tensors only, so that torch's safe loader takes it."""
    source = kind.mollified(level=level, seed=8)
    file = io.BytesIO()
    torch.save(source.state_dict(), file)
    file.seek(0)
    model = kind.mollified()
    model.load_state_dict(torch.load(file, weights_only=True), strict=True)
    assert mollifier.levels(model) == [level] * len(mollifier.levels(model))
    assert_equal(kind.run(model.eval(), kind.input()), kind.run(source.eval(), kind.input()))
