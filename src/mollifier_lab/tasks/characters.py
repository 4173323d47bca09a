"""Map the characters of a word to its vector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mollifier_lab.data import words
from mollifier_lab.data.folder import data_folder
from mollifier_lab.models import CharacterEncoder
from mollifier_lab.settings import Characters, RunConfig
from mollifier_lab.tasks.base import Batch, Task
from mollifier_lab.tasks.statistics import Statistics

CHUNK = 2_000


class CharactersTask(Task[Characters]):
    """The loss is the mean squared error per dimension, for vectors with mean 0 and standard deviation 1 over the training words.

    The mean vector therefore has a loss of 1, whatever the vectors. ``cosine`` is 1 - the mean cosine similarity with the vectors as they are in the file.
    """

    def __init__(self, config: RunConfig, data: Path | None = None) -> None:
        self.statistics = Statistics()
        super().__init__(config, data)

    def load(self, data: Path | None) -> None:
        given = self.settings
        found = words.load(
            data_folder(data),
            limit=given.words or None,
            longest=given.longest,
            valid=given.valid,
            test=given.valid,
        )
        self.sets = {"train": found.train, "valid": found.valid, "test": found.test}
        self.characters = found.characters
        std, self.mean = torch.std_mean(found.train.vectors, 0, correction=0)
        self.std = torch.where(std > 0, std, 1.0)

    @property
    def epoch_length(self) -> int:
        size = len(self.sets["train"])
        return size // min(self.settings.batch, size)

    def model(self) -> nn.Module:
        given = self.settings
        return CharacterEncoder(
            self.characters,
            len(self.mean),
            embedding=given.embedding,
            width=given.width,
            depth=given.depth,
            gates=given.gates,
            gain=given.gain,
            **self.architecture(),
        )

    def batch(self, update: int) -> Batch:
        """Return characters, lengths and vectors."""
        return self.some("train", self.shuffled(update, len(self.sets["train"])))

    def some(self, split: str, index: Tensor) -> Batch:
        """Return these words of a split, with standardised vectors."""
        characters, lengths, vectors = self.sets[split].batch(index)
        return characters, lengths, (vectors - self.mean) / self.std

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        characters, lengths, vectors = batch
        return F.mse_loss(model(characters, lengths), vectors)

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str, device: torch.device) -> dict[str, float]:
        size, loss, similar = len(self.sets[split]), 0.0, 0.0
        mean, std = self.mean.to(device), self.std.to(device)
        for index in torch.split(torch.arange(size), CHUNK):
            characters, lengths, vectors = (part.to(device) for part in self.some(split, index))
            found = model(characters, lengths)
            loss += float(F.mse_loss(found, vectors)) * len(index)
            similar += float(F.cosine_similarity(found * std + mean, vectors * std + mean).sum())
        return {"loss": loss / size, "cosine": 1.0 - similar / size}

    def recalibrate(self, model: nn.Module, device: torch.device) -> None:
        def run(number: int) -> None:
            characters, lengths, _ = self.batch(number)
            model(characters.to(device), lengths.to(device))

        self.statistics.refresh(model, run, 20)

    def state_dict(self) -> dict[str, Any]:
        return {"levels": list(self.statistics.measured)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.statistics.measured = list(state["levels"])
