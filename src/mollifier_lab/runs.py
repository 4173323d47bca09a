"""The folder of a run: what is in it, and how it is read. No torch here.

>>> import tempfile
>>> from mollifier_lab.settings import RunConfig
>>> folder = RunFolder(tempfile.mkdtemp())
>>> folder.status
'empty'
>>> folder.write("config.json", RunConfig.make("parity", "plain").to_json())
>>> folder.status, folder.config().method
('started', 'plain')

    config.json         all that the run depends on
    environment.json    versions, commit, machine
    metrics.jsonl       a row an evaluation: the same bytes for the same config, resumed or not
    clock.jsonl         {"update", "seconds"} a row, of the same evaluations: the wall-clock is no part of the result
    checkpoints/        the last two
    tensorboard/        the same numbers as events
    model.safetensors   the plain network's weights at the end
    seal.json           checksums of the files, see `mollifier_lab.seal`
    resumptions.jsonl   a line each time that the run was gone on with, and what differed then
    result.json         the last thing written: the run is done
    failure.txt         why a run of a study ended before that
    wanted.json         the config of a run that failed before it could write its own
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from mollifier_lab.errors import LabError
from mollifier_lab.files import write_atomically
from mollifier_lab.settings import RunConfig

Status = Literal["empty", "started", "failed", "done"]
Row = dict[str, Any]
WANTED = "wanted.json"
# what numbers depend on beside the config, see `mollifier_lab.identity`: the result itself, or its last digits alone
ESSENTIAL = ("precision", "ranks", "device", "kernels", "data", "source")
INCIDENTAL = ("threads", "torch", "mollifier", "deterministic")
SEARCH = "search.json"  # in the folder of a search, see `mollifier_lab.search`


class RunFolder:
    """One run's folder."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def status(self) -> Status:
        """How far it is."""
        if (self.path / "result.json").exists():
            return "done"
        if (self.path / "failure.txt").exists():
            return "failed"
        return "started" if (self.path / "config.json").exists() else "empty"

    def write(self, name: str, text: str) -> None:
        """Write a file, all or nothing."""
        write_atomically(self.path / name, text.encode())

    def config(self) -> RunConfig:
        """What the run was started with, or was to be if it failed while it was being built.

        Raises:
            LabError: If this is no folder of a run.
        """
        unbuilt = self.status == "failed" and not (self.path / "config.json").exists()
        try:
            return RunConfig.from_json((self.path / (WANTED if unbuilt else "config.json")).read_text())
        except FileNotFoundError:
            raise LabError(
                f"{self.path}: no run here (config.json is missing); start one with mollifier train"
            ) from None
        except LabError as error:
            raise LabError(f"{self.path}/config.json: {error}") from None

    def rows(self, name: Literal["metrics.jsonl", "clock.jsonl"] = "metrics.jsonl") -> list[Row]:
        """The rows so far; a last line that is not whole yet is left out."""
        try:
            text = (self.path / name).read_text()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def json(self, name: Literal["result.json", "environment.json"]) -> Row:
        """A whole file; empty if it is not there."""
        try:
            found: Row = json.loads((self.path / name).read_text())
        except FileNotFoundError:
            return {}
        return found


def find_runs(folder: str | Path) -> list[RunFolder]:
    """All runs in a folder, itself included, in the order of their paths; but no trials of a search that lies in it.

    Raises:
        LabError: If there is none.
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
