"""Curves: what is drawn of a variant, in the pictures and on the page."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mollifier_lab.report.reading import Run, VariantRuns, number

POINTS = 600  # points of a line on the page: as many as a plot there is wide
DECADES = 1.5  # from this ratio on, a span is drawn on a log scale
LEVEL = "mean_level"  # mean over the blocks: a column that is drawn, but not written
NOT_DRAWN = ("update", "epoch", "levels")  # of a row


@dataclass(frozen=True)
class Band:
    """A mean over seeds with the lowest and the highest value, at the updates that all seeds have."""

    updates: list[int]
    seconds: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]


def series(found: Sequence[VariantRuns]) -> tuple[str, ...]:
    """Return the columns that are drawn for a task: the training loss, the task's curve and, if it is a different column and was measured,
    the validation loss.
    """
    names = ("train_loss", found[0].settings.curve)
    measured = any("valid_loss" in row for variant in found for run in variant.runs for row in run.rows[-1:])
    return (*names, "valid_loss") if measured and "valid_loss" not in names else names


def logged(found: Sequence[VariantRuns]) -> tuple[str, ...]:
    """Return all columns that can be drawn for a task: those of `series` first, then every other number that a run wrote, then the mean
    level.
    """
    rows = [row for variant in found for run in variant.runs for row in (*run.rows[:1], *run.rows[-1:])]
    names = dict.fromkeys(series(found))
    names |= dict.fromkeys(
        name for row in rows for name, value in row.items() if name not in NOT_DRAWN and _drawable(value)
    )
    return (*names, LEVEL) if any(row.get("levels") for row in rows) else tuple(names)


def points(run: Run, name: str) -> dict[int, float]:
    """Return a column of a run by update; `LEVEL` is one of them."""
    if name != LEVEL:
        return run.points(name)
    return {row["update"]: statistics.fmean(map(number, row["levels"])) for row in run.rows if row.get("levels")}


def wants_log(values: Iterable[float]) -> bool:
    """Return whether values are easier to read on a log scale: all above 0, and most of them far apart.

    >>> wants_log([1.0, 0.1, 0.01]), wants_log([0.9, 0.5, 0.08]), wants_log([0.0, 1.0, 100.0])
    (True, False, False)
    """
    finite = sorted(value for value in values if math.isfinite(value))
    if not finite or finite[0] <= 0:
        return False
    low, high = finite[len(finite) // 100], finite[-1 - len(finite) // 100]  # a single spike decides nothing
    return math.log10(high / low) >= DECADES


def log_scale(found: Sequence[VariantRuns], name: str) -> bool:
    """Return whether a column of a task's variants is drawn on a log scale; the level never is."""
    if name == LEVEL:
        return False
    return wants_log(value for variant in found for run in variant.averaged for value in run.points(name).values())


def grid(variant: VariantRuns, most: int = POINTS) -> list[int]:
    """Return the updates at which the runs of a variant are drawn: evenly spaced among all that they have."""
    updates = sorted({row["update"] for run in variant.runs for row in run.rows})
    return [updates[index] for index in thin(len(updates), most)]


def epochs_per_update(variant: VariantRuns) -> float:
    """Return the epochs per update; NaN if no run says it."""
    rows = [row for run in variant.runs for row in run.rows[-1:] if row["update"]]
    return number(rows[0].get("epoch")) / rows[0]["update"] if rows else math.nan


def band(runs: Sequence[Run], metric: str, log: bool = False) -> Band:
    """Return the mean, the lowest and the highest of the runs, where each of them has a finite value; on a log scale the geometric mean.

    The seconds are the mean of the wall-clock times at an update; NaN if a run has none.
    """
    columns = [points(run, metric) for run in runs]
    updates = _common(columns)
    values = [[column[at] for column in columns] for at in updates]
    mean = statistics.geometric_mean if log else statistics.fmean
    return Band(
        updates,
        mean_seconds(runs, updates),
        [mean(each) for each in values],
        [min(each) for each in values],
        [max(each) for each in values],
    )


def mean_seconds(runs: Sequence[Run], updates: Sequence[int]) -> list[float]:
    """Return the mean wall-clock time at each update."""
    return [statistics.fmean(run.seconds.get(at, math.nan) for run in runs) for at in updates]


def levels(runs: Sequence[Run]) -> tuple[list[int], list[list[float]]]:
    """Return the updates, and for each block the mean of its level over the runs; both are empty if nothing was annealed."""
    columns = [
        {row["update"]: [number(level) for level in row["levels"]] for row in run.rows if row.get("levels")}
        for run in runs
    ]
    blocks = {len(each) for column in columns for each in column.values()}
    if len(blocks) != 1:  # no runs, or runs that do not belong together
        return [], []
    updates = sorted(set.intersection(*(set(column) for column in columns)))
    means = [
        [statistics.fmean(column[at][block] for column in columns) for at in updates] for block in range(blocks.pop())
    ]
    return (updates, means) if updates else ([], [])


def thin(count: int, most: int = POINTS) -> list[int]:
    """Return which of a number of points are drawn: evenly spaced, including the first and the last.

    >>> thin(5), thin(7, most=3)
    ([0, 1, 2, 3, 4], [0, 3, 6])
    """
    if count <= most:
        return list(range(count))
    return [round(place * (count - 1) / (most - 1)) for place in range(most)]


def _drawable(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _common(columns: Sequence[dict[int, float]]) -> list[int]:
    if not columns:
        return []
    finite = [{at for at, value in column.items() if math.isfinite(value)} for column in columns]
    return sorted(set.intersection(*finite))
