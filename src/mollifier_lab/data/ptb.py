"""Penn Treebank, word by word."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor

from mollifier_lab.data.folder import DataError, locate

EOS = "<eos>"
UNKNOWN = "<unk>"


@dataclass(frozen=True)
class Vocabulary:
    """The words of the training text, the most frequent first, and how often each occurs.

    >>> words = Vocabulary.of(["b", "a", "b", "c"])
    >>> words.words, words.counts, words.index["c"]
    (('b', 'a', 'c'), (2, 1, 1), 2)
    """

    words: tuple[str, ...]
    counts: tuple[int, ...]

    @classmethod
    def of(cls, tokens: list[str]) -> Vocabulary:
        """Count the words and sort them by frequency, then alphabetically."""
        pairs = sorted(Counter(tokens).items(), key=lambda pair: (-pair[1], pair[0]))
        return cls(tuple(word for word, _ in pairs), tuple(count for _, count in pairs))

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def index(self) -> dict[str, int]:
        """Return the number of each word."""
        return {word: number for number, word in enumerate(self.words)}


@dataclass(frozen=True)
class Ptb:
    """Three texts as int64 numbers of words, and the vocabulary."""

    train: Tensor
    valid: Tensor
    test: Tensor
    vocabulary: Vocabulary


def load(folder: Path) -> Ptb:
    """Read the set from a data folder; each line ends in ``<eos>``.

    Raises:
        DataError: If files are missing, empty or not text, or if they contain words that the training text and ``<unk>`` do not cover.
    """
    place = locate("ptb", folder)
    paths = {part: place / f"ptb.{part}.txt" for part in ("train", "valid", "test")}
    tokens = {part: _tokens(path) for part, path in paths.items()}
    vocabulary = Vocabulary.of(tokens["train"])
    streams = {part: _encode(words, vocabulary, paths[part]) for part, words in tokens.items()}
    return Ptb(**streams, vocabulary=vocabulary)


def batchify(stream: Tensor, batch: int) -> Tensor:
    """Cut the text into `batch` parts of equal length, one per row; the remainder is dropped.

    >>> batchify(torch.arange(7), 2)
    tensor([[0, 1, 2],
            [3, 4, 5]])
    """
    length = len(stream) // batch if batch > 0 else 0
    if length < 2:
        raise DataError(f"a text of {len(stream)} words cannot be cut into {batch} parts of two words or more")
    return stream[: batch * length].view(batch, length)


def _tokens(path: Path) -> list[str]:
    """Return words and line ends."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: is not UTF-8 text (byte {error.start:,}); download it again: mollifier data ptb"
        ) from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    lines = text.removesuffix("\n").split("\n") if text.strip() else []
    if not lines:
        raise DataError(f"{path}: is empty; delete it and download it again: mollifier data ptb")
    return list(chain.from_iterable([*line.split(), EOS] for line in lines))


def _encode(tokens: list[str], vocabulary: Vocabulary, path: Path) -> Tensor:
    """Return the numbers of words."""
    index = vocabulary.index
    unknown = index.get(UNKNOWN)
    numbers = [index.get(word, unknown) for word in tokens]
    if unknown is None and None in numbers:
        word = tokens[numbers.index(None)]
        raise DataError(
            f"{path}: the word {word!r} is not in the training text, and there is no {UNKNOWN} to represent it"
        )
    return torch.tensor(numbers, dtype=torch.int64)
