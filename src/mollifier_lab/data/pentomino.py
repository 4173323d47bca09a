"""Pentomino: three small shapes on a 64x64 image; are they the same? Generated with the authors' own random stream.

The authors draw every number with ``RandomState.randint``: one 32-bit word, cut to the fewest bits that can hold the range and
drawn again while it is too big. The number of words of a scene therefore depends on the words. To be fast, we compute the length of
the scene that would start at *every* word at once; following the lengths from the start then finds the real scenes.
"""

from __future__ import annotations

import hashlib
import logging
import os
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mollifier_lab import files
from mollifier_lab.data.folder import DataError, cache_folder

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]

SAME = 10  # the label of a scene in which all shapes are the same
SHAPES = (
    "x. x. x. xx", ".x .x xx x.", "xx xx x.", ".xx xx. .x.", ".x xx .x .x",
    ".x .x .x xx", "x. x. xx .x", "xx xx .x", "xx. .xx .x.", "x. xx x. x.",
)  # fmt: skip
TAIL = 9  # after its shapes, a scene draws three rotations, three scales, three blocks
CHUNK = 60_000  # scenes that are decoded at once: bounds the memory, whatever the count


@dataclass(frozen=True, slots=True)
class Scenes:
    """Candidate scenes, one per row: the label, and for each of the three sprites its shape, pattern and block."""

    label: Bytes
    shape: Bytes
    pattern: Bytes
    block: Bytes


def generate(count: int, seed: int) -> tuple[Bytes, Bytes, NDArray[np.int8]]:
    """Return images (n, 4096) of 0 and 1, labels (n, 1), and hints (n, 64): the shape in each block, or -1 where there is none.

    The label is the shape that differs from the other two, 0..9, or 10 if all three are the same.

    >>> images, labels, hints = generate(3, seed=735128712)
    >>> images.shape, labels.ravel().tolist(), [int((row >= 0).sum()) for row in hints]
    ((3, 4096), [8, 7, 10], [3, 3, 3])
    """
    if count < 0:
        raise DataError(f"pentomino: count must be 0 or more, got {count}")
    images = np.zeros((count, 8, 8, 8), np.uint64)  # block row, pixel row, block column; eight pixels are one number
    labels = np.empty((count, 1), np.uint8)
    hints = np.full((count, 64), -1, np.int8)
    pixels = _patterns()[0]
    done = 0
    for scenes in _accepted(count, seed):
        row = np.arange(done, done + len(scenes.label))
        labels[row, 0] = scenes.label
        for sprite in range(3):
            block = scenes.block[:, sprite]
            images[row, block >> 3, :, block & 7] = pixels[scenes.pattern[:, sprite]]
            hints[row, block] = scenes.shape[:, sprite]
        done += len(row)
    return images.view(np.uint8).reshape(count, 4096), labels, hints


def _accepted(count: int, seed: int) -> Iterator[Scenes]:
    """Yield `count` scenes without a collision, in pieces."""
    stream = np.random.RandomState(seed)
    words = np.empty(0, np.uint8)
    while count:
        # 12.3 words per scene, and one scene in ten is rejected: 15 per image are nearly always enough, otherwise there is another round
        fresh = stream.randint(0, 1 << 32, size=15 * min(count, CHUNK) + 100, dtype=np.uint32)
        words = np.concatenate([words, (fresh & 63).astype(np.uint8)])  # no draw needs more than six bits
        scenes, used = _decode(words)
        words = words[used:]
        good = np.flatnonzero(~_collides(scenes))[:count]
        count -= len(good)
        yield Scenes(scenes.label[good], scenes.shape[good], scenes.pattern[good], scenes.block[good])


def _decode(words: Bytes) -> tuple[Scenes, int]:
    """Return all complete scenes at the start of the stream, and how many words they take.

    A scene consists of a flag, one shape if it is set or two different ones otherwise (words above 9 and repeats are drawn again), and the tail.
    """
    digit = words & 15
    usable = digit <= 9
    at = np.flatnonzero(usable)  # where a shape can be read
    nth = np.cumsum(usable)  # nth[s] = which of them comes first after word s
    shape = digit[at]
    change = np.flatnonzero(shape[1:] != shape[:-1]) + 1
    runs = np.diff(change, prepend=0)
    other = np.repeat(change, runs)  # the first usable shape after this one that differs; the last run has none yet
    missing = len(at) - len(other) + 1
    first = np.append(at, len(words))
    second = np.append(at[other], np.full(missing, len(words)))
    flag = words & 1
    ends = np.where(flag, first[nth], second[nth]) + 1 + TAIL  # where the next scene would start, for every word

    following = ends.tolist()
    starts, here, size = [], 0, len(words)
    while here < size and following[here] <= size:
        starts.append(here)
        here = following[here]

    start = np.array(starts, np.int64)
    same = flag[start] == 1
    one = digit[first[nth[start]]]
    two = np.where(same, one, digit[ends[start] - 1 - TAIL])
    tail = words[(ends[start] - TAIL)[:, None] + np.arange(TAIL)]
    shapes = np.stack([one, two, two], axis=1)
    pattern = shapes * 8 + (tail[:, 0:3] & 3) * 2 + (tail[:, 3:6] & 1)
    return Scenes(np.where(same, np.uint8(SAME), one), shapes, pattern, tail[:, 6:9]), here


