"""Pentomino: are the three shapes of an image the same?"""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from mollifier_lab.data import pentomino
from mollifier_lab.settings import Pentomino
from mollifier_lab.tasks.classification import Classification, Pair


class PentominoTask(Classification[Pentomino]):
    """The label is 1 if all three shapes are the same. Images are stored as bytes."""

    inputs = 64 * 64
    sparse = True  # 15 to 60 of 4096 pixels are lit

    def load(self, data: Path | None) -> None:
        train = pentomino.load("train", data)
        self.sets = {"train": _pair(train, self.settings.train)}
        self.sets |= {"valid": _pair(pentomino.load("valid", data)), "test": _pair(pentomino.load("test", data))}

    def prepare(self, inputs: Tensor) -> Tensor:
        return inputs.float()


def _pair(found: pentomino.Pentomino, count: int | None = None) -> Pair:
    return found.images[:count], found.same[:count].float().view(-1, 1)
