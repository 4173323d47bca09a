"""The adding problem: what is the sum of the two marked numbers in a sequence? It needs no file."""

from __future__ import annotations

import torch
from torch import Tensor


def draw(batch: int, steps: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return new sequences (batch, steps, 2) of a number in [0, 1) and a mark, with one mark in each half, and sums (batch, 1).

    >>> inputs, sums = draw(3, 8, torch.Generator().manual_seed(0))
    >>> inputs[..., 1].sum(1)
    tensor([2., 2., 2.])
    >>> torch.equal((inputs[..., 0] * inputs[..., 1]).sum(1, keepdim=True), sums)
    True
    """
    numbers = torch.rand(batch, steps, generator=generator)
    half = steps // 2
    first = torch.randint(0, half, (batch,), generator=generator)
    second = torch.randint(half, steps, (batch,), generator=generator)
    marks = torch.zeros(batch, steps)
    rows = torch.arange(batch)
    marks[rows, first] = marks[rows, second] = 1.0
    return torch.stack([numbers, marks], dim=-1), (numbers * marks).sum(1, keepdim=True)
