"""The page: one file that asks the network for nothing; what it shows and how, in assets/."""

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

from mollifier_lab.report import curves, facts, formats
from mollifier_lab.report.pictures import COLOURS, DASHES, MOST_LEVELS, annealed
from mollifier_lab.report.reading import Run, Variant
from mollifier_lab.report.summary import HEADINGS, TableRow

ASSETS = Path(__file__).parent / "assets"
FAILURE_LINES = 20
_WORDS = {"done": "done", "failed": "failed", "started": "unfinished", "empty": "unfinished"}


def page_html(
    root: Path,
    tasks: dict[str, list[Variant]],
    rows: Sequence[TableRow],
    notes: Sequence[str],
    pictures: dict[str, bytes],
) -> str:
    """The whole page.

    Args:
        root: The folder that it is about.
        tasks: The variants by task.
        rows: The table: a row for each of the variants.
        notes: What could not be read or was left out.
        pictures: PNGs by name, for a browser without JavaScript.
    """
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

    runs = [run for found in tasks.values() for variant in found for run in variant.runs]
    scripts = {
        "plotly": get_plotlyjs().replace("\r\n", "\n"),
        "page": (ASSETS / "page.js").read_text(encoding="utf-8"),
    }
    environment = Environment(loader=FileSystemLoader(ASSETS), autoescape=True, undefined=StrictUndefined)
    return environment.get_template("page.html").render(
        title=f"{', '.join(tasks)}: report",
        folder=root.resolve().name,
        runs=len(runs),
        headings=HEADINGS,
        sections=[
            _section(root, task, found, [row for row in rows if row.task == task]) for task, found in tasks.items()
        ],
        notes=notes,
        environment=facts.environment_rows(runs),
        recorded=facts.recorded_commands(runs),
        pictures={name: base64.b64encode(data).decode() for name, data in pictures.items()},
        style=Markup((ASSETS / "page.css").read_text(encoding="utf-8")),
        scripts={name: Markup(code) for name, code in scripts.items()},
        hashes=[_hash(code) for code in scripts.values()],
        points=curves.POINTS,
        quote=shlex.quote(root.resolve().name),
    )


