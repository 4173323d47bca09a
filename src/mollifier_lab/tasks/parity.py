"""Parity: is the number of ones odd?"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from mollifier_lab.data import parity
from mollifier_lab.settings import Parity
from mollifier_lab.tasks.base import Batch
from mollifier_lab.tasks.classification import Classification, Pair

FRESH = 10_000


class ParityTask(Classification[Parity]):
    """``train`` is the fixed set, whose negative log-likelihood is the paper's curve; ``test`` has other samples.

    If training samples are always new, ``train`` is a sample of their kind, and an epoch is as long as with a fixed set.
    """

    splits = ("train",)
    final = ("train", "test")
    loss_name = "nll"

    def load(self, data: Path | None) -> None:
        given = self.settings
        if given.kind == "fixed":
            train = _pair(*parity.fixed(given.samples, given.bits, self.config.seed))
        else:
            train = self.draw(FRESH, torch.Generator().manual_seed(1_000_000_007 + 2 * self.config.seed))
        # far from the seeds of fixed sets
        test = self.draw(FRESH, torch.Generator().manual_seed(1_000_000_008 + 2 * self.config.seed))
        self.sets = {"train": train, "test": test}

    @property
    def epoch_length(self) -> int:
        return max(1, self.settings.samples // self.settings.batch)

    def width_of_inputs(self) -> int:
        return self.settings.bits

    def draw(self, count: int, generator: torch.Generator) -> Pair:
        """New samples."""
        kinds = {"variable": parity.variable, "prefix": parity.prefix}
        new = kinds.get(self.settings.kind, parity.fresh)
        return _pair(*new(count, self.settings.bits, generator))

    def batch(self, update: int) -> Batch:
        if self.settings.kind == "fixed":
            return super().batch(update)
        return self.draw(self.settings.batch, self.generator(update))


def _pair(inputs: Tensor, labels: Tensor) -> Pair:
    return inputs, labels.float().view(-1, 1)
