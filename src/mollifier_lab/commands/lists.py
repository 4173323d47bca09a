"""`mollifier tasks` and `mollifier methods`: list what is available."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from mollifier_lab import imports
from mollifier_lab.commands.output import console, table
from mollifier_lab.errors import LabError, pick
from mollifier_lab.methods import METHODS, applicable
from mollifier_lab.report.formats import is_percent, title
from mollifier_lab.settings import TASKS, sources


@dataclass(frozen=True)
class Tasks:
    """List the tasks, or the settings of one task: which values the paper gives, and which were chosen."""

    task: Annotated[
        Positional[str | None],
        arg(
            metavar="TASK",
            help="List all settings of this task, and where each value comes from.",
            help_behavior_hint="",
        ),
    ] = None
    markdown: Annotated[bool, arg(help="With TASK: print the table of docs/settings.md.", help_behavior_hint="")] = (
        False
    )

    def run(self) -> int:
        """Print it."""
        imports.load_named(imports.entry_points())
        if self.task is not None:
            return self._settings(self.task)
        if self.markdown:
            raise LabError(f"--markdown needs a task: one of {', '.join(TASKS)}")
        found = table("task", "what", "presets", "metric", "the paper's")
        for name, task in TASKS.items():
            paper = [
                f"{METHODS[method].title} {as_printed(task.headline, value)} ({each.note or each.where})"
                for each in task.paper
                for method, value in each.values.items()
            ]
            found.add_row(name, task.summary, ", ".join(task.presets), title(task.headline), "\n".join(paper) or "-")
        console().print(found)
        return 0

    def _settings(self, task: str) -> int:
        rows = sources.table(task)
        if self.markdown:
            print(sources.markdown(task), end="")
            return 0
        found = table("setting", "value", "whose", "where, or from what")
        for row in rows:
            found.add_row(*row)
        console().print(found)
        for origin, meaning in sources.MEANING.items():
            print(f"{origin}: {meaning}")
        ours = [name for name in TASKS[task].presets if name not in ("paper", "published")]
        print(f"our own presets, which change other settings as well: {', '.join(ours)}")
        return 0


@dataclass(frozen=True)
class Methods:
    """List the methods, or those that apply to a task."""

    task: Annotated[
        Positional[str | None],
        arg(metavar="TASK", help="List only the methods that apply to this task.", help_behavior_hint=""),
    ] = None

    def run(self) -> int:
        """Print it."""
        imports.load_named(imports.entry_points())
        if self.task is None:
            found = table("method", "what", "tasks", "searched besides")
            for method in METHODS.values():
                tasks = "all" if method.tasks == tuple(TASKS) else ", ".join(method.tasks)
                found.add_row(method.name, method.summary, tasks, ", ".join(method.knobs) or "-")
        else:
            task = pick("task", self.task, TASKS)
            found = table("method", "what", "searched", f"the paper's {title(task.headline)}")
            for method in applicable(self.task):
                values = [
                    as_printed(task.headline, each.values[method.name])
                    for each in task.paper
                    if method.name in each.values
                ]
                searched = ", ".join((*task.search, *method.knobs))
                found.add_row(method.name, method.summary, searched, ", ".join(values) or "-")
        console().print(found)
        return 0


def as_printed(metric: str, value: float) -> str:
    """Return a number of the paper, with no more digits than the paper gives.

    >>> as_printed("test_error", 0.305), as_printed("train_nll", 0.02)
    ('30.5 %', '0.02')
    """
    return f"{100 * value:g} %" if is_percent(metric) else f"{value:g}"
