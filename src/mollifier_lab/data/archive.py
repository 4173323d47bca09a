"""Extract named files from an archive that is not trusted."""

from __future__ import annotations

import gzip
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from mollifier_lab import files
from mollifier_lab.data.folder import DataError
from mollifier_lab.data.sources import Archive, File

PIECE = 1 << 20


def extract(path: Path, archive: Archive, wanted: tuple[File, ...], into: Path) -> None:
    """Write the requested files into a folder, each complete and checked, or raise.

    No name, size or link of the archive is trusted: a member counts only if it is a regular file with exactly the requested
    name, and its contents are written under a name that we choose.

    Raises:
        DataError: If a file is missing, not a regular file, too big, or has the wrong contents.
    """
    left = {archive.prefix + file.name: file for file in wanted}
    try:
        members = _zip_members(path, left) if archive.name.endswith(".zip") else _tar_members(path, archive.limit)
        for name, stream in members:
            if file := left.pop(name, None):
                _write(stream, file, into / file.name, archive)
            if not left:
                break
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, gzip.BadGzipFile, NotImplementedError) as error:
        raise DataError(f"{archive.name}: damaged archive ({error}); delete it and download it again") from None
    if left:
        raise DataError(f"{archive.name}: has no {', '.join(left)}")


def _tar_members(path: Path, limit: int) -> Iterator[tuple[str, IO[bytes] | None]]:
    """Yield names and contents in order; None instead of contents for what is not a regular file."""
    with gzip.open(path) as packed:
        limited = cast("IO[bytes]", _Limited(packed, limit, path.name))  # tarfile calls nothing but read()
        with tarfile.open(fileobj=limited, mode="r|") as tar:
            for member in tar:
                yield member.name.removeprefix("./"), tar.extractfile(member) if member.isreg() else None


def _zip_members(path: Path, wanted: dict[str, File]) -> Iterator[tuple[str, IO[bytes] | None]]:
    """Yield the same for a zip file, of which only the requested members are read."""
    with zipfile.ZipFile(path) as packed:
        for member in packed.infolist():
            if member.filename not in wanted:
                continue
            kind = stat.S_IFMT(member.external_attr >> 16)
            if member.flag_bits & 1 or kind not in (0, stat.S_IFREG):
                yield member.filename, None
            else:
                with packed.open(member) as stream:
                    yield member.filename, stream


def _write(stream: IO[bytes] | None, file: File, target: Path, archive: Archive) -> None:
    """Copy one member, limit its size, and check it before it gets its name."""
    if stream is None:
        raise DataError(f"{archive.name}: {file.name} is not a regular file (a link, a folder, or encrypted)")
    limit = archive.limit if file.size is None else file.size
    with files.atomic(target) as part:
        size = 0
        with part.open("wb") as out:
            while piece := stream.read(PIECE):
                size += len(piece)
                if size > limit:
                    raise DataError(f"{archive.name}: {file.name} is bigger than {limit:,} bytes")
                out.write(piece)
        if file.size is not None and size != file.size:
            raise DataError(f"{archive.name}: {file.name} has {size:,} bytes, expected {file.size:,}")
        if file.checksum and not files.matches(part, file.checksum):
            raise DataError(f"{archive.name}: {file.name} does not have its published checksum")


class _Limited:
    """A stream that ends with an error before it fills the disk or the memory."""

    def __init__(self, stream: gzip.GzipFile, limit: int, name: str) -> None:
        self._stream, self._left, self._limit, self._name = stream, limit, limit, name

    def read(self, size: int = -1) -> bytes:
        """Read at most `size` bytes."""
        data = self._stream.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise DataError(f"{self._name}: unpacks to more than {self._limit:,} bytes")
        return data
