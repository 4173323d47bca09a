"""`mollifier search`: the same random search for every method."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from mollifier_lab.commands.default_folders import study_folder
from mollifier_lab.commands.dry_run import describe_ranges, print_plan
from mollifier_lab.commands.import_flag import Imports
from mollifier_lab.commands.shared_flags import (
    Address,
    Backend,
    Changes,
    DataFolder,
    DryRun,
    Logger,
    MethodName,
    OtherData,
    Precision,
    Preset,
    Pruner,
    Quiet,
    Task,
    Threads,
    Workers,
)
from mollifier_lab.errors import pick
from mollifier_lab.hardware import FULL
from mollifier_lab.methods import method_for
from mollifier_lab.report.formats import show_metric, title
from mollifier_lab.settings import TASKS, RunConfig
from mollifier_lab.variants import parse_changes


@dataclass(frozen=True)
class Search:
    """Search a method's settings at random; the best become a file for `mollifier train --config`."""

    task: Task
    method: MethodName = "mollified"
    trials: Annotated[int, arg(metavar="N")] = 20
    """Number of trials in all, including those of an earlier search with the same storage."""
    preset: Preset = "paper"
    changes: Changes = ()
    seed: Annotated[int, arg(metavar="N")] = 0
    """Seed of the search and of its runs."""
    pruner: Pruner = "none"
    storage: Annotated[str | None, arg(metavar="URL", help_behavior_hint="(default: an SQLite file in the folder)")] = None  # fmt: skip
    """Database of the trials; on a cluster, one that all machines can reach."""
    out: Annotated[
        Path | None, arg(metavar="DIR", help_behavior_hint="(default: runs/search/TASK-PRESET and what is set/METHOD)")
    ] = None  # fmt: skip
    """Folder of the search; an existing search is continued."""
    data: DataFolder = None
    allow_other_data: OtherData = False
    workers: Workers = 1
    backend: Backend = "loky"
    address: Address = None
    threads: Threads = 0
    precision: Precision = FULL
    imports: Imports = ()
    logger: Logger = ""
    dry_run: DryRun = False
    quiet: Quiet = False

    def run(self) -> int:
        """Search, and print the best settings; return 1 if a trial failed."""
        method_for(self.method, pick("task", self.task, {name: name for name in TASKS}))
        common = parse_changes(self.changes, self.task)
        out = self.out or study_folder("search", self.task, self.preset, common) / self.method

        from mollifier_lab.pool import Pool
        from mollifier_lab.search import check_trials, search, search_space
        from mollifier_lab.study import check_holds_no_run

        if self.dry_run:
            check_trials(self.trials)
            Pool(
                workers=self.workers,
                backend=self.backend,
                address=self.address,
                threads=self.threads,
                logger=self.logger,
            )
            check_holds_no_run(out)
            ranges = describe_ranges(search_space(self.task, self.method, common))
            config = RunConfig.make(self.task, self.method, self.seed, self.preset, **common)
            return print_plan([(config, out / "trial-…")], f" {self.trials} times, with {ranges}")

        best = search(
            self.task,
            self.method,
            self.trials,
            out,
            preset=self.preset,
            changes=self.changes,
            seed=self.seed,
            storage=self.storage,
            data=self.data,
            workers=self.workers,
            backend=self.backend,
            address=self.address,
            threads=self.threads,
            show=not self.quiet,
            allow_other_data=self.allow_other_data,
            pruner=self.pruner,
            precision=self.precision,
            logger=self.logger,
        )
        counts = ", ".join(f"{count} {name}" for name, count in best.trials.items() if count)
        drawn = search_space(self.task, self.method, common)
        values = ", ".join(f"{name}={getattr(best.config.settings, name):.4g}" for name in drawn)
        print(
            f"trials: {counts}\nbest: trial {best.number}, {title(best.metric)} {show_metric(best.metric, best.value)}, with {values}"
        )
        print(f"to train with these settings: mollifier train {self.task} --config {shlex.quote(str(best.path))}")
        return 1 if best.trials.get("failed") else 0
