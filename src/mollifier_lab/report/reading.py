"""Read runs for the report, once, and group them into variants; nothing is left out silently."""

from __future__ import annotations

import dataclasses
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mollifier_lab import seal
from mollifier_lab.errors import LabError
from mollifier_lab.methods import METHODS
from mollifier_lab.report import trust
from mollifier_lab.report.formats import show_unfinished
from mollifier_lab.report.names import shorten
from mollifier_lab.runs import DAMAGED, Row, RunFolder, Status
from mollifier_lab.settings import TASKS, RunConfig, Settings
from mollifier_lab.tuned import Tuned

ERROR = re.compile(r"(?:\w+\.)*(\w*(?:Error|Exception|Interrupt): .*)")
TAIL = 8192  # bytes of a failure that are read, from its end


def number(value: object) -> float:
    """Return a number of a file as a float: NaN if there is none (a run writes null for what is not finite).

    >>> number(None), number("x"), number(2)
    (nan, nan, 2.0)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    return float(value) if math.isfinite(value) else math.nan


@dataclass(frozen=True)
class Run:
    """The contents of the files of one run.

    Attributes:
        folder: The folder of the run.
        config: Everything that it depends on.
        status: The state of the run.
        rows: Its evaluations, in the order of their updates.
        seconds: Wall-clock by update.
        result: The final numbers; empty before the end.
        environment: Versions and machine; empty if it has not recorded them.
        failure: The end of failure.txt, if the run failed.
        damage: What is wrong with its records; such a run is not counted.
        lost_times: What is wrong with its clock; its times are then left out.
    """

    folder: RunFolder
    config: RunConfig
    status: Status
    rows: list[Row]
    seconds: dict[int, float]
    result: Row
    environment: Row
    failure: str = ""
    damage: str = ""
    lost_times: str = ""

    @property
    def identity(self) -> Row:
        """What its numbers depend on apart from its config; empty if the run did not record it."""
        found = self.environment.get("identity")
        return found if isinstance(found, dict) else {}

    @property
    def reason(self) -> str:
        """Why it failed, in one line: the line of the traceback that names the error, or the last one."""
        lines = self.failure.splitlines() or ["failure.txt is empty"]
        named = [found[1] for line in lines if (found := ERROR.match(line))]
        return (named or lines)[-1].strip()

    @property
    def unfinished(self) -> str:
        """A sentence that annealing had not ended when the run did; empty if it had."""
        return "" if self.status != "done" or self.diverged else show_unfinished(self.result.get("annealing"))

    @property
    def diverged(self) -> bool:
        """Whether the run is done, but its loss or its metric was not finite at the end."""
        return self.status == "done" and math.isnan(self.final)

    @property
    def final(self) -> float:
        """The table's metric at the end; NaN if the run diverged, since an error can be finite even if the network is not."""
        return math.nan if self.result.get("diverged") else self._metric("final")

    @property
    def best(self) -> float:
        """The table's metric for the weights with the best value of the curve."""
        return self._metric("best")

    @property
    def headline(self) -> str:
        """The table's metric; for a trial, which never sees the test set, that of its curve."""
        return self.config.settings.curve if self.config.trial else self.config.settings.headline

    @property
    def counted(self) -> float:
        """`final` as a mean counts it: a run that diverged has learnt nothing, and counts as chance."""
        return self.config.settings.chance if math.isnan(self.final) else self.final

    def _metric(self, which: str) -> float:
        found = self.result.get(which)
        return number(found.get(self.headline)) if isinstance(found, dict) else math.nan

    def points(self, name: str) -> dict[int, float]:
        """Return a column of the metrics, by update; NaN where the run wrote null."""
        return {row["update"]: number(row[name]) for row in self.rows if name in row}


@dataclass
class VariantRuns:
    """Runs that differ only in their seed.

    Attributes:
        task: The task.
        name: The name in tables and plots; unique within a task.
        method: The method's name.
        settings: The settings of all its runs.
        runs: In the order of their seeds.
        tuned: The search that chose some of the settings, if there was one.
        short: A short name where there is little room; unique within a task.
    """

    task: str
    name: str
    method: str
    settings: Settings
    runs: list[Run] = field(default_factory=list)
    tuned: Tuned | None = None
    short: str = ""

    @property
    def done(self) -> list[Run]:
        """The runs that are done and not damaged."""
        return [run for run in self.runs if run.status == "done" and not run.damage]

    @property
    def headline(self) -> str:
        """The table's metric, the same for all its runs."""
        return self.runs[0].headline

    @property
    def study(self) -> Path:
        """The folder of the comparison, which contains a folder per variant with a folder per seed."""
        return self.runs[0].folder.path.parent.parent

    @property
    def averaged(self) -> list[Run]:
        """The runs that a mean curve is computed over: done and not diverged; if there are none yet, all that have not failed."""
        good = [run for run in self.done if not run.diverged]
        return good or [run for run in self.runs if run.status == "started" and run.rows and not run.damage]


def read(folders: Iterable[RunFolder]) -> tuple[list[Run], list[str]]:
    """Return all runs that can be read, and one sentence per run that cannot."""
    runs: list[Run] = []
    problems: list[str] = []
    for folder in folders:
        try:
            runs.append(_read(folder))
        except LabError as error:
            problems.append(str(error))
        except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
            problems.append(f"{folder.path}: its files cannot be read ({error!r})")
    return runs, problems


