"""Files that are whole or not there: atomic writing, and checksums."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A new empty file beside `path` to write into; it takes the name once the block ends well, and is gone otherwise.

    >>> folder = tempfile.TemporaryDirectory()
    >>> with atomic(Path(folder.name) / "a.txt") as part:
    ...     _ = part.write_text("whole")
    >>> os.listdir(folder.name)
    ['a.txt']
    >>> folder.cleanup()
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    os.close(handle)
    part = Path(name)
    try:
        yield part
        settle(part, path)
    except OSError as error:  # a full disk: the system says it of a number, not of a name
        error.filename = error.filename or str(path)
        raise
    finally:
        part.unlink(missing_ok=True)


def write_atomically(path: Path, data: bytes) -> None:
    """The file holds either what it held before or all of `data`, whatever happens meanwhile."""
    with atomic(path) as part:
        part.write_bytes(data)


def settle(part: Path, path: Path) -> None:
    """Give a finished file its name, whole even if the machine crashes now."""
    with part.open("rb+") as file:
        os.fsync(file.fileno())
    part.chmod(0o666 & ~_umask())
    os.replace(part, path)


def _umask() -> int:
    """What the user lets others see; temporary files are made for the owner alone."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def digest(path: Path, algorithm: str = "sha256") -> str:
    """The checksum of a file of any size, read piece by piece."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def matches(path: Path, checksum: str) -> bool:
    """Whether the file has the checksum, given as ``algorithm:digest``."""
    algorithm, _, expected = checksum.partition(":")
    return digest(path, algorithm) == expected
