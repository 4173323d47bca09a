"""One file per task of the paper: its data, network, loss and metrics."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from mollifier_lab.errors import pick
from mollifier_lab.register import OWN
from mollifier_lab.settings import RunConfig
from mollifier_lab.tasks.base import Batch as Batch, Task as Task
from mollifier_lab.tasks.classification import Classification as Classification

_CLASSES = {
    "parity": "ParityTask",
    "pentomino": "PentominoTask",
    "mnist": "MnistTask",
    "cifar10": "Cifar10Task",
    "ptb": "PtbTask",
    "characters": "CharactersTask",
    "adding": "AddingTask",
}


def make(config: RunConfig, data: Path | None = None) -> Task[Any]:
    """Return the task of a config, with its data.

        >>> task = make(RunConfig.make("parity", "plain", preset="quick"))
        >>> inputs, labels = task.batch(0)
        >>> inputs.shape, labels.shape
        (torch.Size([100, 40]), torch.Size([100, 1]))

    Args:
        config: The config of the run.
        data: The data folder, see `mollifier_lab.data.folder.data_folder`.

    Raises:
        LabError: If data is missing, damaged or too small.
    """
    if config.task in OWN:
        own: Task[Any] = OWN[config.task](config, data)
        return own
    name = pick("task", config.task, _CLASSES)
    kind: type[Task[Any]] = getattr(import_module(f"mollifier_lab.tasks.{config.task}"), name)
    return kind(config, data)
