"""Draw the mollified layer: the two paths of a unit, and the choice between them."""

from __future__ import annotations

from typing import Any

from mollifier.figures._style import BLUE, GREY, INK, RED, new_figure


def mollified_layer() -> Any:
    """Draw the mollified layer (the paper's figure of the layer): through the noisy activation, or past it.

    The text in the boxes follows the equations: ψ is Algorithm 1, and π is drawn for every unit and every example.
    """
    figure = new_figure(8.6, 3.5)
    axes = figure.subplots()
    axes.set(xlim=(0, 12.4), ylim=(-0.35, 4.65), aspect="equal")
    axes.set_axis_off()
    _box(axes, 0.2, 1.65, 1.5, "h$^{l-1}$", INK)
    _box(axes, 3.0, 2.9, 2.0, "W$^l$ h$^{l-1}$ + b", BLUE)
    _box(axes, 6.0, 2.9, 2.2, "noisy activation ψ", BLUE)
    _box(axes, 3.3, 0.4, 4.4, "copy: identity, padded or projected", RED)
    _box(axes, 10.7, 1.65, 1.5, "h$^l$ = φ", INK)
    axes.add_patch(_patches().Circle((9.3, 2.1), 0.42, facecolor="white", edgecolor=INK, linewidth=1.6))
    axes.text(9.3, 2.1, "π", ha="center", va="center", fontsize=13, color=INK)
    _arrow(axes, (1.7, 2.3), (3.0, 3.3), BLUE)
    _arrow(axes, (5.0, 3.35), (6.0, 3.35), BLUE)
    _arrow(axes, (8.2, 3.2), (9.0, 2.45), BLUE)
    _arrow(axes, (1.7, 1.9), (3.3, 0.95), RED)
    _arrow(axes, (7.7, 0.95), (9.0, 1.75), RED)
    _arrow(axes, (9.72, 2.1), (10.7, 2.1), INK)
    _arrow(axes, (1.7, 2.1), (8.2, 3.05), GREY, dashed=True)
    axes.text(4.6, 2.12, "residual, if the network has one", fontsize=8.5, color=GREY, rotation=8.3)
    axes.text(8.85, 3.05, "with probability 1 − p", fontsize=9, color=BLUE, ha="left")
    axes.text(8.5, 1.05, "with probability p", fontsize=9, color=RED, ha="left")
    axes.text(7.1, 4.05, "ξ ~ N(0, 1), pushed toward the tangent, scaled by p", fontsize=9, color=BLUE, ha="center")
    axes.text(6.2, -0.2, "p = 1: every unit is copied.   p = 0: the plain layer.   π is drawn for every unit and example.", fontsize=9, color=INK, ha="center")  # fmt: skip
    return figure


def _patches() -> Any:
    from mollifier.landscape._lab import lab

    return lab("matplotlib.patches")


def _box(axes: Any, x: float, y: float, width: float, text: str, colour: str) -> None:
    style = "round,pad=0.02,rounding_size=0.12"
    axes.add_patch(_patches().FancyBboxPatch((x, y), width, 0.9, boxstyle=style, facecolor="white", edgecolor=colour, linewidth=1.6))  # fmt: skip
    axes.text(x + width / 2, y + 0.45, text, ha="center", va="center", fontsize=9.5, color=colour)


def _arrow(axes: Any, start: tuple[float, float], end: tuple[float, float], colour: str, dashed: bool = False) -> None:
    look = {
        "arrowstyle": "-|>",
        "color": colour,
        "linewidth": 1.4,
        "linestyle": "--" if dashed else "-",
        "shrinkA": 0,
        "shrinkB": 1,
    }
    axes.annotate("", end, start, arrowprops=look, zorder=0)
