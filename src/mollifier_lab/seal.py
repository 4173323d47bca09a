"""Checksums of what a run has written, in seal.json, so that damage is reported and never becomes a number. No torch here.

>>> import tempfile
>>> folder = Path(tempfile.mkdtemp())
>>> _ = (folder / "config.json").write_text("{}")
>>> _ = write(folder, sums(folder, ["config.json"]))
>>> damage(folder)
{}
>>> _ = (folder / "config.json").write_text("[]")
>>> damage(folder)
{'config.json': 'not what the run wrote'}

While a run is in progress, rows are sealed up to the last checkpoint; when it is done, all files are sealed. seal.json is written before result.json.
Runs of the previous version have no seal; for these we can only check whether the files contradict each other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mollifier_lab.errors import LabError
from mollifier_lab.files import write_atomically
from mollifier_lab.json_files import read_object

NAME, FORMAT = "seal.json", 1
GROWING = ("metrics.jsonl", "clock.jsonl")
Sums = dict[str, tuple[int, str]]


def of(data: bytes) -> tuple[int, str]:
    """The length and checksum of the contents of a file."""
    return len(data), hashlib.sha256(data).hexdigest()


def sums(folder: Path, names: Iterable[str], lengths: Mapping[str, int] | None = None) -> Sums:
    """Return the sums of files as they are, of some of them only up to a length. Files that do not exist are left out."""
    cut = lengths or {}
    return {name: of((folder / name).read_bytes()[: cut.get(name)]) for name in names if (folder / name).is_file()}


def write(folder: Path, found: Sums, checkpoints: Iterable[str] = ()) -> Sums:
    """Write the seal: the sums, and the names of the checkpoints, which contain their own sums."""
    facts = {"format": FORMAT, "files": found, "checkpoints": list(checkpoints)}
    write_atomically(folder / NAME, json.dumps(facts, indent=2).encode() + b"\n")
    return found


def checkpoints(folder: Path) -> list[str]:
    """Return the names of the checkpoints that the run has saved; empty if they are not known."""
    try:
        found = read_object(folder / NAME).get("checkpoints")
    except (LabError, OSError):
        return []
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def damage(folder: Path) -> dict[str, str]:
    """Find what is wrong with the files of a run, by name; empty if all is well, or nothing is known about it."""
    done = (folder / "result.json").exists()  # before the seal is read, because it is written before the result
    try:
        found = read_object(folder / NAME)["files"]
        known: Sums = {str(name): (int(length), str(digest)) for name, (length, digest) in found.items()}
    except FileNotFoundError:
        return {NAME: "missing"} if done and _sealed(folder) else {}
    except (LabError, ValueError, KeyError, TypeError, AttributeError, OSError):
        return {NAME: "cannot be read"}
    problems = {}
    for name, expected in known.items():
        if problem := _problem(folder / name, expected, grows=name in GROWING and not done):
            problems[name] = problem
    if not done:
        problems.pop("result.json", None)  # killed just before it was written
    elif "result.json" not in known:
        problems["result.json"] = "not from this run: its seal does not contain it"
    return problems


def refuse(folder: Path, names: Iterable[str] = ()) -> None:
    """Refuse a run that is damaged.

    Args:
        folder: The folder of the run.
        names: The files to check; by default all.

    Raises:
        LabError: If something is wrong; the message lists all of it.
    """
    wanted = tuple(names)
    if found := {name: problem for name, problem in damage(folder).items() if not wanted or name in wanted}:
        raise LabError(
            f"{folder}: {describe(found)}; restore what is damaged, or remove the folder to make the run again"
        )


def describe(found: Mapping[str, str]) -> str:
    """Say what is damaged.

    >>> describe({"metrics.jsonl": "missing"})
    'damaged: metrics.jsonl (missing)'
    """
    return f"damaged: {', '.join(f'{name} ({problem})' for name, problem in found.items())}"


def check_rows(folder: Path, known: Mapping[str, Any]) -> dict[str, str]:
    """Check the rows against what a checkpoint knows of them; they may have grown since."""
    found = {name: _problem(folder / name, tuple(known[name]), grows=True) for name in GROWING if name in known}
    return {name: problem for name, problem in found.items() if problem}


def _problem(path: Path, expected: tuple[int, str], grows: bool) -> str:
    try:
        data = path.read_bytes()
    except OSError:
        return "missing"
    if len(data) < expected[0]:
        return f"cut short: {len(data):,} bytes of {expected[0]:,}"
    return "" if of(data[: expected[0]] if grows else data) == expected else "not what the run wrote"


def _sealed(folder: Path) -> bool:
    """Return whether the result says that there was a seal."""
    try:
        return read_object(folder / "result.json").get("sealed") is True
    except (LabError, OSError):
        return False
