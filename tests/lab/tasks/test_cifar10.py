from __future__ import annotations

import pytest
import torch

import mollifier
from mollifier_lab.apply_method import apply_method, finish
from mollifier_lab.data import cifar10
from tests.lab.conftest import MakeTask

CPU = torch.device("cpu")


def test_training_images_are_augmented_and_others_are_not(make_task: MakeTask) -> None:
    task = make_task("cifar10")
    images, labels = task.sets["train"]
    index = task.shuffled(3, len(labels))
    x, y = task.batch(3)
    assert torch.equal(y, labels[index])
    assert torch.equal(x, cifar10.augment(images[index], task.generator(3)))
    seen = []
    model = task.model().eval()
    model.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    task.evaluate(model, "valid", CPU)
    assert torch.equal(torch.cat(seen), cifar10.normalise(task.sets["valid"][0]))


def test_the_learning_rate_is_cut_twice(make_task: MakeTask) -> None:
    task = make_task("cifar10")
    assert task.updates() == 20
    assert [task.lr_factor(update) for update in (0, 9, 10, 14, 15, 19)] == [1.0, 1.0, 0.1, 0.1, 0.01, 0.01]


def running(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([value for key, value in model.state_dict().items() if "running" in key])


def test_statistics_are_measured_where_the_levels_changed(make_task: MakeTask) -> None:
    task = make_task("cifar10", "mollified-residual")
    model = task.model()
    annealer = apply_method(model, task.config)
    model.train()
    before = running(model)
    task.recalibrate(model, CPU)
    measured = running(model)
    assert not torch.equal(measured, before)
    task.recalibrate(model, CPU)
    assert torch.equal(running(model), measured)  # nothing has changed since
    annealer.step(0.7)
    task.recalibrate(model, CPU)
    assert not torch.equal(running(model), measured)
    finish(model, annealer)
    level = running(model)
    task.recalibrate(model, CPU)  # once more for the plain network
    plain = running(model)
    assert not torch.equal(plain, level)
    task.recalibrate(model, CPU)
    assert torch.equal(running(model), plain)
    state = task.state_dict()
    again = make_task("cifar10", "mollified-residual")
    again.load_state_dict(state)
    again.recalibrate(model, CPU)
    assert torch.equal(running(model), plain)


@pytest.mark.parametrize("method", ["residual", "stochastic-depth"])
def test_a_network_without_levels_keeps_its_running_averages(method: str, make_task: MakeTask) -> None:
    task = make_task("cifar10", method)
    model = task.model()
    before = running(model)
    task.recalibrate(model, CPU)
    assert torch.equal(running(model), before)


def test_recalibration_can_be_left_out(make_task: MakeTask) -> None:
    task = make_task("cifar10", "mollified", recalibrate=0)
    model = mollifier.mollify(task.model())
    before = running(model)
    task.recalibrate(model, CPU)
    assert torch.equal(running(model), before)
