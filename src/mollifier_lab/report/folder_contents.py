"""Read a folder of runs once, for the table, the page and the server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from mollifier_lab.errors import LabError
from mollifier_lab.report.reading import Run, VariantRuns, read, variants
from mollifier_lab.report.summary import TableRow, summarise
from mollifier_lab.report.trust import remarks
from mollifier_lab.runs import find_runs


@dataclass(frozen=True)
class FolderContents:
    """What was found in a folder.

    Attributes:
        runs: All runs that could be read.
        tasks: Their variants, by task.
        rows: The table.
        notes: What could not be read, is damaged or was left out.
    """

    runs: list[Run]
    tasks: dict[str, list[VariantRuns]]
    rows: list[TableRow]
    notes: list[str]

    @property
    def found(self) -> list[VariantRuns]:
        """The variants of all tasks."""
        return [variant for each in self.tasks.values() for variant in each]


def read_folder(root: Path, folders: Sequence[Path] = ()) -> FolderContents:
    """Read all runs in a folder, or in some of its folders.

    Raises:
        LabError: If no run can be read.
    """
    runs, problems = read(run for folder in folders or [root] for run in find_runs(folder))
    if not runs:
        raise LabError(f"{root}: none of its runs can be read:\n" + "\n".join(problems))
    found, left_out = variants(runs)
    tasks = {task: list(group) for task, group in groupby(found, key=lambda variant: variant.task)}
    return FolderContents(runs, tasks, summarise(found), [*problems, *left_out, *remarks(runs)])
