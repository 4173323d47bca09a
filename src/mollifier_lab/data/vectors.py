"""Read word vectors: GloVe or word2vec text of any dimension, plain or gzipped, with a binary copy of it for the next time."""

from __future__ import annotations

import gzip
import hashlib
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mollifier_lab import files
from mollifier_lab.data.checksums import digest
from mollifier_lab.data.folder import DataError, cache_folder

PIECE = 4 << 20
LONGEST_LINE = 1 << 20
ENTITY = "ENTITY/"  # pages of Wikipedia2Vec, which are not words
FORMAT = 2


@dataclass(frozen=True, slots=True)
class WordVectors:
    """Words in the file's order, and their vectors float32 (n, dimension)."""

    words: list[str]
    vectors: NDArray[np.float32]


def load_vectors(path: Path, limit: int | None = None) -> WordVectors:
    """Read vectors as `read_vectors` does, from a copy in the user's cache folder if there is one of a file with these bytes; otherwise make
    the copy.
    """
    key = f"{FORMAT}\n{digest(path, 'sha256')}\n{limit}"
    copy = cache_folder() / "words" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.npz"
    if copy.exists() and not copy.is_symlink():  # a link in a shared folder belongs to somebody else
        try:
            with copy.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                return WordVectors(stored["words"].tobytes().decode().split("\n"), stored["vectors"])
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            warnings.warn(f"{copy} is damaged ({error}); {path.name} is read again", stacklevel=2)
    table = read_vectors(path, limit)
    letters = np.frombuffer("\n".join(table.words).encode(), np.uint8)
    try:
        with files.atomic(copy) as part, part.open("wb") as out:
            np.savez(out, words=letters, vectors=table.vectors)
    except OSError as error:
        warnings.warn(f"no copy of {path.name} could be saved in {copy.parent}: {error}", stacklevel=2)
    return table


def read_vectors(path: Path, limit: int | None = None) -> WordVectors:
    """Read the file, or its first `limit` words.

    A first line of two numbers is read as word2vec's header (number of words, dimension). If a word occurs twice, the first vector counts.

    Raises:
        DataError: If the file is not in this format; the message names the line.
    """
    if limit is not None and limit < 1:
        raise DataError(f"limit={limit}: expected a whole number >= 1, or None for all words")
    reader = _Reader(path)
    try:
        for lines in _pieces(path):
            reader.add(lines)
            if limit is not None and len(reader.words) >= limit:
                break
        else:
            reader.finish()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: damaged or cut short ({error})") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    return reader.table(limit)


def _pieces(path: Path) -> Iterator[list[bytes]]:
    """Yield the lines of the file, a few megabytes at a time."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        rest = b""
        while piece := file.read(PIECE):
            *lines, rest = (rest + piece).split(b"\n")
            if len(rest) > LONGEST_LINE:
                raise DataError(
                    f"{path}: has a line of more than {LONGEST_LINE:,} bytes, so it is not a text of word vectors"
                )
            yield lines
        if rest:
            yield [rest]


class _Reader:
    """What has been read so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.line = 0
        self.dimension = 0
        self.promised: int | None = None
        self.words: dict[str, None] = {}
        self.parts: list[NDArray[np.float32]] = []

    def add(self, lines: list[bytes]) -> None:
        """Read some lines."""
        lines = [line.rstrip(b" \r\t") for line in lines]
        if self.line == 0 and lines:
            lines = self._start(lines)
        if not lines:
            return
        heads, _, tails = zip(*(line.partition(b" ") for line in lines), strict=True)
        values = self._parse(tails)
        if values is None or not all(heads):
            values = np.array([self._parse_line(number, line) for number, line in enumerate(lines)], np.float32)
            heads = tuple(line.split()[0] for line in lines)
        try:
            words = b"\n".join(heads).decode().split("\n")
        except UnicodeDecodeError as error:
            number = b"\n".join(heads)[: error.start].count(b"\n")
            raise self._wrong(number, "the word is not UTF-8 text") from None
        keep = []
        for number, word in enumerate(words):
            if word not in self.words and not word.startswith(ENTITY):
                self.words[word] = None
                keep.append(number)
        self.parts.append(values if len(keep) == len(words) else values[keep])
        self.line += len(lines)

    def finish(self) -> None:
        """Check that the file is complete at its end."""
        found = self.line - 1
        if self.promised is not None and found != self.promised:
            raise DataError(
                f"{self.path}: its first line announces {self.promised:,} words, but it has {found:,}; is it cut short?"
            )

    def table(self, limit: int | None) -> WordVectors:
        """Return all words and vectors."""
        if not self.words:
            raise DataError(f"{self.path}: has no word vectors; expected a word and its numbers on each line")
        return WordVectors(list(self.words)[:limit], np.concatenate(self.parts)[:limit])

    def _start(self, lines: list[bytes]) -> list[bytes]:
        """Find the dimension from the first line, which may be a header."""
        first = lines[0].split(b" ")
        if len(first) == 2 and all(field.isdigit() for field in first):
            self.promised, self.dimension = int(first[0]), int(first[1])
            self.line = 1
            lines = lines[1:]
        else:
            self.dimension = len(first) - 1
        if self.dimension < 1:
            raise DataError(f"{self.path}, line 1: expected a word and its numbers with a space between them")
        return lines

    def _parse(self, tails: tuple[bytes, ...]) -> NDArray[np.float32] | None:
        """Return the numbers of many lines at once; None if anything is unusual."""
        spaces = self.dimension - 1
        if any(tail.count(b" ") != spaces for tail in tails):
            return None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                values = np.fromstring(b" ".join(tails), np.float32, sep=" ")
        except (ValueError, DeprecationWarning):
            return None
        good = len(values) == len(tails) * self.dimension and bool(np.isfinite(values).all())
        return values.reshape(len(tails), self.dimension) if good else None

    def _parse_line(self, number: int, line: bytes) -> list[float]:
        """Return the numbers of one line, or raise an error that says what is wrong with it."""
        fields = line.split()
        if len(fields) != self.dimension + 1:
            raise self._wrong(number, f"expected a word and {self.dimension} numbers, found {len(fields)} fields")
        values = []
        for field in fields[1:]:
            try:
                values.append(float(field))
            except ValueError:
                raise self._wrong(number, f"{field.decode(errors='replace')!r} is not a number") from None
        with np.errstate(over="ignore"):
            finite = bool(np.isfinite(np.array(values, np.float32)).all())
        if not finite:
            raise self._wrong(number, "a number is not finite (NaN or infinite)")
        return values

    def _wrong(self, number: int, what: str) -> DataError:
        return DataError(f"{self.path}, line {self.line + number + 1}: {what}")
