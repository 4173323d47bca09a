"""CIFAR-10, the binary version: read and split it, and augment whole batches in the usual way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mollifier_lab.data.examples import Examples, Splits, check_share, shuffle
from mollifier_lab.data.folder import DataError, locate

MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2470, 0.2435, 0.2616)
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SIDE = 32
RECORD = 1 + 3 * SIDE * SIDE
PAD = 4


class Cifar10(Splits):
    """Images uint8 (n, 3, 32, 32), labels int64 (n)."""


def load(folder: Path, *, valid: int = 5_000, seed: int = 0, per_file: int = 10_000) -> Cifar10:
    """Read the set from a data folder. `valid` training images, drawn by `seed`, are reserved for validation.

    Raises:
        DataError: If files are missing or damaged.
    """
    place = locate("cifar10", folder)
    parts = [_read(place / f"data_batch_{number}.bin", per_file) for number in range(1, 6)]
    train = Examples(torch.cat([part.inputs for part in parts]), torch.cat([part.labels for part in parts]))
    check_share("valid", valid, len(train))
    order = shuffle(len(train), seed)
    return Cifar10(
        train=train[order[valid:]], valid=train[order[:valid]], test=_read(place / "test_batch.bin", per_file)
    )


def _read(path: Path, records: int) -> Examples:
    """Read one file: a label byte, then red, green and blue, row by row."""
    again = "; delete it and download it again: mollifier data cifar10"
    size = path.stat().st_size
    if size != records * RECORD:
        raise DataError(f"{path}: {size:,} bytes, expected {records * RECORD:,}{again}")
    table = torch.from_numpy(np.fromfile(path, np.uint8).reshape(records, RECORD))
    labels = table[:, 0].long()
    if labels.max() > 9:
        at = int((labels > 9).nonzero()[0])
        raise DataError(f"{path}: image {at} has label {int(labels[at])}, expected 0 to 9{again}")
    return Examples(table[:, 1:].reshape(records, 3, SIDE, SIDE), labels)


def augment(images: Tensor, generator: torch.Generator) -> Tensor:
    """Shift each image by up to four pixels in each direction, filling with black, and mirror half of them.

    >>> batch = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
    >>> augment(batch, torch.Generator().manual_seed(0)).shape
    torch.Size([2, 3, 32, 32])

    Args:
        images: A tensor (n, channels, height, width) of any type, before `normalise`.
        generator: A generator on the images' device.
    """
    count, _, height, width = images.shape
    device = images.device
    top, left = torch.randint(2 * PAD + 1, (2, count), generator=generator, device=device)
    mirrored = torch.rand(count, generator=generator, device=device) < 0.5
    # every window of the padded images, as a view: choosing one per image copies no more than is kept
    windows = functional.pad(images, (PAD,) * 4).unfold(2, height, 1).unfold(3, width, 1)
    cut = windows[torch.arange(count, device=device), :, top, left]
    return torch.where(mirrored.view(-1, 1, 1, 1), cut.flip(-1), cut)


def normalise(images: Tensor) -> Tensor:
    """Convert bytes to numbers with mean 0 and standard deviation 1 over the training set, channel by channel.

    >>> normalise(torch.full((1, 3, 1, 1), 255, dtype=torch.uint8)).flatten()
    tensor([2.0591, 2.1265, 2.1158])
    """
    mean, std = (torch.tensor(values, device=images.device).view(3, 1, 1) for values in (MEAN, STD))
    return (images / 255 - mean) / std