def _section(root: Path, task: str, found: list[Variant], rows: list[TableRow]) -> dict[str, Any]:
    settings = found[0].settings
    changed, same = facts.setting_rows(found)
    runs = [(variant, run) for variant in found for run in variant.runs]
    levels = annealed(found)
    return {
        "task": task,
        "summary": settings.summary,
        "presets": sorted({run.config.preset for _, run in runs}),
        "unlike": facts.unlike_default(found),
        "metric": formats.title(settings.headline),
        "curve": formats.title(settings.curve),
        "target": formats.show_metric(settings.curve, settings.target),
        "paper": any(row.paper is not None or row.paper_note for row in rows),
        "baselines": list(dict.fromkeys(row.baseline for row in rows if row.baseline)),
        "chance": formats.show_metric(settings.headline, settings.chance),
        "tuned": [(variant.name, facts.tuning(variant.tuned)) for variant in found if variant.tuned],
        "counts": _counts(rows),
        "rows": [
            {"cells": list(zip(row.cells(), map(_key, row.keys()), strict=True)), "swatch": _swatch(index)}
            for index, row in enumerate(rows)
        ],
        "swatches": [{"name": variant.name, "style": _swatch(index)} for index, variant in enumerate(found)],
        "levels": [{"name": each.name, "runs": len(each.averaged)} for each in levels[:MOST_LEVELS]],
        "more_levels": max(0, len(levels) - MOST_LEVELS),
        "thinned": any(len(run.rows) > curves.POINTS for _, run in runs),
        "changed": changed,
        "same": same,
        "every": [_every(variant, run, root) for variant, run in runs],
        "failed": [
            (variant.name, run.config.seed, "\n".join(run.failure.splitlines()[-FAILURE_LINES:]) or "(failure.txt is empty)")
            for variant, run in runs
            if run.status == "failed"
        ],
        "commands": [facts.train_command(run, root) for _, run in runs],
        "data": _data(found, rows, levels[:MOST_LEVELS]),
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


def _every(variant: Variant, run: Run, root: Path) -> list[str]:
    metric = variant.settings.headline
    status = _status(run)
    updates = run.result.get("updates", run.rows[-1]["update"] if run.rows else 0)
    annealing = run.result.get("annealing") or {}
    ended = run.unfinished or (formats.show_count(annealing.get("finished_at")) if annealing else formats.NONE)
    return [
        variant.name, str(run.config.seed), status, formats.show_metric(metric, run.final),
        formats.show_metric(metric, run.best), formats.show_count(updates), ended, facts.place(run, root),
    ]  # fmt: skip


def _status(run: Run) -> str:
    return "damaged" if run.damage else "diverged" if run.diverged else _WORDS[run.status]


def _data(found: list[Variant], rows: list[TableRow], levels: list[Variant]) -> dict[str, Any]:
    """What the script draws."""
    settings = found[0].settings
    metrics = [
        {"name": name, "title": formats.title(name), "percent": formats.is_percent(name)}
        for name in curves.series(found)
    ]
    return {
        "metrics": metrics,
        "headline": {"title": formats.title(settings.headline), "percent": formats.is_percent(settings.headline)},
        "variants": [_variant(variant, row, curves.series(found)) for variant, row in zip(found, rows, strict=True)],
        "levels": [_levels(found.index(variant), variant) for variant in levels],
    }


def _variant(variant: Variant, row: TableRow, names: Sequence[str]) -> dict[str, Any]:
    final = row.final
    return {
        "name": variant.name,
        "epochs": _round(curves.epochs_per_update(variant)),
        "averaged": len(variant.averaged),
        "seeds": [{"seed": run.config.seed, "status": _status(run),
                   "lines": [_line(run, name) for name in names]} for run in variant.runs],
        "bands": [_band(curves.band(variant.averaged, name)) for name in names],
        "final": [{"seed": run.config.seed, "value": _round(run.final)} for run in variant.done],
        "mean": _round(final.mean), "low": _round(final.low), "high": _round(final.high), "n": final.n,
        "paper": None if row.paper_note else row.paper,  # another kind of number is not drawn beside ours
    }  # fmt: skip


def _line(run: Run, name: str) -> dict[str, Any]:
    points = list(run.points(name).items())
    kept = [points[index] for index in curves.thin(len(points))]
    seconds = [run.seconds.get(at, math.nan) for at, _ in kept]
    return {"updates": [at for at, _ in kept], "seconds": _rounded(seconds), "values": _rounded(y for _, y in kept)}


def _band(found: curves.Band) -> dict[str, Any]:
    kept = curves.thin(len(found.updates))
    columns = {"seconds": found.seconds, "mean": found.mean, "low": found.low, "high": found.high}
    thinned = {name: _rounded(values[index] for index in kept) for name, values in columns.items()}
    return {"updates": [found.updates[index] for index in kept], **thinned}


def _levels(index: int, variant: Variant) -> dict[str, Any]:
    updates, blocks = curves.levels(variant.averaged)
    kept = curves.thin(len(updates))
    shown = [updates[index] for index in kept]
    seconds = _rounded(curves.mean_seconds(variant.averaged, shown))
    return {
        "variant": index,
        "updates": shown,
        "seconds": seconds,
        "blocks": [_rounded(block[index] for index in kept) for block in blocks],
    }


def _rounded(values: Iterable[float]) -> list[float | None]:
    return [_round(value) for value in values]


def _round(value: float) -> float | None:
    """Six digits are more than a plot shows; null is how JSON says that there is none."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _key(value: str | float) -> str:
    """What the script sorts a cell by: empty goes last."""
    return value if isinstance(value, str) else "" if math.isnan(value) else repr(float(value))


def _swatch(index: int) -> str:
    return f"swatch c{index % len(COLOURS)} d{index // len(COLOURS) % len(DASHES)}"


def _hash(code: str) -> str:
    return base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
