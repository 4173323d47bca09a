"""The table: one row per variant, with intervals, and the paper's number next to ours."""

from __future__ import annotations

import math
import statistics
import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mollifier_lab.methods import METHODS
from mollifier_lab.report.estimates import Estimate as Estimate, estimate as estimate, paired
from mollifier_lab.report.formats import (
    NONE,
    show_count,
    show_difference,
    show_interval,
    show_levels,
    show_metric,
    show_seconds,
)
from mollifier_lab.report.reading import Run, VariantRuns, number, read, variants
from mollifier_lab.runs import RunFolder
from mollifier_lab.settings.reported import in_paper, reported

HEADINGS = (
    "variant", "final", "95 % interval", "difference to baseline", "tuned", "paper", "best", "updates to target", "seeds", "time",
    "updates/s",
)  # fmt: skip
NOT_FULL = "full size only"
SINGLE = "n=1: no interval"


@dataclass(frozen=True)
class TableRow:
    """What the table says about one variant.

    Attributes:
        task: The task.
        variant: The variant's name.
        method: The method's name.
        metric: What `final`, `best` and `paper` measure; lower is better.
        done: The number of seeds that are done, including diverged ones.
        diverged: The number of these whose loss or metric was not finite at the end; each counts as `chance`.
        chance: The metric of a network that guesses.
        failed: The number of seeds that ended with an error.
        running: The number of seeds that have started and are neither done nor failed.
        damaged: The number of seeds whose records are damaged; they are not counted anywhere else.
        unannealed: The number of seeds in `done` that did not diverge, but whose annealing had not ended.
        levels: The lowest and the highest level of these seeds.
        reasons: Why seeds failed, without repetition.
        short: A short name where there is little room.
        final: The metric at the end of the run.
        best: The metric for the weights with the best value of the curve.
        curve: The metric of `target`.
        target: The value to reach.
        reached: The number of seeds in `done` that reached it.
        updates_to_target: The median over `done`; infinite if less than half of them reached it, NaN if none is done.
        seconds: Mean wall-clock time of the runs that did not diverge.
        updates_per_second: Mean over the same runs.
        paper: The paper's number for the method in a setting of this size, or None.
        paper_note: How the paper's number differs from `final`; or that there is a number only for the full size.
        baseline: The variant with which the others are compared: the best mean among those that anneal nothing; empty if there is none.
        difference: `final` minus the baseline's, seed by seed; None for the baseline itself, or without one.
        tuned: What a search has chosen, and on how many trials; empty if nothing.
    """

    task: str
    variant: str
    method: str
    metric: str
    done: int
    diverged: int
    chance: float
    failed: int
    running: int
    final: Estimate
    best: Estimate
    curve: str
    target: float
    reached: int
    updates_to_target: float
    seconds: float
    updates_per_second: float
    paper: float | None
    paper_note: str = ""
    baseline: str = ""
    difference: Estimate | None = None
    tuned: str = ""
    damaged: int = 0
    unannealed: int = 0
    levels: str = ""
    reasons: tuple[str, ...] = ()
    short: str = ""

    @property
    def seeds(self) -> str:
        """Count the runs by how they ended."""
        counts = (("failed", self.failed), ("unfinished", self.running), ("damaged", self.damaged))
        ends = [f"{self.diverged} diverged"] if self.diverged else []
        ends += [f"{self.unannealed} before annealing had ended: {self.levels}"] if self.unannealed else []
        done = f"{self.done} done" + (f" ({', '.join(ends)})" if ends else "")
        return ", ".join([done, *(f"{count} {name}" for name, count in counts if count)])

    @property
    def interval(self) -> str:
        """Format the interval of `final`, or say why there is none."""
        if self.final.n < 2 or self.diverged == self.done:
            return NONE if self.diverged == self.done else SINGLE
        return show_interval(self.metric, self.final.low, self.final.high)

    @property
    def to_target(self) -> str:
        """Format the updates to the target, and how many seeds reached it."""
        if not self.done:
            return NONE
        median = f"{show_count(self.updates_to_target)}; " if math.isfinite(self.updates_to_target) else ""
        return f"{median}{self.reached}/{self.done} reached"

    @property
    def average(self) -> str:
        """Format the mean of `final`, and how many of its runs diverged."""
        if not self.done:
            return NONE
        if self.diverged == self.done:
            return "diverged"
        lost = (
            f" ({self.diverged} of {self.done} diverged, as {show_metric(self.metric, self.chance)})"
            if self.diverged
            else ""
        )
        return show_metric(self.metric, self.final.mean) + lost

    @property
    def against(self) -> str:
        """Format the difference to the baseline, with its interval."""
        if self.difference is None:
            return "the baseline" if self.baseline == self.variant else NONE
        found = self.difference
        if not found.n:
            return "no seed in common"
        interval = f"{show_interval(self.metric, found.low, found.high)}; " if found.n > 1 else ""
        return f"{show_difference(self.metric, found.mean)} ({interval}n={found.n})"

    @property
    def reported(self) -> str:
        """Format the paper's number with the necessary remark."""
        if self.paper is None:
            return self.paper_note or NONE
        return show_metric(self.metric, self.paper) + (f" ({self.paper_note})" if self.paper_note else "")

    def cells(self) -> tuple[str, ...]:
        """Return the cells as text, under `HEADINGS`."""
        rate = NONE if math.isnan(self.updates_per_second) else f"{self.updates_per_second:,.3g}"
        if self.updates_per_second >= 1000:
            rate = show_count(self.updates_per_second)
        return (
            self.short or self.variant, self.average, self.interval, self.against, self.tuned or NONE, self.reported,
            show_metric(self.metric, self.best.mean), self.to_target, self.seeds, show_seconds(self.seconds), rate,
        )  # fmt: skip

    def keys(self) -> tuple[str | float, ...]:
        """Return what each cell is sorted by; NaN sorts last."""
        paper = math.nan if self.paper is None else self.paper
        difference = (
            0.0 if self.baseline == self.variant else math.nan if self.difference is None else self.difference.mean
        )
        return (
            self.variant, self.final.mean, self.final.low, difference, float(bool(self.tuned)), paper, self.best.mean,
            self.updates_to_target, self.done, self.seconds, self.updates_per_second,
        )  # fmt: skip


