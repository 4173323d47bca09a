"""A study as a table in Markdown: what the search chose for each method, what came of it, and when annealing ended."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

from mollifier_lab.report.formats import NONE, show_count, show_metric, significant, title
from mollifier_lab.report.reading import VariantRuns, read, variants
from mollifier_lab.report.summary import SINGLE, TableRow, summarise
from mollifier_lab.runs import RunFolder


def study_table(folder: Path) -> str:
    """Return the table of a comparison, the best method first; columns in which nothing stands are left out.

    >>> import tempfile
    >>> study_table(Path(tempfile.mkdtemp()))
    ''
    """
    runs, _ = read(RunFolder(path.parent) for path in sorted(folder.glob("*/seed-*/config.json")))
    found, _ = variants(runs)
    pairs = [(row, variant) for row, variant in zip(summarise(found), found, strict=True) if row.done]
    if not pairs:
        return ""
    pairs.sort(key=lambda pair: pair[0].final.mean)
    first = pairs[0][0]
    trials = max((variant.tuned.trials for _, variant in pairs if variant.tuned), default=0)
    headings = [
        "method",
        "seeds",
        f"chosen in {trials} trials",
        f"{title(first.metric)}, 95 % interval",
        f"paired difference to {first.baseline}",
        f"updates to a {title(first.curve)} of {show_metric(first.curve, first.target)}",
        "annealing ends at update",
    ]
    rows = [
        [
            row.short or row.variant,
            _seeds(row),
            _chosen(variant),
            _final(row),
            row.against,
            row.to_target,
            _annealed(variant),
        ]
        for row, variant in pairs
    ]
    kept = [place for place in range(len(headings)) if any(row[place] != NONE for row in rows)]
    lines = [
        [headings[place] for place in kept],
        ["---"] * len(kept),
        *([row[place] for place in kept] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _chosen(variant: VariantRuns) -> str:
    chosen = variant.tuned.chosen if variant.tuned else {}
    return ", ".join(f"{name} {significant(value)}" for name, value in chosen.items()) or NONE


def _seeds(row: TableRow) -> str:
    return str(row.done) + (f", {row.diverged} diverged" if row.diverged else "")


def _final(row: TableRow) -> str:
    interval = (
        f" ({row.interval})" if row.final.n > 1 and row.interval != NONE else f" ({SINGLE})" if row.final.n == 1 else ""
    )
    return row.average + interval


def _annealed(variant: VariantRuns) -> str:
    """Return the median update at which annealing ended, and in how many seeds it had not."""
    ends = [run.result["annealing"] for run in variant.done if isinstance(run.result.get("annealing"), dict)]
    if not ends:
        return NONE
    finished = [float(end["finished_at"]) for end in ends if end.get("finished_at") is not None]
    median = statistics.median([*finished, *[math.inf] * (len(ends) - len(finished))])
    left = f"not ended in {len(ends) - len(finished)} of {len(ends)}" if len(finished) < len(ends) else ""
    return ", ".join(filter(None, [show_count(median) if math.isfinite(median) else "", left]))
