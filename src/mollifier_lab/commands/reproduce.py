"""`mollifier reproduce`: the studies of the reproduction, by name."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from mollifier_lab.commands.output import console, show_report, table
from mollifier_lab.commands.shared_flags import DataFolder, Precision, Quiet, Workers
from mollifier_lab.errors import LabError, pick
from mollifier_lab.hardware import FULL
from mollifier_lab.reproduction import CORES, STUDIES, Study


@dataclass(frozen=True)
class Reproduce:
    """Reproduce the paper's experiments: a study by its name, or `all`; without a name, list the studies with their estimated hours."""

    names: Annotated[Positional[tuple[str, ...]], arg(metavar="NAME ...", help="Studies to run; all: every study for a CPU whose data is available.", help_behavior_hint="")] = ()  # fmt: skip
    smoke: Annotated[bool, arg(help_behavior_hint="")] = False
    """Run the same studies with tiny networks and a few updates, only to show that the commands work."""
    verdicts: Annotated[bool, arg(help_behavior_hint="")] = False
    """Run nothing: check the paper's claims against the existing results, and write the table into their README.md."""
    out: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: results, or out/smoke)")] = None
    """Each study has the folder TASK/NAME in it; run again, the command continues where it stopped."""
    data: DataFolder = None
    workers: Workers = CORES
    precision: Precision = FULL
    quiet: Quiet = False

    def run(self) -> int:
        """Run the studies; return 1 if a run failed."""
        if self.verdicts:
            return _judge(self.out or Path("results"))
        if not self.names:
            return _list()
        every = "all" in self.names
        for name in self.names:
            pick("study", name, {**STUDIES, "all": None})
        wanted = [study for study in STUDIES.values() if study.name in self.names or (every and study.here)]
        skipped, failed = [], []
        for study in wanted:
            if (missing := _missing(study, self.data)) and study.name not in self.names:
                skipped.append(f"skipped: {study.name}: {missing}")
                print(skipped[-1], file=sys.stderr)
            elif missing:
                raise LabError(f"{study.name}: {missing}")
            elif not self._run(study):
                failed.append(study.name)
        if len(wanted) > 1:
            done = len(wanted) - len(skipped) - len(failed)
            print(
                "\n".join([f"studies: {done} done, {len(failed)} with failed runs, {len(skipped)} skipped", *skipped])
            )
        return 1 if failed else 0

    def _run(self, study: Study) -> bool:
        from mollifier_lab.tuning import compare_best, tune

        root = self.out or Path("out/smoke" if self.smoke else "results")
        folder = root / study.task / study.name
        small = study.smoke_version() if self.smoke else study
        words = [
            "mollifier",
            "reproduce",
            study.name,
            *(["--smoke"] if self.smoke else []),
            *(["--out", str(self.out)] if self.out else []),
            *(["--data", str(self.data)] if self.data else []),
            *(["--workers", str(self.workers)] if self.workers != CORES else []),
            *(["--precision", self.precision] if self.precision != FULL else []),
        ]
        print(f"{study.name}: {study.claim}\n{shlex.join(words)}", flush=True)
        common: dict[str, Any] = {
            "preset": small.preset, "changes": small.changes, "data": self.data, "workers": self.workers, "threads": 1,
            "show": not self.quiet, "precision": self.precision, "command": shlex.join(words),
        }  # fmt: skip
        if small.trials:
            runs = tune(
                small.task,
                small.methods,
                small.trials,
                small.seeds,
                folder,
                trial_changes=small.trial_changes,
                **common,
            )
        else:
            best = [
                root / study.task / study.best_of / "search" / name / "best.json"
                for name in small.methods
                if study.best_of
            ]
            runs = compare_best(small.task, small.methods, small.seeds, folder, best=best, **common)
        if any(run.status != "empty" for run in runs):
            show_report(folder)
        return all(run.status == "done" for run in runs)


def _judge(results: Path) -> int:
    from mollifier_lab.claims import write_verdicts

    if not results.is_dir():
        raise LabError(f"{results}: there is no such folder; name the folder with the results: --out DIR")
    found = table("claim", "paper", "ours", "difference", "verdict")
    for each in write_verdicts(results):
        found.add_row(each.claim.text, each.claim.paper, each.found, each.difference, each.verdict)
    console().print(found)
    return 0


def _missing(study: Study, data: Path | None) -> str:
    """Say in one line what is wrong with a study's data; empty if it is complete."""
    if study.task in ("parity", "pentomino", "adding"):  # generated
        return ""
    from mollifier_lab.commands.data import SETS
    from mollifier_lab.data.folder import DataError, data_folder, locate

    try:
        locate(SETS[study.task], data_folder(data))
    except DataError as error:
        return f"{str(error).splitlines()[0].removesuffix(' Looked in')} To download: mollifier data {study.task}"
    return ""


def _list() -> int:
    found = table("study", "claim", "methods", "seeds", "trials", "hours")
    for study in STUDIES.values():
        hours = f"{study.estimate:.1f}" if study.here else f"({study.estimate:.0f})"
        seeds, trials = (
            str(study.seeds),
            str(study.trials) if study.trials else (f"of {study.best_of}" if study.best_of else "-"),
        )
        found.add_row(study.name, study.claim, " ".join(study.methods), seeds, trials, hours)
    console().print(found)
    total = sum(study.estimate for study in STUDIES.values() if study.here)
    print(
        f"hours: estimated for {CORES} cores with one run on each; {total:.0f} in total, without those in brackets, which need a GPU"
    )
    return 0
