"""What the loaders of images return."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mollifier_lab.data.folder import DataError


@dataclass(frozen=True, slots=True)
class Examples:
    """Inputs with their labels, in order."""

    inputs: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: slice | Tensor) -> Examples:
        """Return some of the examples.

        >>> pairs = Examples(torch.arange(6).view(3, 2), torch.tensor([0, 1, 0]))
        >>> pairs[1:].labels
        tensor([1, 0])
        """
        return Examples(self.inputs[index], self.labels[index])


@dataclass(frozen=True, slots=True)
class Splits:
    """The sets for training, for choosing, and for the reported numbers."""

    train: Examples
    valid: Examples
    test: Examples


def shuffle(count: int, seed: int) -> Tensor:
    """Return a permutation of `count` things that is the same on every machine, with every version of torch and numpy.

    >>> shuffle(5, seed=0)
    tensor([2, 0, 1, 3, 4])
    """
    return torch.from_numpy(np.random.RandomState(seed).permutation(count))


def check_share(part: str, wanted: int, there: int) -> None:
    """Raise if a split would leave nothing to train on."""
    if not 0 <= wanted < there:
        raise DataError(
            f"{part}={wanted}: expected a number from 0 to {there - 1}, because there are {there} examples in all"
        )
