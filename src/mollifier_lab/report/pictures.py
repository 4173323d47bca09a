"""The curves and the levels as pictures, through Figure objects: no state of pyplot, no display."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mollifier_lab.report import curves, formats
from mollifier_lab.report.reading import Variant

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

# Okabe and Ito's palette without its yellow (too light on white), in an order that keeps neighbours apart; the page has it in page.css, too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#777777")
DASHES = ("-", "--", ":", "-.")
MOST_LEVELS = 12  # variants of a task whose levels are drawn


def annealed(found: Sequence[Variant]) -> list[Variant]:
    """The variants that have levels to draw."""
    return [variant for variant in found if curves.levels(variant.averaged)[0]]


def curves_png(tasks: dict[str, list[Variant]]) -> bytes:
    """A row a task: the training loss and the task's metric, each as a mean with a band and a thin line a seed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 4.2 * len(tasks)), layout="constrained")
    grid = figure.subplots(len(tasks), 2, squeeze=False)
    for axes, (task, found) in zip(grid, tasks.items(), strict=True):
        for axis, metric in zip(axes, curves.series(found)[:2], strict=True):
            handles = [_curve(axis, variant, metric, index) for index, variant in enumerate(found)]
            _dress(axis, f"{task}: {formats.title(metric)}", formats.title(metric))
            if formats.is_percent(metric):
                axis.yaxis.set_major_formatter("{x:.0%}")
        _legend(axes[1], handles, [variant.name for variant in found])
    figure.supxlabel("thick: mean over seeds; band: from the lowest to the highest seed; thin: each seed", fontsize=8.5)
    return _png(figure)


def losses_png(tasks: dict[str, list[Variant]]) -> bytes | None:
    """A row a task whose validation loss was measured: training and validation loss over epochs; None if there is none."""
    from matplotlib.figure import Figure

    drawn = {task: found for task, found in tasks.items() if "valid_loss" in curves.series(found)}
    if not drawn:
        return None
    figure = Figure(figsize=(10.5, 4.2 * len(drawn)), layout="constrained")
    for axes, (task, found) in zip(figure.subplots(len(drawn), 2, squeeze=False), drawn.items(), strict=True):
        for axis, metric in zip(axes, ("train_loss", "valid_loss"), strict=True):
            handles = [
                _curve(axis, each, metric, index, curves.epochs_per_update(each)) for index, each in enumerate(found)
            ]
            _dress(axis, f"{task}: {formats.title(metric)}", formats.title(metric))
            axis.set_xlabel("epochs")
        _legend(axes[1], handles, [variant.name for variant in found])
    figure.supxlabel("thick: mean over seeds; band: from the lowest to the highest seed; thin: each seed", fontsize=8.5)
    return _png(figure)


def levels_png(tasks: dict[str, list[Variant]]) -> bytes:
    """A row an annealed variant: the level of each block, and the training loss beside it."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    drawn = [variant for found in tasks.values() for variant in annealed(found)[:MOST_LEVELS]]
    if not drawn:
        figure = Figure(figsize=(7, 1.5))
        figure.text(0.5, 0.5, "No run in this folder has levels: nothing was annealed.", ha="center", va="center")
        return _png(figure)
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
        _dress(left, f"{variant.task}, {variant.name}: levels", "level")
        mean = curves.band(variant.averaged, "train_loss")
        right.plot(mean.updates, mean.mean, color="#444444")
        _dress(right, f"{variant.task}, {variant.name}: training loss", "training loss")
    return _png(figure)


def _end(block: int, blocks: int) -> str:
    """Only the first and the last block are named: those between lie between."""
    return {0: "block 1 (at the input)", blocks - 1: f"block {blocks} (at the output)"}.get(block, "_")


def _curve(axis: Axes, variant: Variant, metric: str, index: int, unit: float = 1.0) -> Line2D:
    """The lines of a variant against updates, or against what `unit` of it an update is."""
    colour, dash = style(index)
    for run in variant.runs:
        points = run.points(metric)
        axis.plot(
            [at * unit for at in points], list(points.values()), color=colour, linestyle=dash, linewidth=0.6, alpha=0.45
        )
    mean = curves.band(variant.averaged, metric)
    across = [at * unit for at in mean.updates]
    axis.fill_between(across, mean.low, mean.high, color=colour, alpha=0.16, linewidth=0)
    return axis.plot(across, mean.mean, color=colour, linestyle=dash, linewidth=1.8)[0]


def style(index: int) -> tuple[str, str]:
    """Colour and dash of a variant: the next dash when the colours are used up."""
    return COLOURS[index % len(COLOURS)], DASHES[index // len(COLOURS) % len(DASHES)]


def _dress(axis: Axes, title: str, ylabel: str) -> None:
    axis.set_title(title, loc="left", fontsize=10.5, parse_math=False)
    axis.set_xlabel("updates")
    axis.set_ylabel(ylabel)
    axis.grid(alpha=0.25, linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)


def _legend(axis: Axes, handles: list[Line2D], names: list[str]) -> None:
    # outside of the axes; matplotlib leaves out names that begin with an underscore, a thin space keeps them
    shown = [f"\u2009{name}" if name.startswith("_") else name for name in names]
    legend = axis.legend(handles, shown, frameon=False, fontsize=8.5, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    for text in legend.get_texts():
        text.set_parse_math(False)


def _png(figure: Figure) -> bytes:
    data = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Glyph"
        )  # a letter that the font lacks is a box, no reason to say more
        # without the version of matplotlib in it: the same runs give the same bytes
        figure.savefig(data, format="png", dpi=130, metadata={"Software": None})
    return data.getvalue()
