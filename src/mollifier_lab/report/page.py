"""The page: one file that loads nothing from the network. Its script and style are in assets/."""

from __future__ import annotations

import base64
import hashlib
import math
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from mollifier_lab.methods import METHODS
from mollifier_lab.report import curves, facts, formats
from mollifier_lab.report.page_data import page_data, status
from mollifier_lab.report.pictures import COLOURS, DASHES, MOST_LEVELS, SEEDS, annealed
from mollifier_lab.report.reading import Run, VariantRuns
from mollifier_lab.report.summary import HEADINGS, NOT_FULL, TableRow, columns

ASSETS = Path(__file__).parent / "assets"
SCRIPTS = ("scales.js", "plot.js", "task.js", "page.js")
FAILURE_LINES = 20
LONG_NAME = 24  # letters; a longer name gets a wider column
EVERY = 2000  # milliseconds between two checks for changes


def page_html(
    root: Path,
    tasks: dict[str, list[VariantRuns]],
    rows: Sequence[TableRow],
    notes: Sequence[str],
    pictures: dict[str, bytes],
    live: str = "",
) -> str:
    """Return the whole page.

    Args:
        root: The folder that the page is about.
        tasks: The variants by task.
        rows: The table: one row per variant.
        notes: What could not be read or was left out.
        pictures: PNG files by name, for a browser without JavaScript.
        live: The state of the files, for a page that is served and checks for changes by itself.
    """
    runs = [run for found in tasks.values() for variant in found for run in variant.runs]
    scripts = [(ASSETS / name).read_text(encoding="utf-8") for name in SCRIPTS]
    environment = Environment(loader=FileSystemLoader(ASSETS), autoescape=True, undefined=StrictUndefined)
    return environment.get_template("page.html").render(
        title=f"{', '.join(tasks)}: report",
        folder=root.resolve().name,
        runs=len(runs),
        sections=[
            _section(root, task, found, [row for row in rows if row.task == task]) for task, found in tasks.items()
        ],
        notes=notes,
        environment=facts.environment_rows(runs),
        recorded=facts.recorded_commands(runs),
        pictures={name: base64.b64encode(data).decode() for name, data in pictures.items()},
        style=Markup((ASSETS / "page.css").read_text(encoding="utf-8")),
        scripts=list(map(Markup, scripts)),
        hashes=list(map(_hash, scripts)),
        live=live,
        every=EVERY,
        points=curves.POINTS,
        quote=shlex.quote(root.resolve().name),
    )


def _section(root: Path, task: str, found: list[VariantRuns], rows: list[TableRow]) -> dict[str, Any]:
    settings, headline = found[0].settings, found[0].headline
    changed, same = facts.setting_rows(found)
    runs = [(variant, run) for variant in found for run in variant.runs]
    levels = annealed(found)
    kept = columns(rows)
    data = page_data(found, rows, levels[:MOST_LEVELS])
    swatches = [
        {"name": variant.short, "full": facts.full_name(variant, found), "style": _swatch(index)}
        for index, variant in enumerate(found)
    ]
    return {
        "task": task,
        "summary": facts.what_was_run(found),
        "method": METHODS[found[0].method].title if len({variant.method for variant in found}) == 1 else "",
        "presets": sorted({run.config.preset for _, run in runs}),
        "unlike": facts.unlike_default(found),
        "metric": formats.title(headline),
        "curve": formats.title(settings.curve),
        "target": formats.show_metric(settings.curve, settings.target),
        "outcome": facts.outcome(rows),
        "intervals": any(len(variant.runs) > 1 for variant in found),
        "several": len(found) > 1 or len(found[0].runs) > 1,
        "paper": "paper" in (HEADINGS[at] for at in kept),
        "elsewhere": any(row.paper_note == NOT_FULL for row in rows) and "paper" not in (HEADINGS[at] for at in kept),
        "baselines": [row.short for row in rows if row.baseline == row.variant],
        "chance": formats.show_metric(headline, settings.chance),
        "tuned": [(variant.short, facts.tuning(variant.tuned)) for variant in found if variant.tuned],
        "counts": _counts(rows),
        "rows": [
            {"cells": [(row.cells()[at], _key(row.keys()[at])) for at in kept[1:]], "key": row.variant, **swatch}
            for row, swatch in zip(rows, swatches, strict=True)
        ],
        "headings": [HEADINGS[at] for at in kept],
        "long": any(len(variant.short) > LONG_NAME for variant in found),
        "swatches": swatches,
        "levels": [
            {"name": each.short, "full": each.name, "runs": len(each.averaged), "blocks": len(curves.levels(each.averaged)[1])}
            for each in levels[:MOST_LEVELS]
        ],
        "more_levels": max(0, len(levels) - MOST_LEVELS),
        "compared": any(data["differences"]),
        "diverged": any(run.diverged for _, run in runs),
        "seeds": len(found) <= SEEDS,
        "thinned": any(len(run.rows) > curves.POINTS for _, run in runs),
        "changed": changed,
        "same": same,
        "every": [_every(variant, run, root) for variant, run in runs],
        "failed": [
            (variant.short, run.config.seed, "\n".join(run.failure.splitlines()[-FAILURE_LINES:]) or "(failure.txt is empty)")
            for variant, run in runs
            if run.status == "failed"
        ],
        "commands": [facts.train_command(run, root) for _, run in runs],
        "data": data,
    }  # fmt: skip


def _counts(rows: Iterable[TableRow]) -> str:
    done, diverged, failed, running, damaged = (
        sum(each)
        for each in zip(*((row.done, row.diverged, row.failed, row.running, row.damaged) for row in rows), strict=True)
    )
    parts = [("1 run" if done == 1 else f"{done} runs") + " done" + (f" ({diverged} diverged)" if diverged else "")]
    return ", ".join(
        [
            *parts,
            *(f"{n} {name}" for n, name in ((failed, "failed"), (running, "unfinished"), (damaged, "damaged")) if n),
        ]
    )


def _every(variant: VariantRuns, run: Run, root: Path) -> list[str]:
    metric = run.headline
    updates = run.result.get("updates", run.rows[-1]["update"] if run.rows else 0)
    annealing = run.result.get("annealing") or {}
    ended = run.unfinished or (formats.show_count(annealing.get("finished_at")) if annealing else formats.NONE)
    return [
        variant.short, str(run.config.seed), status(run), formats.show_metric(metric, run.final),
        formats.show_metric(metric, run.best), formats.show_count(updates), ended, facts.place(run, root),
    ]  # fmt: skip


def _key(value: str | float) -> str:
    """Return what the script sorts a cell by; an empty text sorts last."""
    return value if isinstance(value, str) else "" if math.isnan(value) else repr(float(value))


def _swatch(index: int) -> str:
    return f"swatch c{index % len(COLOURS)} d{index // len(COLOURS) % len(DASHES)}"


def _hash(code: str) -> str:
    return base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
