"""What all figures share: colours, and axes without a box."""

from __future__ import annotations

from typing import Any

from mollifier.landscape._lab import lab

INK, BLUE, RED, GREY = "#222222", "#1f6f8b", "#b0413e", "#9a9a9a"


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure of this size, in inches."""
    return lab("matplotlib.figure").Figure(figsize=(width, height), layout="constrained")


def bare(axes: Any) -> None:
    """Remove the box around the axes; two thin lines stay."""
    axes.spines[["top", "right"]].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GREY)
