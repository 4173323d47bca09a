"""The data folder: where it is, what it contains, and whether that is what its publisher made. No heavy imports here."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mollifier_lab import files
from mollifier_lab.data.sources import File, Source, source
from mollifier_lab.errors import LabError


class DataError(LabError):
    """Data that is missing, damaged or wrong."""


@dataclass(frozen=True)
class FileReport:
    """What was found out about one file."""

    name: str
    path: Path
    status: Literal["ok", "missing", "wrong"]
    detail: str


def cache_folder() -> Path:
    """Return the folder for things that can be made again: $MOLLIFIER_CACHE, or the user's cache folder."""
    if asked := os.environ.get("MOLLIFIER_CACHE"):
        return _expanded(Path(asked))
    return _users_cache()


def data_folder(given: Path | None = None) -> Path:
    """Return the folder named by the user, or by $MOLLIFIER_DATA, or ``mollifier/data`` in the user's cache folder.

    >>> data_folder(Path("here")).name
    'here'
    """
    if given is not None:
        return _expanded(Path(given))
    if asked := os.environ.get("MOLLIFIER_DATA"):
        return _expanded(Path(asked))
    return _users_cache() / "data"


def _users_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else _expanded(Path("~/.cache"))) / "mollifier"


def _expanded(path: Path) -> Path:
    """Replace ~ by the home directory."""
    try:
        return path.expanduser()
    except RuntimeError:
        raise DataError(
            f"{path}: there is no home directory {path.parts[0]}; name a folder: --data, MOLLIFIER_DATA and MOLLIFIER_CACHE"
        ) from None


def locate(name: str, folder: Path, facts: Source | None = None) -> Path:
    """Return the folder that contains all files of a set; for word vectors, the file itself.

    The files may be in `folder`, in its subfolder with the set's name, or where the publisher's archive puts them. `folder` may
    also be one of the files.

    Raises:
        DataError: If a file is missing. The message says which, where it was searched for, and what to do.
    """
    facts = facts or source(name)
    if facts.others and (found := _other(facts, folder)):
        return found
    place = _place(facts, folder)
    missing = [file.name for file in facts.files if not (place / file.name).is_file()]
    if not missing:
        return place / facts.files[0].name if facts.others else place
    looked = "\n  ".join(str(path) for path in _places(facts, folder))
    raise DataError(
        f"{facts.title}: {', '.join(missing)} not found. Looked in\n  {looked}\n"
        f"To download: mollifier data {name}. If you have the files: mollifier data {name} --from FOLDER checks them; "
        f"name the folder with --data or MOLLIFIER_DATA."
    )


def check(name: str, folder: Path, facts: Source | None = None) -> list[FileReport]:
    """Report which files of a set exist, with size and checksum of each. Word vectors from another source are read in part."""
    facts = facts or source(name)
    if facts.others and (found := _other(facts, folder)):
        return [_check_text(found)]
    place = _place(facts, folder)
    return [_check_file(file, place / file.name, text=bool(facts.others)) for file in facts.files]


def _places(facts: Source, folder: Path) -> list[Path]:
    """Return the places where files of the set may be, beginning with the place where `fetch` would put them."""
    home = folder / facts.name
    if not facts.subfolder:
        return [home, folder]
    return [home / facts.subfolder, folder / facts.subfolder, home, folder]


def _place(facts: Source, folder: Path) -> Path:
    """Return the place that contains most of the files."""
    if folder.is_file():
        return folder.parent
    return max(_places(facts, folder), key=lambda place: sum((place / file.name).is_file() for file in facts.files))


def _other(facts: Source, folder: Path) -> Path | None:
    """Return a file of another name in the right format; None if the publisher's own file exists, or nothing does."""
    if folder.is_file():
        return folder
    if (_place(facts, folder) / facts.files[0].name).is_file():
        return None
    for place in _places(facts, folder):
        found = sorted({path for pattern in facts.others for path in place.glob(pattern) if path.is_file()})
        if len(found) > 1:
            names = ", ".join(path.name for path in found)
            raise DataError(
                f"{facts.title}: {place} contains {names}; name the one to use: --data {shlex.quote(str(found[0]))}"
            )
        if found:
            return found[0]
    return None


def _check_file(file: File, path: Path, text: bool) -> FileReport:
    """Check one file against what is known about it."""
    if not path.is_file():
        return FileReport(file.name, path, "missing", "not there")
    size = path.stat().st_size
    if file.size is not None and size != file.size:
        return FileReport(file.name, path, "wrong", f"{size:,} bytes, expected {file.size:,}")
    if text:
        return _check_text(path)
    if file.checksum is None:
        return FileReport(file.name, path, "ok", f"{size:,} bytes; no checksum is known")
    kind = file.checksum.partition(":")[0]
    if not files.matches(path, file.checksum):
        return FileReport(file.name, path, "wrong", f"its {kind} is not the published one")
    return FileReport(file.name, path, "ok", f"{size:,} bytes, with the published {kind}")


def _check_text(path: Path) -> FileReport:
    """Check word vectors by their first lines, since there is no checksum."""
    from mollifier_lab.data.vectors import read_vectors

    try:
        table = read_vectors(path, limit=1000)
    except DataError as error:
        return FileReport(path.name, path, "wrong", str(error))
    return FileReport(
        path.name, path, "ok", f"word vectors of {table.vectors.shape[1]} numbers; the first lines were read"
    )
