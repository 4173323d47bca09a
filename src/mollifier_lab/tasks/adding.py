"""The adding problem: what is the sum of the two marked numbers?"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mollifier_lab.data import adding
from mollifier_lab.models.sequence import SequenceSum
from mollifier_lab.settings import Adding
from mollifier_lab.tasks.base import Batch, Task

SAMPLES, CHUNK = 2_000, 500


class AddingTask(Task[Adding]):
    """Training sequences are always new. ``valid`` and ``test`` have 2000 other sequences each, the same for all seeds. An epoch is 1000
    updates.
    """

    def load(self, data: Path | None) -> None:
        steps = self.settings.steps
        # far from the seeds of training batches
        self.sets = {
            split: adding.draw(SAMPLES, steps, torch.Generator().manual_seed(seed))
            for split, seed in (("valid", 2_000_000_011), ("test", 2_000_000_033))
        }

    @property
    def epoch_length(self) -> int:
        return 1000

    def model(self) -> nn.Module:
        given = self.settings
        return SequenceSum(given.cell, given.width, gates=given.gates, orthogonal=given.init == "orthogonal")

    def batch(self, update: int) -> Batch:
        return adding.draw(self.settings.batch, self.settings.steps, self.generator(update))

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        inputs, sums = batch
        return F.mse_loss(model(inputs), sums)

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str, device: torch.device) -> dict[str, float]:
        total = 0.0
        for inputs, sums in zip(*(torch.split(part, CHUNK) for part in self.sets[split]), strict=True):
            total += float(F.mse_loss(model(inputs.to(device)), sums.to(device), reduction="sum"))
        return {"loss": total / SAMPLES}
