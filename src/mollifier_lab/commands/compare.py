"""`mollifier compare`: methods × seeds, the table and the page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from mollifier_lab.commands.options import Address, Backend, Changes, DataFolder, Preset, Quiet, Task, Threads, Workers
from mollifier_lab.commands.screen import show_report
from mollifier_lab.errors import LabError, pick
from mollifier_lab.settings import TASKS


@dataclass(frozen=True)
class Compare:
    """Compare methods on a task over several seeds: runs what is missing, never what is done; then the table and a page."""

    task: Task
    methods: Annotated[
        tuple[str, ...],
        arg(metavar="METHOD ...", help_behavior_hint="(default: plain, mollified, residual-bn or residual)"),
    ] = ()  # fmt: skip
    """What to compare; settings of one alone behind a colon: plain:gain=4,lr=0.1."""
    seeds: Annotated[str, arg(metavar="N")] = "5"
    """How many seeds, from 0; or which, with commas: 3,5,8 (one alone: 3,)."""
    preset: Preset = "paper"
    changes: Changes = ()
    out: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: runs/compare/TASK-PRESET)")] = None
    """Folder of the comparison; named again, it goes on where it stopped."""
    data: DataFolder = None
    workers: Workers = 1
    backend: Backend = "loky"
    address: Address = None
    threads: Threads = 0
    quiet: Quiet = False

    def run(self) -> int:
        """Run, tell and write the report; 1 if a run failed."""
        pick("task", self.task, TASKS)
        out = self.out or Path("runs", "compare", f"{self.task}-{self.preset}")

        from mollifier_lab import study

        runs = study.compare(
            self.task,
            self.methods,
            seed_numbers(self.seeds),
            out,
            preset=self.preset,
            changes=self.changes,
            data=self.data,
            workers=self.workers,
            backend=self.backend,
            address=self.address,
            threads=self.threads,
            show=not self.quiet,
        )
        if any((run.path / "config.json").exists() for run in runs):
            show_report(out)
        return 1 if any(run.status != "done" for run in runs) else 0


def seed_numbers(text: str) -> int | list[int]:
    """How many, or which.

    >>> seed_numbers("5"), seed_numbers("3,"), seed_numbers("3,5")
    (5, [3], [3, 5])
    """
    try:
        return [int(word) for word in text.removesuffix(",").split(",")] if "," in text else int(text)
    except ValueError:
        raise LabError(f"--seeds {text}: expected how many, 5, or which, 3,5,8") from None
