"""Probe a function along straight lines: whether it bends the wrong way, and whether it has a kink."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

POINTS = 513
MAGNIFIED = 48  # the number of places that are magnified, where a curve bends most
ZOOM, ROUNDS = 8.0, 5


@dataclass(frozen=True)
class Lines:
    """Straight lines ``middle + t · way``, t in [-1, 1]."""

    middle: Tensor
    way: Tensor

    @property
    def rows(self) -> int:
        """Return points on all lines."""
        return len(self.way) * POINTS

    def points(self) -> Tensor:
        """Return evenly spaced points, line after line, one per row."""
        t = torch.linspace(-1.0, 1.0, POINTS, dtype=torch.float64)
        return (self.middle[:, None] + t[:, None] * self.way[:, None]).flatten(0, 1)


def draw_lines(dim: int, span: float, generator: Generator) -> Lines:
    """Return the whole interval in one dimension, or random lines through the box in more."""
    if dim == 1:
        return Lines(torch.zeros(1, 1, dtype=torch.float64), torch.full((1, 1), span, dtype=torch.float64))
    ends = span * (2.0 * torch.rand(2, 8, dim, generator=generator, dtype=torch.float64) - 1.0)
    return Lines(ends.mean(0), 0.5 * (ends[1] - ends[0]))


def bend(lines: Lines, values: Tensor) -> tuple[float, float]:
    """Return how far the middle of a chord lies below the curve (never, for a convex one), and above it."""
    curve = values.view(len(lines.way), POINTS, -1)
    down = up = 0.0
    for half in (8, 32, 128):
        middle = 0.5 * (curve[:, 2 * half :] + curve[:, : -2 * half]) - curve[:, half:-half]
        down, up = max(down, float(-middle.min())), max(up, float(middle.max()))
    return down, up


def kink(function: Callable[[Tensor], Tensor], lines: Lines) -> float:
    """Return the largest jump of the slope that remains under magnification, relative to the slope.

    The slope of a smooth function changes by h f'' between neighbours at a distance h, so the change vanishes as h shrinks.
    """
    count = len(lines.way)
    step = 2.0 / (POINTS - 1)
    values = function(lines.points()).view(count, POINTS, -1)
    slopes = values.diff(dim=1) / step
    size = 1.0 + float(slopes.abs().max())
    change = slopes.diff(dim=1).abs().amax(-1)  # jump of the slope at inner point i + 1
    best = change.flatten().topk(min(MAGNIFIED, change.numel())).indices
    line, at = best // change.shape[1], -1.0 + step * (best % change.shape[1] + 1).double()
    window = torch.arange(-20, 21, dtype=torch.float64)
    for _ in range(ROUNDS):
        step /= ZOOM
        t = at[:, None] + step * window
        x = lines.middle[line][:, None] + t[..., None] * lines.way[line][:, None]
        near = function(x.flatten(0, 1)).view(len(t), len(window), -1)
        slopes = near.diff(dim=1) / step
        change = slopes.diff(dim=1).abs().amax(-1)
        sharpest = change.argmax(1)
        at = t.gather(1, sharpest[:, None] + 1)[:, 0]
    return float(change.max()) / size
