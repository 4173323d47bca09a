"""What tasks have in common whose networks read one tensor and predict a class."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mollifier_lab.models import mlp
from mollifier_lab.settings import RunConfig
from mollifier_lab.tasks.base import Batch, S, Task
from mollifier_lab.tasks.statistics import Statistics

Pair = tuple[Tensor, Tensor]


class Classification(Task[S]):
    """One logit for two classes, with labels (n, 1) of 0 and 1 as floats; otherwise one logit per class, with integer labels (n,).

    A task's `load` sets `sets`, where ``"train"`` is the training set.
    """

    inputs: ClassVar[int]
    outputs: ClassVar[int] = 1
    loss_name: ClassVar[str] = "loss"
    sparse: ClassVar[bool] = False
    """Whether nearly all inputs are zero."""
    chunk: ClassVar[int] = 5_000
    """Samples that are evaluated at once."""
    sets: dict[str, Pair]

    def __init__(self, config: RunConfig, data: Path | None = None) -> None:
        self.statistics = Statistics()
        super().__init__(config, data)

    @property
    def epoch_length(self) -> int:
        size = len(self.sets["train"][1])
        return size // min(self.settings.batch, size)

    def model(self) -> nn.Module:
        options = {name: getattr(self.settings, name) for name in ("width", "depth", "activation", "gain")}
        return mlp(self.width_of_inputs(), self.outputs, sparse=self.sparse, **options, **self.architecture())

    def width_of_inputs(self) -> int:
        """The number of input units."""
        return self.inputs

    def batch(self, update: int) -> Batch:
        inputs, labels = self.sets["train"]
        index = self.shuffled(update, len(labels))
        return inputs.index_select(0, index), labels.index_select(0, index)

    def prepare(self, inputs: Tensor) -> Tensor:
        """Convert stored samples to what the network reads, on the network's device."""
        return inputs

    def criterion(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the mean negative log-likelihood."""
        if self.outputs == 1:
            return F.binary_cross_entropy_with_logits(logits, labels)
        return F.cross_entropy(logits, labels)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        inputs, labels = batch
        return self.criterion(model(self.prepare(inputs)), labels)

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str, device: torch.device) -> dict[str, float]:
        total = wrong = 0.0
        inputs, labels = self.sets[split]
        for few, truth in zip(torch.split(inputs, self.chunk), torch.split(labels, self.chunk), strict=True):
            few, truth = few.to(device), truth.to(device)
            logits = model(self.prepare(few))
            total += float(self.criterion(logits, truth)) * len(truth)
            found = (logits > 0).to(truth.dtype) if self.outputs == 1 else logits.argmax(1)
            wrong += int((found != truth).sum())
        return {self.loss_name: total / len(labels), "error": wrong / len(labels)}

    def recalibrate(self, model: nn.Module, device: torch.device) -> None:
        def run(number: int) -> None:
            model(self.prepare(self.batch(number)[0].to(device)))

        self.statistics.refresh(model, run, getattr(self.settings, "recalibrate", 20))

    def state_dict(self) -> dict[str, Any]:
        return {"levels": list(self.statistics.measured)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.statistics.measured = list(state["levels"])
