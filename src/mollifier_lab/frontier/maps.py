"""The heat maps and the table of the frontier, from map.csv alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mollifier_lab.errors import LabError
from mollifier_lab.files import write_atomically
from mollifier_lab.frontier.cells import Cell, frontier, read
from mollifier_lab.frontier.ways import ACTIVATIONS, DEPTHS, TRAINED, WAYS
from mollifier_lab.report.estimates import estimate
from mollifier_lab.report.pictures import png

PICTURE, TABLE = "map.png", "frontier.md"


def draw(out: Path) -> list[Path]:
    """Write the picture and the table next to map.csv, and return their paths."""
    cells = read(out)
    if not cells:
        raise LabError(f"{out}: there is no map.csv with results; make one: mollifier frontier sigmoid --out {out}")
    paths = [out / PICTURE, out / TABLE]
    write_atomically(paths[0], heat_maps(cells))
    write_atomically(paths[1], table(cells).encode())
    return paths


def table(cells: Sequence[Cell]) -> str:
    """Return the frontier in Markdown: the greatest depth below 10 % test error in every seed, with the mean error there and its 95 % interval (Student's t).

    >>> cell = Cell("residual", "tanh", 30, 0, 0.038, 0.04, 3, 1e-3, 1.0, 1000.0, 6000, 60.0)
    >>> print(next(row for row in table([cell]).splitlines() if "residual" in row))
    | residual (stays) | **30** (3.8 %, single run, the deepest that was tried) |
    """
    shown = [name for name in ACTIVATIONS if any(cell.activation == name for cell in cells)]
    lines = [f"| way | {' | '.join(shown)} |", "|---|" + "---|" * len(shown)]
    for way in WAYS:
        lines.append(f"| {way.title} | {' | '.join(_entry(way.name, name, cells) for name in shown)} |")
    return "\n".join(lines) + "\n"


def _entry(way: str, activation: str, cells: Sequence[Cell]) -> str:
    tried = [cell for cell in cells if (cell.way, cell.activation) == (way, activation)]
    if not tried:
        return "not run"
    depth = frontier(way, activation, cells)
    at = [cell.test_error for cell in tried if cell.depth == (depth or min(cell.depth for cell in tried))]
    found = estimate(100 * error for error in at)
    mean = f"{found.mean:.1f} %"
    spread = f"{found.low:.1f} to {found.high:.1f}, {found.n} seeds" if found.n > 1 else "single run"
    deepest = max(cell.depth for cell in tried)
    more = ", the deepest that was tried" if depth == deepest else ""
    return (
        f"**{depth}** ({mean}, {spread}{more})"
        if depth
        else f"none ({mean} at {min(cell.depth for cell in tried)}, {spread})"
    )


def heat_maps(cells: Sequence[Cell]) -> bytes:
    """Draw one heat map per way: depth by activation, with the mean test error as colour and number, marked by a star if it is a single run; grey where nothing was run."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15.0, 2.3 * -(-len(WAYS) // 3) + 0.6), layout="constrained")
    grid = figure.subplots(-(-len(WAYS) // 3), 3, squeeze=False)
    image: Any = None
    for axes, way in zip(grid.flat, WAYS, strict=False):
        image = _heat_map(axes, [cell for cell in cells if cell.way == way.name])
        axes.set_title(way.title, fontsize=10)
    for axes in list(grid.flat)[len(WAYS) :]:
        axes.set_visible(False)
    figure.colorbar(image, ax=grid, label="test error, %", shrink=0.6)
    figure.supxlabel("hidden layers of 100 units; *: single run", fontsize=9)
    return png(figure, dots=110)


def _heat_map(axes: Any, cells: Sequence[Cell]) -> Any:
    import numpy as np

    values, single = np.full((len(ACTIVATIONS), len(DEPTHS)), np.nan), set()
    for row, activation in enumerate(ACTIVATIONS):
        for column, depth in enumerate(DEPTHS):
            found = [cell.test_error for cell in cells if (cell.activation, cell.depth) == (activation, depth)]
            if found:
                values[row, column] = 100.0 * sum(found) / len(found)
            if len(found) == 1:
                single.add((row, column))
    axes.set_facecolor("#dddddd")
    image = axes.imshow(values, cmap="viridis_r", vmin=0.0, vmax=90.0, aspect="auto")
    for row, column in zip(*np.nonzero(~np.isnan(values)), strict=True):
        value = values[row, column]
        bold = "bold" if value < 100.0 * TRAINED else "normal"
        axes.text(
            column,
            row,
            f"{value:.1f}{'*' if (row, column) in single else ''}",
            ha="center",
            va="center",
            fontsize=7,
            color="white" if value > 45 else "black",
            fontweight=bold,
        )
    axes.set_xticks(range(len(DEPTHS)), DEPTHS, fontsize=8)
    axes.set_yticks(range(len(ACTIVATIONS)), ACTIVATIONS, fontsize=8)
    return image
