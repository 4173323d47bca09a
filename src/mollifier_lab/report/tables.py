"""Write the numbers as CSV, in full precision. An empty cell is a value that does not exist or is not finite."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from mollifier_lab.report.facts import place
from mollifier_lab.report.reading import VariantRuns
from mollifier_lab.report.summary import TableRow

_FIRST = ("task", "variant", "method", "seed", "status", "folder", "update", "epoch", "seconds")


def table_csv(rows: Iterable[TableRow]) -> str:
    """Write one line per variant."""
    lines: list[dict[str, object]] = [
        {
            "task": row.task, "variant": row.variant, "method": row.method, "metric": row.metric,
            "done": row.done, "diverged": row.diverged, "diverged_as": row.chance, "failed": row.failed, "unfinished": row.running,
            "damaged": row.damaged, "annealing_unfinished": row.unannealed, "annealing_levels": row.levels, "failures": "; ".join(row.reasons),
            "final_mean": row.final.mean, "final_low": row.final.low, "final_high": row.final.high, "final_n": row.final.n,
            "best_mean": row.best.mean, "best_low": row.best.low, "best_high": row.best.high, "best_n": row.best.n,
            "baseline": row.baseline, "difference": row.difference and row.difference.mean,
            "difference_low": row.difference and row.difference.low, "difference_high": row.difference and row.difference.high,
            "difference_n": row.difference and row.difference.n, "tuned": row.tuned,
            "target_metric": row.curve, "target": row.target, "reached": row.reached, "updates_to_target": row.updates_to_target,
            "seconds": row.seconds, "updates_per_second": row.updates_per_second, "paper": row.paper,
            "paper_note": row.paper_note,
        }
        for row in rows
    ]  # fmt: skip
    return _write(list(lines[0]) if lines else [], lines)


def curves_csv(found: Sequence[VariantRuns], root: Path) -> str:
    """Write one line per evaluation, for every run that could be read."""
    lines: list[dict[str, object]] = []
    for variant in found:
        for run in variant.runs:
            first = {"task": variant.task, "variant": variant.name, "method": variant.method, "seed": run.config.seed}
            status = "damaged" if run.damage else run.status
            if not run.rows:  # failed while it was being built: a run without an evaluation
                lines.append({**first, "status": status, "folder": place(run, root)})
            for row in run.rows:
                flat = {name: value for name, value in row.items() if name != "levels"}
                levels = {f"level_{block}": level for block, level in enumerate(row.get("levels") or (), start=1)}
                seconds = {"seconds": run.seconds.get(row["update"])}
                lines.append({**first, "status": status, "folder": place(run, root), **seconds, **flat, **levels})
    return _write([*_FIRST, *_columns(lines)], lines)


def _columns(lines: Iterable[dict[str, object]]) -> list[str]:
    """Return the metrics, followed by the levels in the order of the blocks."""
    names = dict.fromkeys(name for line in lines for name in line if name not in _FIRST)
    levels = [name for name in names if name.startswith("level_")]
    return [*(name for name in names if name not in levels), *sorted(levels, key=lambda name: (len(name), name))]


def _write(names: list[str], lines: Iterable[dict[str, object]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    for line in lines:
        writer.writerow({name: _cell(value) for name, value in line.items()})
    return text.getvalue()


def _cell(value: object) -> object:
    return "" if value is None or (isinstance(value, float) and not math.isfinite(value)) else value
