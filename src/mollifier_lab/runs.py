"""The folder of a run: what it contains, and how it is read. No torch here.

>>> import tempfile
>>> from mollifier_lab.settings import RunConfig
>>> folder = RunFolder(tempfile.mkdtemp())
>>> folder.status
'empty'
>>> folder.write("config.json", RunConfig.make("parity", "plain").to_json())
>>> folder.status, folder.config().method
('started', 'plain')

    config.json         everything that the run depends on
    environment.json    versions, commit, machine
    metrics.jsonl       one row per evaluation: the same bytes for the same config, resumed or not
    clock.jsonl         {"update", "seconds"} per evaluation: the wall-clock time is no part of the result
    checkpoints/        the last two
    tensorboard/        the same numbers as events
    model.safetensors   the plain network's weights at the end
    seal.json           checksums of the files, see `mollifier_lab.seal`
    resumptions.jsonl   one line per resumption, with what differed then
    result.json         the last thing written: the run is done
    failure.txt         why a run of a study ended before that
    wanted.json         the config of a run that failed before it could write its own
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from mollifier_lab.errors import LabError
from mollifier_lab.files import write_atomically
from mollifier_lab.json_files import is_number, is_whole, parse, read_object, read_text
from mollifier_lab.settings import RunConfig

Status = Literal["empty", "started", "failed", "done"]
Row = dict[str, Any]
WANTED = "wanted.json"
PREPARED = frozenset({".lock", "config.json", "environment.json", "notes.json"})  # exist before a run has done anything
# what numbers depend on apart from the config, see `mollifier_lab.identity`: the first change the result, the others only its last digits
ESSENTIAL = ("precision", "ranks", "device", "kernels", "data", "source")
INCIDENTAL = ("threads", "torch", "mollifier", "deterministic")
DAMAGED = "this is damaged: restore the file, or remove the run's folder and make the run again"
SEARCH = "search.json"  # in the folder of a search, see `mollifier_lab.search`


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def status(self) -> Status:
        """The state of the run: empty, started, done and so on."""
        if (self.path / "result.json").exists():
            return "done"
        if (self.path / "failure.txt").exists():
            return "failed"
        return "started" if (self.path / "config.json").exists() else "empty"

    def write(self, name: str, text: str) -> None:
        """Write a file, completely or not at all."""
        write_atomically(self.path / name, text.encode())

    def config(self) -> RunConfig:
        """Return the config that the run was started with, or was meant to have if it failed before it could write its own.

        Raises:
            LabError: If this is not the folder of a run.
        """
        unbuilt = self.status == "failed" and not (self.path / "config.json").exists()
        name = WANTED if unbuilt else "config.json"
        try:
            text = read_text(self.path / name)
        except FileNotFoundError:
            raise LabError(
                f"{self.path}: no run here (config.json is missing); start one with mollifier train"
            ) from None
        try:
            return RunConfig.from_json(text)
        except LabError as error:
            raise LabError(f"{self.path / name}: {error}") from None

    def rows(self, name: Literal["metrics.jsonl", "clock.jsonl"] = "metrics.jsonl") -> list[Row]:
        """Return the rows so far, without an incomplete last line.

        Raises:
            LabError: If a row does not have the form that a run writes.
        """
        path = self.path / name
        try:
            lines = read_text(path, limit=None).split("\n")[:-1]
        except FileNotFoundError:
            return []
        rows = [_row(line, f"{path}, line {number}") for number, line in enumerate(lines, start=1)]
        if name == "clock.jsonl":
            for number, row in enumerate(rows, start=1):
                if not is_number(row.get("seconds")):
                    raise LabError(f"{path}, line {number}: seconds: expected a number; {DAMAGED}")
        return rows

    def json(self, name: Literal["result.json", "environment.json"]) -> Row:
        """Return the contents of a file; empty if it does not exist.

        Raises:
            LabError: If it does not have the form that a run writes.
        """
        path = self.path / name
        try:
            found = read_object(path)
        except FileNotFoundError:
            return {}
        if name == "result.json":
            _check_result(found, str(path))
        return found


def _row(line: str, what: str) -> Row:
    """Return a row, if it has the form that a run writes."""
    row: Row = parse(line, what)
    if not isinstance(row, dict) or not is_whole(row.get("update")) or row["update"] < 0:
        raise LabError(f"{what}: expected an object with a whole number as its update; {DAMAGED}")
    levels = row.get("levels", [])
    if not isinstance(levels, list) or not all(map(is_number, levels)):
        raise LabError(f"{what}: levels: expected a list of numbers; {DAMAGED}")
    return row


def _check_result(found: Row, what: str) -> None:
    """Return whether a value has the form of a result that a run writes."""
    annealing = found.get("annealing")
    levels = annealing.get("levels") if isinstance(annealing, dict) else []
    for name, expected, good in (
        ("updates", "a whole number", is_whole(found.get("updates"))),
        ("seconds", "a number", is_number(found.get("seconds"))),
        ("final", "an object of numbers", _is_metrics(found.get("final"))),
        ("best", "an object of numbers", _is_metrics(found.get("best", {}))),
        ("diverged", "true or false", isinstance(found.get("diverged"), bool)),
        ("divergence", "a text or null", isinstance(found.get("divergence", ""), str | None)),
        ("other_data", "a list of texts", _is_texts(found.get("other_data", []))),
        ("annealing", "an object or null", isinstance(annealing, dict | None)),
        ("annealing", "levels that are numbers", isinstance(levels, list) and all(map(is_number, levels))),
    ):
        if not good:
            raise LabError(f"{what}: {name}: expected {expected}; {DAMAGED}")


def _is_metrics(value: object) -> bool:
    return isinstance(value, dict) and all(each is None or is_number(each) for each in value.values())


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def find_runs(folder: str | Path) -> list[RunFolder]:
    """Return all runs in a folder, itself included, in the order of their paths, without the trials of a search in it.

    Raises:
        LabError: If there is no run.
    """
    found = sorted(_runs(Path(folder)), key=lambda run: run.path)
    if not found:
        raise LabError(
            f"{folder}: no run in it (a folder with a config.json); start one with mollifier train or compare"
        )
    return found


def _runs(folder: Path) -> Iterator[RunFolder]:
    found = [*folder.rglob("config.json"), *folder.rglob(WANTED)]
    for path in {path.parent: path for path in found}.values():
        above = path.parents[1 : len(path.relative_to(folder).parents)]  # from the run's own folder to the given one
        if not any((each / SEARCH).exists() for each in above if each != folder):
            yield RunFolder(path.parent)
