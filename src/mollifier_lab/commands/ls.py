"""`mollifier ls` lists the runs in folders; `mollifier note` adds tags and notes to them. No torch here."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from mollifier_lab import notes
from mollifier_lab.commands.import_flag import Imports
from mollifier_lab.commands.output import console, table
from mollifier_lab.errors import LabError
from mollifier_lab.report.formats import NONE, show_metric
from mollifier_lab.report.reading import Run, read, show
from mollifier_lab.runs import find_runs


@dataclass(frozen=True)
class Ls:
    """List the runs in folders: their progress, results, the settings that differ, tags and notes."""

    folders: Annotated[
        Positional[tuple[Path, ...]], arg(metavar="DIR ...", help="Folders to search.", help_behavior_hint="(default: runs)")
    ] = ()  # fmt: skip
    tag: Annotated[str, arg(metavar="TAG", help_behavior_hint="(default: all)")] = ""
    """List only runs with this tag, of their own or of a folder above them."""
    imports: Imports = ()

    def run(self) -> int:
        """Print the table, and below it the runs that cannot be read."""
        from rich.text import Text

        found: list[tuple[Run, notes.Notes, str]] = []
        problems: list[str] = []
        for folder in self.folders or (Path("runs"),):
            runs, wrong = read(find_runs(folder))
            problems += wrong
            for run in runs:
                try:
                    told = notes.above(run.folder.path, folder)
                except LabError as error:
                    problems.append(str(error))
                    told = notes.Notes()
                if not self.tag or self.tag in told.tags:
                    found.append((run, told, str(run.folder.path)))
        if self.tag and not found:
            raise LabError(f"--tag {self.tag}: no run there has this tag")
        shown = table("run", "status", "result", "method", "seed", "settings that differ", "tags", "notes")
        differ = differing([run for run, _, _ in found])
        for run, told, path in found:
            values = ", ".join(f"{name}={show(getattr(run.config.settings, name))}" for name in differ[run.config.task])
            cells = (
                path, status(run), result(run), run.config.title, str(run.config.seed), values or NONE, ", ".join(told.tags) or NONE,
                "; ".join(told.texts) or NONE,
            )  # fmt: skip
            shown.add_row(*map(Text, cells))  # Text: a label must not be read as markup
        if found:
            console().print(shown)
        for problem in dict.fromkeys(problems):
            print(f"note: {problem}", file=sys.stderr)
        return 0


@dataclass(frozen=True)
class Note:
    """Add tags and a note to a run or a study; `mollifier ls` shows them."""

    folder: Annotated[Positional[Path], arg(metavar="DIR", help="Folder of the run or the study.")]
    text: Annotated[Positional[str], arg(metavar="TEXT", help="The note.", help_behavior_hint="(default: none)")] = ""
    tags: Annotated[str, arg(metavar="A,B", help="Tags, separated by commas.", help_behavior_hint="(default: none)")] = ""  # fmt: skip

    def run(self) -> int:
        """Write it."""
        if not self.folder.is_dir():
            raise LabError(f"{self.folder}: there is no such folder; expected the folder of a run or a study")
        if not (self.text.strip() or self.tags.strip(", ")):
            raise LabError("nothing to note: expected a TEXT, or --tags A,B")
        notes.add(self.folder, self.tags, self.text)
        return 0


def status(run: Run) -> str:
    """Describe the state of a run in a few words."""
    if run.damage:
        return "damaged"
    word: str = "diverged" if run.diverged else run.status
    if run.status == "started":
        last, wanted = run.rows[-1]["update"] if run.rows else 0, run.config.settings.updates
        word = f"unfinished, update {last:,}" + (f" of {wanted:,}" if wanted else "")
    return f"{word}, other data" if run.config.other_data else word


def result(run: Run) -> str:
    """Return the headline of a finished run, or the last value of the curve of a run in progress."""
    settings = run.config.settings
    if run.damage:
        return NONE  # damaged runs are not counted
    if run.status == "done":
        return f"{settings.headline} {show_metric(settings.headline, run.final)}"
    values = list(run.points(settings.curve).values())
    return f"{settings.curve} {show_metric(settings.curve, values[-1])}" if values else NONE


def differing(runs: list[Run]) -> dict[str, list[str]]:
    """Return the settings that are not the same in all runs of a task, by task."""
    found: dict[str, list[str]] = {}
    for task in dict.fromkeys(run.config.task for run in runs):
        values = [dataclasses.asdict(run.config.settings) for run in runs if run.config.task == task]
        found[task] = [name for name in values[0] if len({repr(each.get(name)) for each in values}) > 1]
    return found
