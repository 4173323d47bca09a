"""MNIST: handwritten digits, from the four idx files."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from mollifier_lab.data.examples import Examples, Splits, check_share
from mollifier_lab.data.folder import DataError, locate

SIDE = 28


class Mnist(Splits):
    """Images uint8 (n, 28, 28), labels int64 (n)."""


def load(folder: Path, *, valid: int = 10_000) -> Mnist:
    """Read the set from a data folder. The last `valid` training images are reserved for validation.

    Raises:
        DataError: If files are missing or damaged.
    """
    place = locate("mnist", folder)
    train, test = _pair(place, "train"), _pair(place, "t10k")
    check_share("valid", valid, len(train))
    cut = len(train) - valid
    return Mnist(train=train[:cut], valid=train[cut:], test=test)


def _pair(place: Path, part: str) -> Examples:
    """Read images and their labels."""
    images = read_idx(place / f"{part}-images-idx3-ubyte.gz", (SIDE, SIDE))
    labels = read_idx(place / f"{part}-labels-idx1-ubyte.gz", ())
    if len(images) != len(labels):
        raise DataError(f"{place}: {len(images)} {part} images, but {len(labels)} labels; download both again")
    if len(labels) == 0 or labels.max() > 9:
        raise DataError(f"{place / f'{part}-labels-idx1-ubyte.gz'}: expected labels from 0 to 9, and at least one")
    return Examples(torch.from_numpy(images), torch.from_numpy(labels).long())


def read_idx(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Return the array (n, *shape) of bytes in a gzipped idx file.

    Raises:
        DataError: If it is damaged, or contains something else.
    """
    rank = 1 + len(shape)
    again = "; delete it and download it again: mollifier data mnist"
    try:
        with gzip.open(path) as file:
            head = file.read(4 + 4 * rank)
            magic, *sizes = np.frombuffer(head, ">u4", count=len(head) // 4).tolist() or [None]
            if magic != 0x800 + rank or len(sizes) != rank or tuple(sizes[1:]) != shape:
                raise DataError(
                    f"{path}: expected an idx file of bytes (magic {0x800 + rank:#06x}) of shape {('n', *shape)}, "
                    f"found magic {magic if magic is None else hex(magic)} and sizes {sizes}{again}"
                )
            size = int(np.prod(sizes, dtype=object))
            body = file.read(size + 1)  # one byte more than there may be
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: damaged or cut short ({error}){again}") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    if len(body) != size:
        less = "less" if len(body) < size else "more"
        raise DataError(f"{path}: announces {size:,} bytes for sizes {sizes}, but contains {less}{again}")
    return np.frombuffer(bytearray(body), np.uint8).reshape(sizes)
