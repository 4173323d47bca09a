"""The table: a row a variant, with intervals, and the paper's number beside ours."""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mollifier_lab.methods import METHODS
from mollifier_lab.report.formats import NONE, show_count, show_interval, show_metric, show_seconds
from mollifier_lab.report.reading import Run, Variant, number, read, variants
from mollifier_lab.runs import RunFolder

RESAMPLES = 9999
HEADINGS = ("variant", "final", "95 % interval", "paper", "best", "updates to target", "seeds", "time", "updates/s")


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds.

    Attributes:
        mean: Of the finite values; NaN if there is none.
        low: Start of the 95 % interval; NaN where `n` is below 2.
        high: Its end.
        n: Values that the mean is of.
    """

    mean: float
    low: float
    high: float
    n: int


def estimate(values: Iterable[float]) -> Estimate:
    """The mean and its 95 % bootstrap interval (BCa; by percentiles where BCa is not defined).

    >>> estimate([0.25, 0.25])
    Estimate(mean=0.25, low=0.25, high=0.25, n=2)
    >>> estimate([0.5]).low
    nan
    """
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return Estimate(math.nan, math.nan, math.nan, 0)
    mean = statistics.fmean(finite)
    if len(finite) == 1:
        return Estimate(mean, math.nan, math.nan, 1)
    if min(finite) == max(finite):
        return Estimate(finite[0], finite[0], finite[0], len(finite))
    low, high = _bootstrap(finite, "BCa")
    if math.isnan(low) or math.isnan(high):
        low, high = _bootstrap(finite, "percentile")
    return Estimate(mean, low, high, len(finite))


def _bootstrap(values: list[float], method: str) -> tuple[float, float]:
    import numpy as np
    from scipy.stats import bootstrap  # type: ignore[import-untyped]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scipy says that BCa is not defined here: the NaN says it, too
        found = bootstrap(
            (values,), np.mean, n_resamples=RESAMPLES, method=method, rng=np.random.default_rng(0)
        ).confidence_interval
    # a mean lies between its values: what is outside is rounding
    return max(float(found.low), min(values)), min(float(found.high), max(values))


@dataclass(frozen=True)
class TableRow:
    """What the table says of one variant.

    Attributes:
        task: The task.
        variant: The variant's name.
        method: The method's name.
        metric: What `final`, `best` and `paper` measure; the lower, the better.
        done: Seeds that are done, the diverged ones included.
        diverged: Those of them whose loss or metric was not finite in the end.
        failed: Seeds that ended with an error.
        running: Seeds that have started and are neither done nor failed.
        final: At the end of the run.
        best: Of the weights with the best value of the curve.
        curve: What `target` is a value of.
        target: The value to reach.
        reached: Seeds among `done` that reached it.
        updates_to_target: Median over `done`; infinite if less than half of them reached it, NaN if none is done.
        seconds: Mean wall-clock time of the runs that did not diverge.
        updates_per_second: Mean over the same runs.
        paper: What the paper reports for the method, or None.
    """

    task: str
    variant: str
    method: str
    metric: str
    done: int
    diverged: int
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

    @property
    def seeds(self) -> str:
        """The runs by how they ended."""
        counts = (("failed", self.failed), ("unfinished", self.running))
        done = f"{self.done} done" + (f" ({self.diverged} diverged)" if self.diverged else "")
        return ", ".join([done, *(f"{count} {name}" for name, count in counts if count)])

    @property
    def interval(self) -> str:
        """The interval of `final`, or why there is none."""
        if self.final.n < 2:
            return NONE if self.final.n == 0 else "n=1: no interval"
        return show_interval(self.metric, self.final.low, self.final.high)

    @property
    def to_target(self) -> str:
        """Updates to the target, and how many got there."""
        if not self.done:
            return NONE
        median = f"{show_count(self.updates_to_target)}; " if math.isfinite(self.updates_to_target) else ""
        return f"{median}{self.reached}/{self.done} reached"

    @property
    def average(self) -> str:
        """The mean of `final`, with the number of values where it is not that of the runs that are done."""
        if self.final.n == 0:
            return "diverged" if self.diverged else NONE
        few = f" (n={self.final.n})" if self.final.n != self.done else ""
        return show_metric(self.metric, self.final.mean) + few

    def cells(self) -> tuple[str, ...]:
        """As text, under `HEADINGS`."""
        rate = NONE if math.isnan(self.updates_per_second) else f"{self.updates_per_second:,.3g}"
        if self.updates_per_second >= 1000:
            rate = show_count(self.updates_per_second)
        best, paper = show_metric(self.metric, self.best.mean), show_metric(self.metric, self.paper)
        if self.best.n not in (0, self.final.n):  # runs that diverged have a best, too
            best += f" (n={self.best.n})"
        time = show_seconds(self.seconds)
        return (self.variant, self.average, self.interval, paper, best, self.to_target, self.seeds, time, rate)

    def keys(self) -> tuple[str | float, ...]:
        """What each cell is sorted by; NaN goes last."""
        paper = math.nan if self.paper is None else self.paper
        return (
            self.variant, self.final.mean, self.final.low, paper, self.best.mean,
            self.updates_to_target, self.done, self.seconds, self.updates_per_second,
        )  # fmt: skip


def table(runs: Iterable[RunFolder]) -> list[TableRow]:
    """A row a variant, in the order of the tasks and methods; a warning for each run that can not be read or is there twice.

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


def summarise(found: Sequence[Variant]) -> list[TableRow]:
    """A row for each variant."""
    return [_row(variant) for variant in found]


def _row(variant: Variant) -> TableRow:
    done, settings = variant.done, variant.settings
    reached = [first_at(run, settings.curve, settings.target) for run in done]
    status = [run.status for run in variant.runs]
    whole = [run for run in done if not run.diverged] or done
    return TableRow(
        task=variant.task,
        variant=variant.name,
        method=variant.method,
        metric=settings.headline,
        done=len(done),
        diverged=sum(run.diverged for run in done),
        failed=status.count("failed"),
        running=status.count("started"),
        final=estimate(run.final for run in done),
        best=estimate(run.best for run in done),
        curve=settings.curve,
        target=settings.target,
        reached=sum(map(math.isfinite, reached)),
        updates_to_target=statistics.median(reached) if reached else math.nan,
        seconds=_mean(whole, "seconds"),
        updates_per_second=_mean(whole, "updates_per_second"),
        # a variant with settings of its own is a control of ours, not what the paper reports
        paper=settings.paper.get(variant.method) if variant.name == METHODS[variant.method].title else None,
    )


def first_at(run: Run, metric: str, target: float) -> float:
    """The first update with a value at or below the target; infinite if there is none."""
    return next((update for update, value in run.points(metric).items() if value <= target), math.inf)


def _mean(runs: list[Run], name: str) -> float:
    finite = [value for run in runs if math.isfinite(value := number(run.result.get(name)))]
    return statistics.fmean(finite) if finite else math.nan
