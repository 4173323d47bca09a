"""What the page's script draws, as JSON: every logged metric of every run, final numbers, paired differences, levels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from mollifier_lab.report import curves, facts, formats
from mollifier_lab.report.estimates import estimate
from mollifier_lab.report.reading import Run, VariantRuns, number
from mollifier_lab.report.summary import TableRow

LEVEL_POINTS = 250  # points of a block's level: there may be a hundred blocks, and levels are smooth
WORDS = {"done": "done", "failed": "failed", "started": "unfinished", "empty": "unfinished"}


def page_data(found: list[VariantRuns], rows: list[TableRow], levels: list[VariantRuns]) -> dict[str, Any]:
    """Return everything that is drawn for one task.

    Args:
        found: The variants of the task.
        rows: The table: one row per variant.
        levels: The variants whose levels are drawn.
    """
    names, shown = curves.logged(found), curves.series(found)
    return {
        "metrics": [_metric(name, curves.log_scale(found, name)) | {"shown": name in shown} for name in names],
        "variants": [_variant(variant, found, names) for variant in found],
        "finals": [_final(name, found, rows) for name in _finals(found)],
        "differences": [_estimate(row.difference) if row.difference else None for row in rows],
        "baselines": [row.baseline == row.variant for row in rows],
        "levels": [_levels(found.index(variant), variant) for variant in levels],
    }


def status(run: Run) -> str:
    """Describe how a run ended, in one word."""
    return "damaged" if run.damage else "diverged" if run.diverged else WORDS[run.status]


def _metric(name: str, log: bool) -> dict[str, Any]:
    return {"name": name, "title": formats.title(name), "percent": formats.is_percent(name), "log": log}


def _variant(variant: VariantRuns, found: list[VariantRuns], names: Sequence[str]) -> dict[str, Any]:
    updates = curves.grid(variant)
    return {
        "name": variant.short,
        "full": facts.full_name(variant, found),
        "epochs": _round(curves.epochs_per_update(variant)),
        "updates": updates,
        "averaged": [variant.runs.index(run) for run in variant.averaged],
        "seeds": [_seed(run, updates, names) for run in variant.runs],
    }


def _seed(run: Run, updates: Sequence[int], names: Sequence[str]) -> dict[str, Any]:
    columns = [curves.points(run, name) for name in names]
    return {
        "seed": run.config.seed,
        "status": status(run),
        "seconds": _rounded(run.seconds.get(at, math.nan) for at in updates),
        "values": [_rounded(column.get(at, math.nan) for at in updates) if column else [] for column in columns],
    }


def _finals(found: Sequence[VariantRuns]) -> list[str]:
    """Return the metrics that were measured at the end, with the table's metric first."""
    names = dict.fromkeys([found[0].headline])
    for variant in found:
        for run in variant.done:
            names |= dict.fromkeys(name for name, value in run.result["final"].items() if not math.isnan(number(value)))
    return list(names)


def _final(name: str, found: list[VariantRuns], rows: list[TableRow]) -> dict[str, Any]:
    """Return the final values of a metric. Diverged runs count in the table's own metric, which has estimates; in other metrics they are
    left out.
    """
    headline = name == found[0].headline
    shown, values = [], []
    for variant, row in zip(found, rows, strict=True):
        points = [(run.config.seed, number(run.result["final"].get(name))) for run in variant.done if not run.diverged]
        kept = [(seed, value) for seed, value in points if math.isfinite(value)]
        values += [value for _, value in kept]
        shown.append(
            {
                "points": [[seed, _round(value)] for seed, value in kept],
                # numbers of another kind are not drawn next to ours
                "paper": row.paper if headline and not row.paper_note else None,
                **_estimate(row.final if headline else estimate(value for _, value in kept)),
            }
        )
    return _metric(name, curves.wants_log(values)) | {"rows": shown}


def _estimate(found: Any) -> dict[str, Any]:
    return {"mean": _round(found.mean), "low": _round(found.low), "high": _round(found.high), "n": found.n}


def _levels(index: int, variant: VariantRuns) -> dict[str, Any]:
    updates, blocks = curves.levels(variant.averaged)
    kept = curves.thin(len(updates), LEVEL_POINTS)
    shown = [updates[at] for at in kept]
    return {
        "variant": index,
        "updates": shown,
        "seconds": _rounded(curves.mean_seconds(variant.averaged, shown)),
        "blocks": [_rounded((block[at] for at in kept), 4) for block in blocks],
    }


def _rounded(values: Iterable[float], digits: int = 6) -> list[float | int | None]:
    found = [_round(value, digits) for value in values]
    while found and found[-1] is None:  # entries without a value are left out
        found.pop()
    return found


def _round(value: float, digits: int = 6) -> float | int | None:
    """Round to six digits, more than a plot shows; null means in JSON that there is no value."""
    if not math.isfinite(value):
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short