def columns(rows: Sequence[TableRow]) -> list[int]:
    """Return which of `HEADINGS` have a value in at least one row; the variant always does."""
    cells = list(zip(*(row.cells() for row in rows), strict=True))
    return [place for place, each in enumerate(cells) if place == 0 or set(each) - {NONE, NOT_FULL, SINGLE}]


def table(runs: Iterable[RunFolder]) -> list[TableRow]:
    """Return one row per variant, in the order of the tasks and methods, with a warning for each run that cannot be read or exists twice.

    >>> import tempfile
    >>> from mollifier_lab.settings import RunConfig
    >>> run = RunFolder(tempfile.mkdtemp())
    >>> run.write("config.json", RunConfig.make("parity", "mollified").to_json())
    >>> [(row.variant, row.seeds, row.paper) for row in table([run])]
    [('mollified', '0 done, 1 unfinished', 0.02)]
    """
    found, problems = read(runs)
    groups, notes = variants(found)
    for message in (*problems, *notes):
        warnings.warn(message, stacklevel=2)
    return summarise(groups)


def summarise(found: Sequence[VariantRuns]) -> list[TableRow]:
    """Return one row per variant. Differences are computed within a study, to the best of its variants that anneal nothing."""
    groups: dict[tuple[str, Path], list[VariantRuns]] = defaultdict(list)
    for variant in found:
        groups[variant.task, variant.study].append(variant)
    best = {key: _baseline(group) for key, group in groups.items()}
    return [_row(variant, best[variant.task, variant.study]) for variant in found]


def _baseline(found: Sequence[VariantRuns]) -> VariantRuns | None:
    plain = [variant for variant in found if not METHODS[variant.method].annealed and variant.done]
    return min(plain, key=lambda variant: statistics.fmean(_finals(variant).values()), default=None)


def _finals(variant: VariantRuns) -> dict[int, float]:
    return {run.config.seed: run.counted for run in variant.done}


def _row(variant: VariantRuns, baseline: VariantRuns | None) -> TableRow:
    done, settings = variant.done, variant.settings
    reached = [first_at(run, settings.curve, settings.target) for run in done]
    status = [run.status for run in variant.runs if not run.damage]
    unannealed = [run for run in done if run.unfinished]
    whole = [run for run in done if not run.diverged] or done
    # a variant with settings of its own is a control of ours, not a method that the paper reports
    own = variant.name == METHODS[variant.method].title and variant.headline == settings.headline
    numbers = reported(settings, variant.method) if own else None
    elsewhere = NOT_FULL if own and variant.method in in_paper(type(settings)) else ""
    return TableRow(
        task=variant.task,
        variant=variant.name,
        method=variant.method,
        metric=variant.headline,
        done=len(done),
        diverged=sum(run.diverged for run in done),
        chance=settings.chance,
        failed=status.count("failed"),
        running=status.count("started"),
        final=estimate(_finals(variant).values()),
        best=estimate(settings.chance if math.isnan(run.best) else run.best for run in done),
        curve=settings.curve,
        target=settings.target,
        reached=sum(map(math.isfinite, reached)),
        updates_to_target=statistics.median(reached) if reached else math.nan,
        seconds=_mean(whole, "seconds"),
        updates_per_second=_mean(whole, "updates_per_second"),
        paper=numbers.values[variant.method] if numbers else None,
        paper_note=numbers.note if numbers else elsewhere,
        baseline=baseline.name if baseline else "",
        difference=paired(_finals(variant), _finals(baseline)) if baseline not in (None, variant) else None,
        tuned=variant.tuned.summary if variant.tuned else "",
        damaged=sum(bool(run.damage) for run in variant.runs),
        unannealed=len(unannealed),
        levels=show_levels([level for run in unannealed for level in run.result["annealing"].get("levels") or ()]),
        reasons=tuple(dict.fromkeys(run.reason for run in variant.runs if run.status == "failed")),
        short=variant.short,
    )


def first_at(run: Run, metric: str, target: float) -> float:
    """Return the first update with a value at or below the target; infinite if there is none."""
    return next((update for update, value in run.points(metric).items() if value <= target), math.inf)


def _mean(runs: list[Run], name: str) -> float:
    finite = [value for run in runs if math.isfinite(value := number(run.result.get(name)))]
    return statistics.fmean(finite) if finite else math.nan