def _collides(scenes: Scenes) -> NDArray[np.bool_]:
    """Return True where two sprites touch: the authors reject the whole scene."""
    touch = _patterns()[1]
    y, x = (scenes.block >> 3).astype(np.int8), (scenes.block & 7).astype(np.int8)
    hit = np.zeros(len(y), bool)
    for a, b in ((0, 1), (0, 2), (1, 2)):
        dy, dx = y[:, b] - y[:, a], x[:, b] - x[:, a]
        near = np.flatnonzero((abs(dy) <= 1) & (abs(dx) <= 1))
        hit[near] |= touch[scenes.pattern[near, a], scenes.pattern[near, b], dy[near] + 1, dx[near] + 1]
    return hit


@cache
def _patterns() -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Return the 80 patterns (shape, rotation, scale) as eight rows of eight pixels, and which pairs touch at which block offset."""
    pixels = np.zeros((80, 8, 8), np.uint8)
    masks = np.zeros((80, 12, 12), bool)  # the pattern grown by its border, with two pixels around the block
    for number in range(80):
        rows = SHAPES[number // 8].split()
        shape = np.rot90(np.array([[cell == "x" for cell in row] for row in rows]), -(number // 2 % 4))
        grown = np.zeros((shape.shape[0] + 2, shape.shape[1] + 2), bool)
        for dy, dx in np.ndindex(3, 3):
            grown[dy : dy + shape.shape[0], dx : dx + shape.shape[1]] |= shape
        scale = number % 2 + 1
        big, border = (np.kron(part, np.ones((scale, scale), bool)) for part in (shape, grown))
        pixels[number, : big.shape[0], : big.shape[1]] = big
        masks[number, 2 - scale :, 2 - scale :][: border.shape[0], : border.shape[1]] = border
    touch = np.zeros((80, 80, 3, 3), bool)
    for dy, dx in np.ndindex(3, 3):
        here = np.zeros((80, 28, 28), np.float32)
        there = here.copy()
        here[:, 8:20, 8:20] = masks
        there[:, 8 * dy : 8 * dy + 12, 8 * dx : 8 * dx + 12] = masks
        touch[:, :, dy, dx] = here.reshape(80, -1) @ there.reshape(80, -1).T > 0
    return pixels.view(np.uint64).reshape(80, 8), touch


@dataclass(frozen=True, slots=True)
class Pentomino:
    """Images uint8 (n, 4096), labels uint8 (n) from 0 to 10, hints int8 (n, 64)."""

    images: Tensor
    labels: Tensor
    hints: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def same(self) -> Tensor:
        """Return the task's target, int64: 1 where all three shapes are the same."""
        return (self.labels == SAME).long()


TRAIN, HELD_OUT = (80_000, 735128712), (20_000, 112168712)
# checksum of the packed images, labels and hints, one after the other
STORED = {
    TRAIN: "8f4698ae5e024893c8f0c0affbb4b9bd3e74dde27a40713a7b3cc994f7a2e77f",
    HELD_OUT: "0cd2a701ef47a35c942d0a284a51c49e1f2bfcc2e8d00c10c27dd55662fa80c1",
}


def load(split: Literal["train", "valid", "test"], folder: Path | None = None) -> Pentomino:
    """Return the authors' 80,000 training images, or the first (valid) or last (test) 10,000 of their other 20,000.

    They are generated once and kept, packed, in ``pentomino/`` of the cache folder: $MOLLIFIER_CACHE, or the data folder, or the user's cache folder.
    """
    base = folder if folder is not None and "MOLLIFIER_CACHE" not in os.environ else cache_folder()
    place = base / "pentomino"
    if split == "train":
        return _cached(place, *TRAIN)
    if split not in ("valid", "test"):
        raise DataError(f"pentomino: split={split!r}; expected 'train', 'valid' or 'test'")
    both = _cached(place, *HELD_OUT)
    half = slice(0, 10_000) if split == "valid" else slice(10_000, None)
    return Pentomino(both.images[half], both.labels[half], both.hints[half])


def _cached(place: Path, count: int, seed: int) -> Pentomino:
    """Read the set from its file, which is generated if it does not exist or is damaged."""
    path = place / f"{count}-{seed}.npz"
    if path.is_file():
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                packed, labels, hints = (stored[name] for name in ("images", "labels", "hints"))
            if _digest(packed, labels, hints) != STORED[count, seed]:
                raise ValueError("its contents differ")
            return _tensors(np.unpackbits(packed, axis=1), labels, hints)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            warnings.warn(f"{path} is damaged ({error}) and is generated again", stacklevel=3)
    logging.getLogger("mollifier").info(f"generating {count:,} images of Pentomino, once for this machine")
    images, labels, hints = generate(count, seed)
    try:
        with files.atomic(path) as part, part.open("wb") as out:
            np.savez(out, images=np.packbits(images, axis=1), labels=labels, hints=hints)
    except OSError as error:
        warnings.warn(f"pentomino could not be kept in {place}: {error}", stacklevel=3)
    return _tensors(images, labels, hints)


def _tensors(images: Bytes, labels: Bytes, hints: NDArray[np.int8]) -> Pentomino:
    return Pentomino(torch.from_numpy(images), torch.from_numpy(labels).view(-1), torch.from_numpy(hints))


def _digest(*arrays: NDArray[Any]) -> str:
    """Return one checksum over all arrays."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(array.tobytes())
    return total.hexdigest()
