"""Draw the curves and the levels as pictures, with Figure objects: no pyplot state, no display."""

from __future__ import annotations

import io
import math
import textwrap
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mollifier_lab.report import curves, formats
from mollifier_lab.report.estimates import Estimate
from mollifier_lab.report.reading import VariantRuns
from mollifier_lab.shortening import shorten_middle

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.lines import Line2D

# Okabe and Ito's palette without its yellow (too light on white), in an order that keeps neighbours apart; the page has it in page.css, too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#777777")
DASHES = ("-", "--", ":", "-.")
MOST_LEVELS = 6  # variants of a task whose levels are drawn
FEW = 8  # variants up to which names are next to the axes
SEEDS = 4  # variants up to which each seed has its own line
LONGEST = 60  # letters of a name
DOTS = 130  # dots per inch
CAPTION = (
    "thick: mean over seeds (geometric on a log scale); band: from the lowest to the highest seed; thin: each seed"
)


def annealed(found: Sequence[VariantRuns]) -> list[VariantRuns]:
    """Return the variants that have levels to draw."""
    return [variant for variant in found if curves.levels(variant.averaged)[0]]


def curves_png(tasks: dict[str, list[VariantRuns]]) -> bytes:
    """Draw one row per task: the training loss and the task's metric, each as a mean with a band and a thin line per seed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, sum(map(_height, tasks.values()))), layout="constrained")
    for part, (task, found) in zip(_parts(figure, tasks), tasks.items(), strict=True):
        axes = part.subplots(1, 2)
        for axis, metric in zip(axes, curves.series(found)[:2], strict=True):
            handles = _curves(axis, found, metric)
            _dress(axis, f"{task}: {formats.title(metric)}", formats.title(metric))
            if formats.is_percent(metric):
                axis.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
        _legend(part, axes[1], handles, [variant.short for variant in found])
    figure.supxlabel(CAPTION, fontsize=8.5)
    return png(figure)


def losses_png(tasks: dict[str, list[VariantRuns]]) -> bytes | None:
    """Draw one row per task with a measured validation loss: training and validation loss over epochs. Return None if there is none."""
    from matplotlib.figure import Figure

    drawn = {task: found for task, found in tasks.items() if "valid_loss" in curves.series(found)}
    if not drawn:
        return None
    figure = Figure(figsize=(10.5, sum(map(_height, drawn.values()))), layout="constrained")
    for part, (task, found) in zip(_parts(figure, drawn), drawn.items(), strict=True):
        axes = part.subplots(1, 2)
        for axis, metric in zip(axes, ("train_loss", "valid_loss"), strict=True):
            handles = _curves(axis, found, metric, epochs=True)
            _dress(axis, f"{task}: {formats.title(metric)}", formats.title(metric))
            axis.set_xlabel("epochs")
        _legend(part, axes[1], handles, [variant.short for variant in found])
    figure.supxlabel(CAPTION, fontsize=8.5)
    return png(figure)


def levels_png(tasks: dict[str, list[VariantRuns]]) -> bytes:
    """Draw one row per annealed variant: the level of each block, and the training loss next to it."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    drawn = [variant for found in tasks.values() for variant in annealed(found)[:MOST_LEVELS]]
    if not drawn:
        figure = Figure(figsize=(7, 1.5))
        figure.text(0.5, 0.5, "No run in this folder has levels: nothing was annealed.", ha="center", va="center")
        return png(figure)
    figure = Figure(figsize=(10.5, 3.1 * len(drawn)), layout="constrained")
    grid = figure.subplots(len(drawn), 2, squeeze=False, sharex="row")
    for (left, right), variant in zip(grid, drawn, strict=True):
        updates, blocks = curves.levels(variant.averaged)
        for number, values in enumerate(blocks):
            colour = colormaps["viridis"](0.92 * (1 - number / max(1, len(blocks) - 1)))
            left.plot(updates, values, color=colour, label=_end(number, len(blocks)))
        left.set_ylim(-0.03, 1.03)
        if len(blocks) > 1:
            left.legend(frameon=False, fontsize=8, loc="upper right")
        _dress(left, f"{variant.task}, {shorten_middle(variant.short, 50)}: levels", "level")
        log = curves.log_scale([variant], "train_loss")
        mean = curves.band(variant.averaged, "train_loss", log)
        right.plot(mean.updates, mean.mean, color="#444444")
        _scale(right, log)
        _dress(right, "training loss", "training loss")
    return png(figure, dots=DOTS if len(drawn) <= FEW else DOTS * 2 // 3)


VERDICTS = {"reproduced": COLOURS[2], "undecided": COLOURS[6], "not reproduced": COLOURS[1]}
FARTHEST = 0.6  # relative differences beyond this are drawn at the edge


def differences_png(rows: Sequence[tuple[str, Estimate, str]]) -> bytes:
    """Draw a row per claim: its paired difference as a fraction of what it is compared with, the 95 % interval, and the verdict as the colour."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 1.3 + 0.36 * len(rows)), layout="constrained")
    axis = figure.subplots()
    axis.axvline(0.0, color="#444444", linewidth=1)
    for place, (_, found, verdict) in enumerate(rows):
        low, mean, high = (min(max(value, -FARTHEST), FARTHEST) for value in (found.low, found.mean, found.high))
        edge = "<" if found.mean < -FARTHEST else ">" if found.mean > FARTHEST else "o"
        axis.plot([low, high], [place, place], color=VERDICTS[verdict], linewidth=2.5, solid_capstyle="butt")
        axis.plot(mean, place, edge, color=VERDICTS[verdict], markersize=7, clip_on=False)
    axis.set_xlim(-FARTHEST, FARTHEST)
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_yticks(range(len(rows)), [text for text, _, _ in rows], fontsize=9, parse_math=False)
    axis.xaxis.set_major_formatter(lambda x, _: f"{x:+.0%}" if x else "0")
    figure.supxlabel(
        "difference in error, loss or updates, seed by seed, relative, with its 95 % interval; left of 0 the first one named is better",
        fontsize=8.5,
    )
    axis.grid(axis="x", alpha=0.25, linewidth=0.6)
    axis.spines[["top", "right", "left"]].set_visible(False)
    shown = [name for name in VERDICTS if any(verdict == name for _, _, verdict in rows)]
    handles = [axis.plot([], [], "o-", color=VERDICTS[name], linewidth=2.5)[0] for name in shown]
    figure.legend(handles, shown, frameon=False, fontsize=9, loc="outside upper right", ncols=len(shown))
    return png(figure)


def _end(block: int, blocks: int) -> str:
    """Name only the first and the last block; the others are between them."""
    return {0: "block 1 (at the input)", blocks - 1: f"block {blocks} (at the output)"}.get(block, "_")


def _height(found: Sequence[VariantRuns]) -> float:
    """Return the height in inches of a task's row: many names go below the axes."""
    return 4.2 if len(found) <= FEW else 4.2 + 0.19 * math.ceil(len(found) / _across([each.short for each in found]))


def _across(names: Sequence[str]) -> int:
    """Return the number of columns of a legend below the axes."""
    return max(1, min(6, 150 // (max(len(shorten_middle(name, LONGEST)) for name in names) + 8)))


def _parts(figure: Figure, tasks: dict[str, list[VariantRuns]]) -> list[SubFigure]:
    parts = figure.subfigures(len(tasks), 1, squeeze=False, height_ratios=list(map(_height, tasks.values())))
    return [row[0] for row in parts]


def _scale(axis: Axes, log: bool) -> None:
    """Choose the vertical scale; on a logarithmic one 0.05 is a number that people read, and 5 × 10⁻² is not. Call it after the lines are drawn."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_yscale("log" if log else "linear")
    if log:
        low, high = axis.get_ylim()
        few = high > 1000.0 * low  # over many decades, labels at 2 and 5 would cover each other
        axis.yaxis.set_major_locator(LogLocator(subs=(1.0,) if few else (1.0, 2.0, 5.0)))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_formatter(NullFormatter())


def _curves(axis: Axes, found: Sequence[VariantRuns], metric: str, epochs: bool = False) -> list[Line2D]:
    """Draw the lines of all variants, on the scale that suits their values; lines of single seeds only if there are few variants."""
    log = curves.log_scale(found, metric)
    units = [curves.epochs_per_update(each) if epochs else 1.0 for each in found]
    lines = [
        _curve(axis, each, metric, index, unit, log, len(found) <= SEEDS)
        for index, (each, unit) in enumerate(zip(found, units, strict=True))
    ]
    _scale(axis, log)
    return lines


def _curve(axis: Axes, variant: VariantRuns, metric: str, index: int, unit: float, log: bool, seeds: bool) -> Line2D:
    """Draw the lines of a variant against updates, or against another `unit` of an update."""
    colour, dash = style(index)
    for run in variant.runs if seeds or not variant.averaged else ():
        points = run.points(metric)
        axis.plot(
            [at * unit for at in points], list(points.values()), color=colour, linestyle=dash, linewidth=0.6, alpha=0.45
        )
    mean = curves.band(variant.averaged, metric, log)
    across = [at * unit for at in mean.updates]
    axis.fill_between(across, mean.low, mean.high, color=colour, alpha=0.16, linewidth=0)
    return axis.plot(across, mean.mean, color=colour, linestyle=dash, linewidth=1.8)[0]


def style(index: int) -> tuple[str, str]:
    """Return colour and dash of a variant: the next dash when the colours are used up."""
    return COLOURS[index % len(COLOURS)], DASHES[index // len(COLOURS) % len(DASHES)]


def _dress(axis: Axes, title: str, ylabel: str) -> None:
    axis.set_title(title, loc="left", fontsize=10.5, parse_math=False)
    axis.set_xlabel("updates")
    axis.set_ylabel(ylabel)
    axis.grid(alpha=0.25, linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)


def _legend(part: SubFigure, axis: Axes, handles: list[Line2D], names: list[str]) -> None:
    """Draw the legend next to the axes or, if there are many names, below them."""
    # matplotlib leaves out names that begin with an underscore, a thin space keeps them
    shown = [shorten_middle(f"\u2009{name}" if name.startswith("_") else name, LONGEST) for name in names]
    if len(names) <= FEW:
        wrapped = [textwrap.fill(name, 28) for name in shown]
        legend = axis.legend(handles, wrapped, frameon=False, fontsize=8.5, loc="upper left", bbox_to_anchor=(1.01, 1.0))  # fmt: skip
    else:
        columns = _across(shown)
        legend = part.legend(handles, shown, frameon=False, fontsize=7.5, loc="outside lower center", ncols=columns)
    for text in legend.get_texts():
        text.set_parse_math(False)


def png(figure: Figure, dots: int = DOTS) -> bytes:
    """Return a figure as a PNG file with 256 colours, a third of the size of one with all colours. The same figure gives the same bytes."""
    from PIL import Image

    raw, data = io.BytesIO(), io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Glyph"
        )  # a letter that the font lacks is drawn as a box; that needs no warning
        figure.savefig(raw, format="png", dpi=dots)
    Image.open(raw).convert("RGB").quantize(256).save(data, format="png", optimize=True)
    return data.getvalue()
