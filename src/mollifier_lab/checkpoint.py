"""Checkpoints: one file each, written completely or not at all; the last two are kept.

>>> import tempfile, pathlib, torch
>>> folder = pathlib.Path(tempfile.mkdtemp())
>>> path = save(folder, 500, {"weights": torch.zeros(2)})
>>> load(folder).update
500

The name of a file contains its checksum, so that a truncated or damaged file is recognised before anything is read
from it. The file gets that name in one step, after all its bytes are on the disk.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from mollifier_lab.errors import LabError
from mollifier_lab.files import write_atomically

FORMAT = 1
KEEP = 2
NAME = re.compile(r"update-(\d{9})-([0-9a-f]{16})\.pt")


@dataclass(frozen=True)
class Checkpoint:
    """A good checkpoint, and what was wrong with newer ones."""

    path: Path
    update: int
    state: dict[str, Any]
    problems: list[str] = field(default_factory=list)


def save(folder: Path, update: int, state: dict[str, Any], announce: Callable[[str], None] = lambda name: None) -> Path:
    """Write a checkpoint, and then delete older ones.

    Args:
        folder: The folder to write to.
        update: The number of the update.
        state: The contents.
        announce: Called with the name of the file before it is written.
    """
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, "update": update, **state}, buffer)
    data = buffer.getvalue()
    path = folder / f"update-{update:09d}-{_digest(data)}.pt"
    announce(path.name)
    write_atomically(path, data)
    # a checkpoint newer than this one was rejected when the run was resumed: it does not count
    for old in [each for each in _files(folder) if each.name[:16] <= path.name[:16]][KEEP:]:
        old.unlink(missing_ok=True)
    return path


def load(
    folder: Path,
    config: str | None = None,
    apply: Callable[[Checkpoint], None] | None = None,
    known: Collection[str] = (),
) -> Checkpoint | None:
    """Return the newest good checkpoint, or None if there is no checkpoint at all.

    Args:
        folder: The folder with the checkpoints.
        config: The config of the run; a checkpoint of another run is not good.
        apply: Restores the contents of a checkpoint. A checkpoint that makes it raise is not good, unless it raises a `LabError`. What it has set by
            then it must set again for the next checkpoint.
        known: Names of the checkpoints that the run has saved, if they are known. Others are tried after these.

    Raises:
        LabError: If there are checkpoints but none is good.
    """
    for left in folder.glob(".update-*"):  # left by a write that was killed
        left.unlink(missing_ok=True)
    problems: list[str] = []
    files = _files(folder)
    for path in sorted(files, key=lambda path: (path.name in known, path.name), reverse=True):
        try:
            state = _read(path, config)
        except LabError as error:
            problems.append(str(error))
            continue
        found = Checkpoint(path, state.pop("update"), state, problems)
        try:
            if apply is not None:
                apply(found)
        except (LabError, MemoryError):
            raise
        except Exception as error:  # the checksum is right, but this run has not saved it
            problems.append(f"{path}: does not fit this run ({type(error).__name__})")
            continue
        strangers = [each for each in files if each.name > path.name and each.name not in known] if known else []
        problems += [f"{each}: this run has not saved it" for each in strangers if path.name in known]
        return found
    if problems:
        raise LabError("; ".join(problems) + "; no good checkpoint is left: remove them to start the run again")
    return None


def _read(path: Path, config: str | None) -> dict[str, Any]:
    match = NAME.fullmatch(path.name)
    if match is None:
        raise LabError(f"{path}: not the name of a checkpoint (update-NUMBER-CHECKSUM.pt)")
    data = path.read_bytes()
    if _digest(data) != match[2]:
        raise LabError(f"{path}: truncated or damaged ({len(data)} bytes, which do not match the checksum in its name)")
    try:
        state: dict[str, Any] = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        known = state["format"] == FORMAT and state["update"] == int(match[1])
    except Exception as error:  # torch.load may raise anything for a file that is not ours
        raise LabError(f"{path}: not a checkpoint of the laboratory ({type(error).__name__})") from error
    if not known:
        raise LabError(f"{path}: checkpoint of format {state['format']}, this version reads {FORMAT}")
    if config is not None and state.get("config") != config:
        raise LabError(f"{path}: checkpoint of another run (its config differs from config.json)")
    return state


def _files(folder: Path) -> list[Path]:
    """Newest first."""
    return sorted(folder.glob("update-*.pt"), reverse=True)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
