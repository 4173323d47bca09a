"""Files that are complete or absent: atomic writing, and checksums."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a new empty file next to `path` to write into. It gets the name when the block ends without an error, and is removed otherwise.

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
    except OSError as error:  # on a full disk the system names a file descriptor, not a path
        error.filename = error.filename or str(path)
        raise
    finally:
        part.unlink(missing_ok=True)


def shown(path: str | Path) -> str:
    """Return a path for a command line or a record: relative to the working folder if it is inside, so that records name no machine's folders.

    >>> shown(Path("results").resolve()), shown("/elsewhere")
    ('results', '/elsewhere')
    """
    path = Path(path)
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


@contextlib.contextmanager
def leaving_nothing(path: Path, mere: frozenset[str], kept: type[Exception]) -> Iterator[None]:
    """If an error ends the block, remove a folder that was created in it and contains only preparations, and the empty folders above it.

        >>> root = tempfile.TemporaryDirectory()
        >>> with contextlib.suppress(KeyError), leaving_nothing(Path(root.name) / "a" / "b", frozenset({"c"}), OSError):
        ...     write_atomically(Path(root.name) / "a" / "b" / "c", b"")
        ...     raise KeyError
        >>> os.listdir(root.name)
        []
        >>> root.cleanup()

    Args:
        path: The folder.
        mere: Names of files that are mere preparations.
        kept: An error of this kind means that the folder belongs to another process, so it is kept.
    """
    new = [each for each in (path, *path.parents) if not each.exists()]
    try:
        yield
    except kept:
        raise
    except BaseException:
        with contextlib.suppress(OSError):
            if path in new and {each.name for each in path.iterdir()} <= mere:
                for each in path.iterdir():
                    each.unlink()
                for folder in new:
                    folder.rmdir()
        raise


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that it contains either its old contents or all of `data`, whatever happens meanwhile."""
    with atomic(path) as part:
        part.write_bytes(data)


def settle(part: Path, path: Path) -> None:
    """Give a finished file its name, so that it is complete even after a crash of the machine."""
    with part.open("rb+") as file:
        os.fsync(file.fileno())
    part.chmod(0o666 & ~_umask())
    os.replace(part, path)


def _umask() -> int:
    """Return the permissions of the user's files; temporary files are created for the owner alone."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def digest(path: Path, algorithm: str = "sha256") -> str:
    """Return the checksum of a file of any size, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def matches(path: Path, checksum: str) -> bool:
    """Return whether the file has the checksum, given as ``algorithm:digest``."""
    algorithm, _, expected = checksum.partition(":")
    return digest(path, algorithm) == expected
