"""Words as characters, with their vectors: what the character encoder learns from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mollifier_lab.data.examples import shuffle
from mollifier_lab.data.folder import DataError, locate
from mollifier_lab.data.vectors import load_vectors

PADDING, UNKNOWN = 0, 1
FIRST = 2  # the number of the first character


@dataclass(frozen=True, slots=True)
class WordSet:
    """Some words: their characters int32 (n, longest) padded with 0, lengths int64 (n), and vectors float32 (n, dimension)."""

    words: list[str]
    characters: Tensor
    lengths: Tensor
    vectors: Tensor

    def __len__(self) -> int:
        return len(self.words)

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return characters, int64, as wide as the longest of these words, with lengths and vectors."""
        lengths = self.lengths[index]
        width = int(lengths.max()) if len(index) else 0
        return self.characters[index, :width].long(), lengths, self.vectors[index]


@dataclass(frozen=True, slots=True)
class Words:
    """Three sets of words, and the characters of the training words, the most frequent first, numbered from `FIRST`."""

    train: WordSet
    valid: WordSet
    test: WordSet
    alphabet: str

    @property
    def characters(self) -> int:
        """The number of character numbers, including padding and unknown."""
        return FIRST + len(self.alphabet)


def load(
    folder: Path,
    *,
    limit: int | None = None,
    longest: int | None = None,
    valid: int = 10_000,
    test: int = 10_000,
    seed: int = 0,
) -> Words:
    """Read word vectors from a data folder, or from a file, and split them by `seed`.

    Args:
        folder: The data folder, or the file itself.
        limit: Use only this many words from the start of the file.
        longest: Words with more characters are left out.
        valid: Number of words for validation.
        test: Number of words for the test.
        seed: The seed of the split.

    Raises:
        DataError: If there is no file, it is damaged, or it has too few words.
    """
    table = load_vectors(locate("word-vectors", folder), limit)
    kept = [number for number, word in enumerate(table.words) if longest is None or len(word) <= longest]
    if min(valid, test) < 0 or valid + test >= len(kept):
        raise DataError(f"{len(kept)} words are too few for valid={valid} and test={test} and some to train on")
    order = torch.tensor(kept)[shuffle(len(kept), seed)]
    parts = {"test": order[:test], "valid": order[test : test + valid], "train": order[test + valid :].sort().values}
    spelled = {part: [table.words[number] for number in index.tolist()] for part, index in parts.items()}
    alphabet = _alphabet(spelled["train"])
    sets = {}
    for part, index in parts.items():
        characters, lengths = encode(spelled[part], alphabet)
        sets[part] = WordSet(spelled[part], characters, lengths, torch.from_numpy(table.vectors[index.numpy()]))
    return Words(**sets, alphabet=alphabet)


def encode(words: list[str], alphabet: str) -> tuple[Tensor, Tensor]:
    """Return words as rows of character numbers, padded with 0, and their lengths.

    >>> encode(["ab", "b?a"], "ab")
    (tensor([[2, 3, 0],
            [3, 1, 2]], dtype=torch.int32), tensor([2, 3]))
    """
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    known = _codes([alphabet])
    order = np.argsort(known)
    codes = _codes(words)
    place = np.searchsorted(known[order], codes).clip(max=max(len(known) - 1, 0))
    numbers = np.full(len(codes), UNKNOWN, np.int32)
    if len(known):
        found = order[place]
        numbers = np.where(known[found] == codes, found + FIRST, UNKNOWN).astype(np.int32)
    table = np.full((len(words), int(lengths.max(initial=0))), PADDING, np.int32)
    table[np.arange(table.shape[1]) < lengths[:, None]] = numbers
    return torch.from_numpy(table), torch.from_numpy(lengths)


def _alphabet(words: list[str]) -> str:
    """Return the characters by frequency, then by code."""
    codes, counts = np.unique(_codes(words), return_counts=True)
    return "".join(map(chr, codes[np.lexsort((codes, -counts))]))


def _codes(words: list[str]) -> NDArray[np.uint32]:
    """Return the code points of all words, one after the other."""
    return np.frombuffer("".join(words).encode("utf-32-le"), "<u4").astype(np.uint32)
