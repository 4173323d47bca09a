"""The tasks behind `mollifier_lab.compare`: any model and data, as a task that can run, resume and be reported on.

Configs name this module as their code, so that commands can list the runs and report on them. Resuming a run needs the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mollifier_lab.errors import LabError
from mollifier_lab.register import register_task
from mollifier_lab.settings import Settings
from mollifier_lab.tasks.base import Batch, Task
from mollifier_lab.tasks.statistics import Statistics

Loss = Callable[[Any, Tensor], Tensor]
CHUNK = 1000  # samples that are evaluated at once
BATCHES = 20  # samples on which the statistics of batch norm are measured


@dataclass(frozen=True)
class Given:
    """What `mollifier_lab.compare` was given."""

    make_model: Callable[[], nn.Module]
    make_data: Callable[[], Any]
    loss: Loss | None = None


given: list[Given] = []  # the one that is being compared


@dataclass(frozen=True, kw_only=True)
class OwnModel(Settings):
    """A model and data given from Python."""

    curve: ClassVar[str] = "valid_loss"
    headline: ClassVar[str] = "test_loss"

    target: float = 0.0  # type: ignore[misc]
    """A value of the validation loss: the table counts the updates until it is reached."""
    chance: float = 1.0  # type: ignore[misc]
    """The table's value for a run that diverged: that of the untrained network."""
    epochs: float = 20.0


@dataclass(frozen=True, kw_only=True)
class OwnClassifier(OwnModel):
    """A classifier and data given from Python."""

    headline: ClassVar[str] = "test_error"


class OwnModelTask(Task[OwnModel]):
    """Splits of tensors: inputs, and the targets last."""

    def load(self, data: Path | None) -> None:
        if not given:
            raise LabError("the model of this run was given from Python: call mollifier_lab.compare again, with the same arguments, to resume it")  # fmt: skip
        self.given, self.statistics = given[-1], Statistics()
        self.sets = splits(self.given.make_data())

    @property
    def epoch_length(self) -> int:
        size = len(self.sets["train"][-1])
        return size // min(self.settings.batch, size)

    def model(self) -> nn.Module:
        return self.given.make_model()

    def example(self) -> Any:
        first = tuple(each[:1] for each in self.sets["train"][:-1])
        return first[0] if len(first) == 1 else first

    def batch(self, update: int) -> Batch:
        index = self.shuffled(update, len(self.sets["train"][-1]))
        return tuple(each.index_select(0, index) for each in self.sets["train"])

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        *inputs, targets = batch
        return self.criterion(model(*inputs), targets)

    def criterion(self, outputs: Any, targets: Tensor) -> Tensor:
        """Return the given loss, or the default: cross-entropy for integers, and the mean squared error for others."""
        if self.given.loss is not None:
            return self.given.loss(outputs, targets)
        return F.mse_loss(outputs, targets) if targets.is_floating_point() else F.cross_entropy(outputs, targets)

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str, device: torch.device) -> dict[str, float]:
        total = wrong = 0.0
        few = zip(*(torch.split(each, CHUNK) for each in self.sets[split]), strict=True)
        for *inputs, targets in (tuple(each.to(device) for each in part) for part in few):
            outputs = model(*inputs)
            total += float(self.criterion(outputs, targets)) * len(targets)
            wrong += float((outputs.argmax(1) != targets).sum()) if self.settings.headline == "test_error" else 0.0
        size = len(self.sets[split][-1])
        return {"loss": total / size} | ({"error": wrong / size} if self.settings.headline == "test_error" else {})

    def recalibrate(self, model: nn.Module, device: torch.device) -> None:
        def run(number: int) -> None:
            model(*(each.to(device) for each in self.batch(number)[:-1]))

        self.statistics.refresh(model, run, BATCHES)

    def state_dict(self) -> dict[str, Any]:
        return {"levels": list(self.statistics.measured)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.statistics.measured = list(state["levels"])


class OwnClassifierTask(OwnModelTask):
    """The same, with integers as targets, and the error in the table."""


def mollifier_register() -> None:
    """Register the tasks. This is not done at import, so that lists of tasks do not depend on what else was imported."""
    register_task("own-model", OwnModel)(OwnModelTask)
    register_task("own-classifier", OwnClassifier)(OwnClassifierTask)


def splits(found: Any) -> dict[str, tuple[Tensor, ...]]:
    """Return what ``make_data`` returned, by split. Two splits are for training and validation; the second is then used for the test as
    well.

    >>> x, y = torch.zeros(4, 2), torch.zeros(4)
    >>> sorted(splits([(x, y), (x, y)]))
    ['test', 'train', 'valid']

    Raises:
        LabError: If it returned something else.
    """
    named = found if isinstance(found, dict) else dict(zip(("train", "valid", "test"), found, strict=False))
    named = {**named, "test": named.get("test", named.get("valid"))}
    good = set(named) == {"train", "valid", "test"} and all(
        isinstance(part, tuple | list) and len(part) > 1 and all(isinstance(each, Tensor) and len(each) == len(part[-1]) > 0 for each in part)
        for part in named.values()
    )  # fmt: skip
    if not good:
        raise LabError(
            "make_data: expected (train, valid) or (train, valid, test), each a tuple (inputs, targets) of tensors of one length"
        )
    return {split: tuple(part) for split, part in named.items()}
