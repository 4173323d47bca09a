"""`mollifier compare`: methods × seeds, after a search if requested; writes the table and the page."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg

from mollifier_lab import notes
from mollifier_lab.commands.default_folders import study_folder
from mollifier_lab.commands.dry_run import print_plan
from mollifier_lab.commands.import_flag import Imports
from mollifier_lab.commands.output import show_report
from mollifier_lab.commands.shared_flags import (
    Address,
    Backend,
    Changes,
    DataFolder,
    DryRun,
    Logger,
    NoteText,
    OtherData,
    Precision,
    Preset,
    Pruner,
    Quiet,
    Tags,
    Task,
    Threads,
    Workers,
)
from mollifier_lab.errors import LabError, pick
from mollifier_lab.grid import expand, parse_grids
from mollifier_lab.hardware import FULL
from mollifier_lab.runs import RunFolder
from mollifier_lab.settings import TASKS
from mollifier_lab.variants import Variant, parse_changes, parse_variants


@dataclass(frozen=True)
class Compare:
    """Compare methods on a task over several seeds: runs only what is missing, then prints the table and writes a page."""

    task: Task
    methods: Annotated[
        tuple[str, ...],
        arg(metavar="METHOD ...", help_behavior_hint="(default: those of the paper, and plain)"),
    ] = ()  # fmt: skip
    """Methods to compare; settings of one method follow a colon: plain:gain=4,lr=0.1."""
    seeds: Annotated[str, arg(metavar="N")] = "5"
    """Number of seeds, from 0; or a list of seeds: 3,5,8 (a single seed: 3,)."""
    preset: Preset = "paper"
    changes: Changes = ()
    grid: Annotated[tuple[str, ...], arg(metavar="NAME=A,B ...", help_behavior_hint="(default: none)")] = ()
    """Compare each method at each of these values: k=10,100,1000. Several grids make all combinations; a method that does not use a setting is not varied."""
    search: Annotated[int, arg(metavar="N", help_behavior_hint="(default: no search)")] = 0
    """First search the settings of every method at random, with N trials each and the same draws for all, never on the test set; then compare the best settings of each."""
    search_set: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE ...", help_behavior_hint="(default: none)")] = ()
    """Settings that are changed for the trials of the search only: updates=2000, a shorter training."""
    search_seed: Annotated[int, arg(metavar="N")] = 1000
    """Seed of the search's draws and runs; not one of the seeds that are compared."""
    pruner: Pruner = "none"
    best: Annotated[tuple[Path, ...], arg(metavar="FILE ...", help_behavior_hint="(default: none)")] = ()
    """Use the results of earlier searches: best.json files of `mollifier search`, each for its method."""
    out: Annotated[
        Path | None, arg(metavar="DIR", help_behavior_hint="(default: runs/compare/TASK-PRESET and what is set)")
    ] = None
    """Folder of the comparison; an existing comparison is continued."""
    data: DataFolder = None
    allow_other_data: OtherData = False
    workers: Workers = 1
    backend: Backend = "loky"
    address: Address = None
    threads: Threads = 0
    precision: Precision = FULL
    imports: Imports = ()
    logger: Logger = ""
    tags: Tags = ""
    note: NoteText = ""
    dry_run: DryRun = False
    quiet: Quiet = False

    def run(self) -> int:
        """Run the comparison, print the table and write the report; return 1 if a run failed."""
        pick("task", self.task, TASKS)
        out = self.out or study_folder("compare", self.task, self.preset, parse_changes(self.changes, self.task))
        variants = self._variants()
        self._check()
        if self.dry_run:
            return self._dry_run(variants, out)
        notes.add(out, self.tags, self.note)
        runs = self._runs(variants, out)
        if any(run.status != "empty" for run in runs):
            show_report(out)
        return 1 if any(run.status != "done" for run in runs) else 0

    def _variants(self) -> list[Variant]:
        wanted = parse_variants(self.methods, self.task)
        return expand(wanted, self.grid, self.task) if self.grid else wanted

    def _check(self) -> None:
        """Refuse flags that cannot be combined."""
        if self.search and self.best:
            raise LabError("--search and --best: expected one of them; --best uses the result of an earlier search")
        if self.pruner != "none" and not self.search:
            raise LabError(
                f"--pruner {self.pruner}: expected it together with --search N; the runs that are compared are never ended early"
            )
        if self.search_set and not self.search:
            raise LabError(f"--search-set {' '.join(self.search_set)}: expected it together with --search N")
        both = set(parse_grids(self.grid, self.task)) & set(parse_changes(self.changes, self.task))
        if both:
            raise LabError(f"--grid and --set both name {', '.join(sorted(both))}; expected one of them")

    def _dry_run(self, variants: list[Variant], out: Path) -> int:
        from mollifier_lab.pool import Pool
        from mollifier_lab.search import check_trials
        from mollifier_lab.study import check_holds_no_run, seed_list
        from mollifier_lab.tuning import found_best

        Pool(workers=self.workers, backend=self.backend, address=self.address, threads=self.threads, logger=self.logger)
        check_holds_no_run(out)
        if self.search:
            check_trials(self.search)
        for path in self.best:
            found_best(path, self.task)
        common = parse_changes(self.changes, self.task)
        runs = [
            (replace(each.config(self.task, seed, self.preset, common), other_data=self.allow_other_data), out / each.slug / f"seed-{seed}")
            for each in variants
            for seed in seed_list(seed_numbers(self.seeds))
        ]  # fmt: skip
        before = (
            f", after {self.search} trials for each variant, which choose some of these settings" if self.search else ""
        )
        return print_plan(runs, before or (", with the values that --best names" if self.best else ""))

    def _runs(self, variants: list[Variant], out: Path) -> list[RunFolder]:
        from mollifier_lab.tuning import compare_best, tune

        common: dict[str, Any] = {
            "preset": self.preset, "changes": self.changes, "data": self.data, "workers": self.workers, "backend": self.backend,
            "address": self.address, "threads": self.threads, "show": not self.quiet, "allow_other_data": self.allow_other_data,
            "precision": self.precision, "logger": self.logger,
        }  # fmt: skip
        seeds = seed_numbers(self.seeds)
        if self.search:
            short: dict[str, Any] = {
                "trial_changes": self.search_set,
                "search_seed": self.search_seed,
                "pruner": self.pruner,
            }
            return tune(self.task, variants, self.search, seeds, out, **short, **common)
        return compare_best(self.task, variants, seeds, out, best=self.best, **common)


def seed_numbers(text: str) -> int | list[int]:
    """Return the number of seeds, or a list of seeds.

    >>> seed_numbers("5"), seed_numbers("3,"), seed_numbers("3,5")
    (5, [3], [3, 5])
    """
    try:
        return [int(word) for word in text.removesuffix(",").split(",")] if "," in text else int(text)
    except ValueError:
        raise LabError(f"--seeds {text}: expected a number, 5, or a list, 3,5,8") from None
