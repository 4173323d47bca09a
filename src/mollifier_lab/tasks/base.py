"""The interface between the engine and a task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn

from mollifier_lab.settings import RunConfig, Settings

S = TypeVar("S", bound=Settings)
Batch = tuple[Tensor, ...]


class Task(ABC, Generic[S]):
    """A data set, a network, a loss and its metrics.

    A batch depends only on the seed and the number of the update, so that a run can start anywhere. All noise comes from torch's
    generator, which the engine seeds and saves.
    """

    splits: ClassVar[tuple[str, ...]] = ("valid",)
    """The splits that are measured at every evaluation; at the end, all of ``train`` (if it is in here), ``valid`` and ``test`` are."""
    final: ClassVar[tuple[str, ...]] = ("valid", "test")
    scale: float = 1.0
    """The loss is multiplied by this before its gradient is taken; metrics and the annealer see it as it is."""

    def __init__(self, config: RunConfig, data: Path | None = None) -> None:
        self.config = config
        self.settings: S = config.settings  # type: ignore[assignment]
        self.load(data)

    @abstractmethod
    def load(self, data: Path | None) -> None:
        """Read or make the data, and set whatever the other methods need."""

    @property
    @abstractmethod
    def epoch_length(self) -> int:
        """Return the number of updates per epoch."""

    @abstractmethod
    def model(self) -> nn.Module:
        """Return the network that the method names, with its initial weights, not yet mollified."""

    @abstractmethod
    def batch(self, update: int) -> Batch:
        """Return the whole batch of an update, counted from 0; the first dimension of each tensor is the sample."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the mean loss of a batch, or of a rank's part of it."""

    @abstractmethod
    def evaluate(self, model: nn.Module, split: str, device: torch.device) -> dict[str, float]:
        """Return the metrics of a whole split, without the split's name. The model is in eval(), and there are no gradients."""

    def architecture(self) -> dict[str, Any]:
        """Return the arguments that every network here takes: the architecture that the method names, and its stochastic depth and dropout."""
        method, given = self.config.spec, self.settings
        return {
            "architecture": method.architecture,
            "survival": given.survival,
            "per_sample": method.per_sample,
            "dropout": given.dropout,
        }

    def example(self) -> Any:
        """Return an input for `mollify(example=)`, or None if the structure is enough."""
        return None

    def lr_factor(self, update: int) -> float:
        """Return the factor on the learning rate at an update."""
        return 1.0

    def recalibrate(self, model: nn.Module, device: torch.device) -> None:
        """Measure statistics again that a changed level has made stale, before an evaluation. It may use torch's generator freely."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state that is carried from update to update in addition to the model; tensors and numbers only."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""

    def updates(self) -> int:
        """Return the number of updates."""
        return self.settings.updates or max(1, round(self.settings.epochs * self.epoch_length))

    def shuffled(self, update: int, size: int) -> Tensor:
        """Return the indices of a batch from a training set of that size, in an order that is new in every epoch."""
        batch = min(self.settings.batch, size)
        epoch, place = divmod(update, size // batch)
        if getattr(self, "_epoch", None) != epoch:
            generator = torch.Generator().manual_seed(_mix(self.config.seed, epoch))
            self._order, self._epoch = torch.randperm(size, generator=generator), epoch
        return self._order[place * batch : (place + 1) * batch]

    def generator(self, update: int) -> torch.Generator:
        """Return a generator for what a batch draws: augmentation, or the samples themselves."""
        return torch.Generator().manual_seed(_mix(self.config.seed, update, stream=1))


def _mix(seed: int, number: int, stream: int = 0) -> int:
    """Combine three numbers into one seed. Neighbouring seeds give unrelated streams, because torch's generator mixes them well."""
    return (seed * 1_000_003 + number) * 2 + stream
