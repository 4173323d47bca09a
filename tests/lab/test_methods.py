"""Every method on every task where it applies: it is built, trained, annealed, and ends as the plain network."""

from __future__ import annotations

import pytest
import torch

import mollifier
from mollifier_lab.apply_method import apply_method, finish
from mollifier_lab.errors import LabError
from mollifier_lab.methods import EVERY, METHODS, applicable, method_for
from mollifier_lab.settings import KNOBS, TASKS, Settings
from tests.lab.conftest import MakeTask

PAIRS = [(task, method.name) for task in EVERY for method in applicable(task)]
CPU = torch.device("cpu")


@pytest.mark.parametrize(("name", "method"), PAIRS)
def test_trains_and_ends_plain(name: str, method: str, make_task: MakeTask) -> None:
    task = make_task(name, method)
    torch.manual_seed(1)
    plain = task.model()
    torch.manual_seed(1)
    model = task.model()
    annealer = apply_method(model, task.config, task.example())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    before = {key: value.clone() for key, value in model.named_parameters()}
    for update in range(3):
        loss = task.loss(model, task.batch(update))
        (loss * task.scale).backward()
        assert [key for key, value in model.named_parameters() if value.grad is None] == []
        optimizer.step()
        optimizer.zero_grad()
        if annealer is not None:
            annealer.step(loss)
    changed = [key for key, value in model.named_parameters() if not torch.equal(value, before[key])]
    assert changed
    assert (annealer is not None) == METHODS[method].annealed
    model.eval()
    if annealer is not None:
        levels = mollifier.levels(model)
        assert levels == sorted(levels)
        assert 0 < levels[0] < 1
        assert task.evaluate(model, task.splits[0], CPU).keys()  # at a level between, too
        annealer.finish()
    annealed = task.evaluate(model, task.splits[0], CPU)
    assert finish(model, annealer) is model
    assert not mollifier.is_mollified(model)
    assert [type(part) for part in model.modules()] == [type(part) for part in plain.modules()]
    assert sorted(model.state_dict()) == sorted(plain.state_dict())
    assert task.evaluate(model, task.splits[0], CPU) == annealed


@pytest.mark.parametrize("task", EVERY)
def test_mollified_methods_differ_from_plain_and_from_each_other(task: str, make_task: MakeTask) -> None:
    """In eval, at one level, with the same weights: what is mollified differs, so each method must give another loss."""
    found = {}
    for method in (each for each in applicable(task) if each.architecture == "plain"):
        fresh = make_task(task, method.name)
        torch.manual_seed(3)
        model = fresh.model()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(5)  # small weights would leave every activation at its tangent
            if method.mollify is not None:
                apply_method(model, fresh.config)
                for key, parameter in model.named_parameters():
                    if key.endswith(".a"):  # which depend on what else was drawn
                        parameter.fill_(1.5)
                mollifier.set_level(model, 0.6)
        found[method.name] = fresh.loss(model.eval(), fresh.batch(0)).item()
    # these two differ in train() only: noise on the weights, and expected values where others are sampled
    assert found.pop("weight-noise") == found["plain"]
    assert found.pop("mollified-deterministic") == pytest.approx(found["mollified"], rel=1e-6)
    assert len(set(found.values())) == len(found)


def test_every_pair_is_there_once() -> None:
    assert len(set(PAIRS)) == len(PAIRS)
    assert set(EVERY) == set(TASKS)
    assert {method for _, method in PAIRS} == set(METHODS)
    assert ("cifar10", "highway") not in PAIRS
    assert ("ptb", "gates") in PAIRS


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_knobs_are_settings_with_a_range(method) -> None:
    assert set(method.knobs) <= set(KNOBS)
    assert all(hasattr(Settings, knob) for knob in method.knobs)
    assert method.summary.endswith(".")


def test_errors_name_what_there_is() -> None:
    with pytest.raises(LabError, match="did you mean 'mollified'"):
        method_for("molified", "parity")
    with pytest.raises(LabError, match="'gates' does not apply to task 'parity'; these do: plain, residual"):
        method_for("gates", "parity")