def _read(folder: RunFolder) -> Run:
    status, damaged = folder.status, seal.damage(folder.path)
    if "config.json" in damaged:
        raise LabError(f"{folder.path}: {seal.describe(damaged)}")
    config = folder.config()

    def attempt(name: str, read: Callable[[], Any], otherwise: Any) -> Any:
        """Record files that cannot be read as damage: the run is shown by name, and not counted."""
        try:
            return read()
        except (LabError, OSError) as error:
            damaged.setdefault(
                name, str(error).removeprefix(str(folder.path / name)).removesuffix(DAMAGED).strip(":;, ")
            )
            return otherwise

    clock = [] if "clock.jsonl" in damaged else attempt("clock.jsonl", lambda: folder.rows("clock.jsonl"), [])
    seconds = {row["update"]: number(row.get("seconds")) for row in clock}
    # an update that was evaluated twice (a run resumed without its last rows) counts with the last evaluation
    rows = {row["update"]: row for row in attempt("metrics.jsonl", folder.rows, [])}
    result = attempt("result.json", lambda: folder.json("result.json"), {})
    environment = attempt("environment.json", lambda: folder.json("environment.json"), {})
    failure = _tail(folder) if status == "failed" else ""
    found = Run(folder, config, status, [rows[at] for at in sorted(rows)], seconds, result, environment, failure)
    if status == "done":
        damaged = trust.contradictions(found) | damaged
    times = damaged.pop("clock.jsonl", "")
    return dataclasses.replace(found, damage=seal.describe(damaged) if damaged else "", lost_times=times)


def _tail(folder: RunFolder) -> str:
    with (folder.path / "failure.txt").open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - TAIL))
        return file.read().decode(errors="replace").strip()


def variants(given: Iterable[Run]) -> tuple[list[VariantRuns], list[str]]:
    """Group runs by task, label, method, settings and what else their numbers depend on, in the order of the tasks and methods. Also return
    what was left out.

    Of two runs with the same seed, only the one with more updates is kept: the other contains nothing new.
    """
    groups: dict[tuple[Any, ...], list[Run]] = defaultdict(list)
    for run in given:
        config = run.config
        groups[config.task, list(METHODS).index(config.method), config.title, (config.trial, *dataclasses.astuple(config.settings))].append(run)  # fmt: skip
    found: list[VariantRuns] = []
    notes: list[str] = []
    order = list(TASKS)
    keys = sorted(groups, key=lambda key: (order.index(key[0]), *key[1:3], repr(key[3])))
    for group in (each for key in keys for each in trust.split(groups[key])):
        config = group[0].config
        runs = _by_seed(group, notes)
        try:
            tuned = Tuned.read(runs[0].folder.path.parent)
        except LabError as error:
            tuned = None
            notes.append(str(error))
        found.append(VariantRuns(config.task, config.title, config.method, config.settings, runs, tuned))
    found.sort(key=lambda each: (order.index(each.task), *_rank(each)))
    for task in TASKS:
        of_task = [variant for variant in found if variant.task == task]
        _tell_apart(of_task)
        trust.mark(of_task)
        shown = shorten([each.name for each in of_task], [METHODS[each.method].title for each in of_task])
        for variant, name in zip(of_task, shown, strict=True):
            variant.short = name
    return found, [*notes, *trust.mixed(found)]


def _rank(variant: VariantRuns) -> tuple[bool, float]:
    """Sort trials of a search by their results, the best first, after everything else, which keeps its order."""
    if not variant.runs[0].config.trial:
        return False, 0.0
    return True, min((run.counted for run in variant.done), default=math.inf)


def _by_seed(runs: list[Run], notes: list[str]) -> list[Run]:
    kept: dict[int, Run] = {}
    rank = {"done": 0, "started": 1, "failed": 2, "empty": 3}
    for run in sorted(
        runs,
        key=lambda run: (run.config.seed, bool(run.damage), rank[run.status], -len(run.rows), str(run.folder.path)),
    ):
        first = kept.setdefault(run.config.seed, run)
        if first is not run:
            notes.append(
                f"{run.folder.path}: left out, because it is the same run as {first.folder.path} ({run.config.title}, seed {run.config.seed})"
            )
    return list(kept.values())


def _tell_apart(found: list[VariantRuns]) -> None:
    """Add the settings that differ to the names of variants with the same name."""
    names: dict[str, list[VariantRuns]] = defaultdict(list)
    for variant in found:
        names[variant.name].append(variant)
    for same in names.values():
        if len(same) == 1:
            continue
        changed = differing([variant.settings for variant in same])
        methods = len({variant.method for variant in same}) > 1
        for variant in same:
            parts = [variant.name, *([variant.method] if methods else [])]
            variant.name = ", ".join([*parts, *(f"{name}={show(getattr(variant.settings, name))}" for name in changed)])


def differing(settings: list[Settings]) -> list[str]:
    """Return the names of the settings that are not the same everywhere."""
    names = [each.name for each in dataclasses.fields(settings[0])]
    return [name for name in names if len({getattr(each, name) for each in settings}) > 1]


def show(value: object) -> str:
    """Format a setting as a person writes it.

    >>> show(1.0), show(0.1), show("sgd")
    ('1', '0.1', 'sgd')
    """
    return f"{value:.12g}" if isinstance(value, float) else str(value)
