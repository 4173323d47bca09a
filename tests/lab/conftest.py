"""Data for the tests of models, tasks and methods, made once."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import mollifier
from mollifier_lab.models import mlp
from mollifier_lab.settings import RunConfig
from mollifier_lab.tasks import Task, make
from mollifier_lab.tasks.classification import Classification
from mollifier_lab.tasks.statistics import Statistics
from tests.lab import files

MakeTask = Callable[..., Task[Any]]
OF_DATA = {"bits", "samples", "data", "train", "tokens", "batch", "steps", "words", "valid"}


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return files.fill(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def loaded() -> dict[str, Task[Any]]:
    return {}


@pytest.fixture
def make_task(tiny_folder: Path, loaded: dict[str, Task[Any]], monkeypatch: pytest.MonkeyPatch) -> MakeTask:
    """A task with tiny settings; the data of each are read once, and only some are evaluated on."""
    # what is kept in the cache folder goes into ours; but the kernels, if there are any, are where they always are
    mollifier.mollify(mlp(2, 1, width=2, depth=1))(torch.ones(1, 2))
    monkeypatch.setenv("MOLLIFIER_CACHE", str(tiny_folder / "cache"))

    def fresh(name: str, method: str = "plain", seed: int = 0, **changes: Any) -> Task[Any]:
        config = RunConfig.make(name, method, seed, **files.TINY[name] | changes)
        if changes.keys() & OF_DATA:
            return some(make(config, tiny_folder))
        if name not in loaded:
            loaded[name] = some(make(RunConfig.make(name, "plain", **files.TINY[name]), tiny_folder))
        again = copy.copy(loaded[name])
        again.config, again.settings = config, config.settings
        if name == "parity":  # its samples are the seed's own
            again.load(None)
        again.__dict__.update(statistics=Statistics(), carried=None)
        return again

    return fresh


def some(task: Task[Any]) -> Task[Any]:
    """With twenty pictures a split, none of them black."""
    if isinstance(task, Classification):
        for split, (x, y) in task.sets.items():
            index = x.flatten(1).any(1).nonzero()[:20, 0]
            task.sets[split] = (x[index], y[index])
    return task
