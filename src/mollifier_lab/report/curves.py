"""Curves: what is drawn of a variant, in the pictures and on the page alike."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from mollifier_lab.report.reading import Run, Variant, number

POINTS = 1000  # of a line on the page: more than a screen has


@dataclass(frozen=True)
class Band:
    """A mean over seeds with the lowest and the highest of them, at the updates that all of them have."""

    updates: list[int]
    seconds: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]


def series(found: Sequence[Variant]) -> tuple[str, ...]:
    """The columns that are drawn of a task: the training loss, the task's curve and, if it is another and was measured, the validation loss."""
    names = ("train_loss", found[0].settings.curve)
    measured = any("valid_loss" in row for variant in found for run in variant.runs for row in run.rows[-1:])
    return (*names, "valid_loss") if measured and "valid_loss" not in names else names


def epochs_per_update(variant: Variant) -> float:
    """What part of an epoch an update is; NaN if no run says it."""
    rows = [row for run in variant.runs for row in run.rows[-1:] if row["update"]]
    return number(rows[0].get("epoch")) / rows[0]["update"] if rows else math.nan


def band(runs: Sequence[Run], metric: str) -> Band:
    """The mean, the lowest and the highest of the runs, where each of them has a finite value.

    The seconds are the mean of the wall-clock at an update; NaN where a run does not say it.
    """
    columns = [run.points(metric) for run in runs]
    updates = _common(columns)
    values = [[column[at] for column in columns] for at in updates]
    return Band(
        updates,
        mean_seconds(runs, updates),
        [statistics.fmean(each) for each in values],
        [min(each) for each in values],
        [max(each) for each in values],
    )


def mean_seconds(runs: Sequence[Run], updates: Sequence[int]) -> list[float]:
    """The mean of the wall-clock at each update."""
    return [statistics.fmean(run.seconds.get(at, math.nan) for run in runs) for at in updates]


def levels(runs: Sequence[Run]) -> tuple[list[int], list[list[float]]]:
    """The updates, and for each block its level there, as a mean over the runs; both empty if nothing was annealed."""
    columns = [
        {row["update"]: [number(level) for level in row["levels"]] for row in run.rows if row.get("levels")}
        for run in runs
    ]
    blocks = {len(each) for column in columns for each in column.values()}
    if len(blocks) != 1:  # none, or runs that do not belong together
        return [], []
    updates = sorted(set.intersection(*(set(column) for column in columns)))
    means = [
        [statistics.fmean(column[at][block] for column in columns) for at in updates] for block in range(blocks.pop())
    ]
    return (updates, means) if updates else ([], [])


def thin(count: int, most: int = POINTS) -> list[int]:
    """Which of so many points are drawn: evenly spaced, the first and the last among them.

    >>> thin(5), thin(7, most=3)
    ([0, 1, 2, 3, 4], [0, 3, 6])
    """
    if count <= most:
        return list(range(count))
    return [round(place * (count - 1) / (most - 1)) for place in range(most)]


def _common(columns: Sequence[dict[int, float]]) -> list[int]:
    if not columns:
        return []
    finite = [{at for at, value in column.items() if math.isfinite(value)} for column in columns]
    return sorted(set.intersection(*finite))
