"""Parity: is the number of ones odd? It needs no file."""

from __future__ import annotations

import torch
from torch import Tensor


def fixed(samples: int, bits: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return a training set that is always the same: inputs (samples, bits) of -1 and 1, and labels that are 1 where the number of ones is
    odd.

    >>> inputs, labels = fixed(4, bits=3, seed=0)
    >>> torch.equal(labels, (inputs > 0).sum(1) % 2)
    True
    """
    return fresh(samples, bits, torch.Generator().manual_seed(seed))


def fresh(batch: int, bits: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return new samples of the same kind, on the generator's device.

    >>> inputs, labels = fresh(2, bits=40, generator=torch.Generator().manual_seed(0))
    >>> inputs.shape, labels.dtype
    (torch.Size([2, 40]), torch.int64)
    """
    _check(batch, bits)
    ones = torch.randint(2, (batch, bits), generator=generator, device=generator.device)
    return (2 * ones - 1).float(), ones.sum(1) % 2


def variable(batch: int, bits: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return parity of variable length (Graves 2016): between 1 and all of the inputs, at any positions, are -1 or 1, and the rest are 0.

    >>> inputs, labels = variable(3, bits=8, generator=torch.Generator().manual_seed(0))
    >>> (inputs != 0).sum(1)
    tensor([1, 2, 6])
    """
    inputs, length = _with_lengths(batch, bits, generator)
    rank = torch.rand(batch, bits, generator=generator, device=generator.device).argsort(1)
    return _kept(inputs, rank < length)


def prefix(batch: int, bits: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return parity of variable length like `variable`, except that the inputs which are not 0 come first.

    This is easier to learn: samples with few inputs always have the same few.

    >>> inputs, labels = prefix(3, bits=8, generator=torch.Generator().manual_seed(0))
    >>> (inputs != 0).int()
    tensor([[1, 0, 0, 0, 0, 0, 0, 0],
            [1, 1, 0, 0, 0, 0, 0, 0],
            [1, 1, 1, 1, 1, 1, 0, 0]], dtype=torch.int32)
    """
    inputs, length = _with_lengths(batch, bits, generator)
    return _kept(inputs, torch.arange(bits, device=generator.device) < length)


def _with_lengths(batch: int, bits: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return new inputs, and for each sample how many of them are to be kept."""
    inputs, _ = fresh(batch, bits, generator)
    return inputs, torch.randint(1, bits + 1, (batch, 1), generator=generator, device=generator.device)


def _kept(inputs: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
    """Return the inputs, 0 where they are not kept, and their parity."""
    inputs = inputs * kept
    return inputs, (inputs > 0).sum(1) % 2


def _check(batch: int, bits: int) -> None:
    """Check the sizes."""
    if batch < 0 or bits < 1:
        raise ValueError(f"parity: expected batch >= 0 and bits >= 1, got batch={batch}, bits={bits}")
