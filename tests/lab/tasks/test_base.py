"""What holds for every task."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

from mollifier_lab.data.folder import DataError
from mollifier_lab.errors import LabError
from mollifier_lab.methods import EVERY
from mollifier_lab.settings import RunConfig
from mollifier_lab.tasks import Batch, make
from tests.lab.conftest import MakeTask
from tests.lab.files import TINY


def same(one: Batch, two: Batch) -> bool:
    return len(one) == len(two) and all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("name", EVERY)
def test_a_batch_is_a_function_of_seed_and_update(name: str, make_task: MakeTask) -> None:
    task = make_task(name)
    first = [task.batch(update) for update in range(8)]
    torch.manual_seed(99)  # the generator of the noise has no part in it
    again = copy.copy(make_task(name))
    order = (5, 0, 7, 2, 2, 6, 1)
    assert all(same(again.batch(update), first[update]) for update in order)
    assert not same(first[0], first[1])
    if name != "ptb":  # a text is read in its order, whatever the seed
        other = make_task(name, seed=1)
        assert not same(other.batch(0), first[0])
    for batch in first:
        assert {len(part) for part in batch} == {4}


@pytest.mark.parametrize("name", ["mnist", "characters"])
def test_every_epoch_shows_every_sample_once_in_another_order(name: str, make_task: MakeTask) -> None:
    task = make_task(name)
    length = task.epoch_length
    epochs = []
    for epoch in range(2):
        batches = [task.batch(epoch * length + number)[0].sum(1) for number in range(length)]
        epochs.append(torch.cat(batches))
    size = 4 * length
    assert size == (12 if name == "mnist" else 40)
    assert not torch.equal(epochs[0], epochs[1])
    assert torch.equal(epochs[0].sort().values, epochs[1].sort().values)


@pytest.mark.parametrize("name", EVERY)
def test_evaluation_is_repeatable_and_draws_nothing(name: str, make_task: MakeTask) -> None:
    task = make_task(name)
    torch.manual_seed(5)
    model = task.model().eval()
    state = torch.get_rng_state()
    for split in {*task.splits, *task.final}:
        found = task.evaluate(model, split, torch.device("cpu"))
        assert task.evaluate(model, split, torch.device("cpu")) == found
        curve = {f"{split}_{metric}" for metric in found}
        assert task.settings.curve in curve or split not in task.splits
        assert task.settings.headline in curve or split != task.final[-1] or name == "parity"
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", ["mnist", "cifar10", "ptb", "characters"])
def test_missing_data_are_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not found"):
        make(RunConfig.make(name, "plain", **TINY[name]), tmp_path)


def test_the_seed_of_torch_decides_the_initial_weights(make_task: MakeTask) -> None:
    task = make_task("mnist")
    weights = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        weights.append(task.model()[0].weight)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_unknown_task() -> None:
    config = copy.copy(RunConfig.make("parity", "plain"))
    object.__setattr__(config, "task", "party")
    with pytest.raises(LabError, match="did you mean 'parity'"):
        make(config)
