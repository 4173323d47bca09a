"""Compute the checksum of every file that a run learns from, and compare it with the published one."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from mollifier_lab import files
from mollifier_lab.data.folder import DataError, cache_folder, data_folder, locate
from mollifier_lab.data.sources import Source, source

SETS = {"mnist": "mnist", "cifar10": "cifar10", "ptb": "ptb", "characters": "word-vectors"}
SETTLED = 2 * 10**9  # nanoseconds: a younger file could change again without a change of its time


@dataclass(frozen=True)
class Checksums:
    """What was found out about a task's data.

    Attributes:
        files: A checksum for each file, as ``algorithm:digest``; empty for a task that generates its data.
        other: The files that are not the published ones.
    """

    files: dict[str, str] = field(default_factory=dict)
    other: tuple[str, ...] = ()


def check_data(task: str, data: Path | None, *, allow_other: bool = False, facts: Source | None = None) -> Checksums:
    """Check the files of a task's data against what is known about them.

    Word vectors have no known checksum: any file can be used, and its checksum identifies it.

    >>> check_data("parity", None)
    Checksums(files={}, other=())

    Args:
        task: The name of the task.
        data: The data folder that the user named.
        allow_other: Whether to accept files that are not the published ones.
        facts: Facts about the set that replace the published ones.

    Raises:
        DataError: If a file is missing, or is not the published one and ``allow_other`` is False.
    """
    if task not in SETS:
        return Checksums()
    facts = facts or source(SETS[task])
    place = locate(facts.name, data_folder(data), facts)
    if facts.others:
        return Checksums({place.name: digest(place, "sha256")})
    found: dict[str, str] = {}
    other: dict[str, str] = {}
    for file in facts.files:
        algorithm = (file.checksum or "sha256:").partition(":")[0]
        found[file.name] = digest(place / file.name, algorithm)
        if file.checksum is not None and found[file.name] != file.checksum:
            other[file.name] = f"{place / file.name}: its {algorithm} is not the published one"
    if other and not allow_other:
        listed = "\n  ".join(other.values())
        raise DataError(
            f"{facts.title}: not the published files:\n  {listed}\nTo download them: mollifier data {task}. "
            f"To train on these nevertheless: --allow-other-data; every table and page then says so."
        )
    return Checksums(found, tuple(other))


def digest(path: Path, algorithm: str) -> str:
    """Return the checksum of a file as ``algorithm:digest``, from the cache if the file has not changed.

    A file is recognised by its path, size, inode and both its times. The second time, that of the last change of anything about it, cannot be set
    by hand, so a file with a forged date is read again.
    """
    path = path.resolve()
    key = _key(path, algorithm)
    name = hashlib.sha256(f"{algorithm}\n{path}".encode()).hexdigest()[:32]
    kept = cache_folder() / "sums" / f"{name}.json"
    if (known := _read(kept, key)) is not None:
        return known
    found = f"{algorithm}:{files.digest(path, algorithm)}"
    times = path.stat()
    if _key(path, algorithm) == key and time.time_ns() - max(times.st_mtime_ns, times.st_ctime_ns) > SETTLED:
        with contextlib.suppress(OSError):  # the file is read again next time, which takes longer but gives the same
            files.write_atomically(kept, json.dumps({"key": key, "sum": found}).encode())
    return found


def _key(path: Path, algorithm: str) -> list[str | int]:
    facts = path.stat()
    return [str(path), algorithm, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino, facts.st_dev]


def _read(kept: Path, key: list[str | int]) -> str | None:
    """Return what the cache knows about a file. A link, or an entry that another user has made, does not count."""
    try:
        handle = os.open(kept, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        if hasattr(os, "getuid") and os.fstat(file.fileno()).st_uid != os.getuid():
            return None
        try:
            found = json.loads(file.read())
            known = found["sum"] if found["key"] == key else None
        except (ValueError, KeyError, TypeError):
            return None
    return known if isinstance(known, str) else None
