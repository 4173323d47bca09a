"""The variance of the noise over the level p, computed by the library's own functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mollifier.figures._style import BLUE, GREY, INK, RED, bare, new_figure
from mollifier.functional import copy_mix, noisy_activation
from mollifier.landscape._lab import lab


def noise_variance(
    name: str = "tanh", cs: Sequence[float] = (20.0, 100.0), samples: int = 20_000, points: int = 41
) -> Any:
    """Draw the variance of ψ over p for more and less saturated units, and that of a layer's units with and without the copy.

    Left: ψ(x, ξ) of one unit, over its noise ξ, with a = 1. Right: the mean variance that the noise causes, over units with x and the unit below
    both drawn from N(0, 4). With the copy, π adds to the variance; at p = 1 every unit is its input, so the variance is 0.
    """
    levels = torch.linspace(0.0, 1.0, points, dtype=torch.float64)
    figure = new_figure(9.4, 3.5)
    left, right = figure.subplots(1, 2)
    saturated = (1.0, 2.0, 3.0, 4.0)
    colours = lab("matplotlib").colormaps["viridis"](torch.linspace(0.85, 0.0, len(saturated)).tolist())
    for x, colour in zip(saturated, colours, strict=True):
        unit = torch.full((samples,), x, dtype=torch.float64)
        left.plot(levels, unit_variance(unit, name, levels, c=cs[0]), color=colour, label=f"x = {x:g}")
    left.set_title(f"ψ of one unit, {name}, c = {cs[0]:g}", fontsize=11)
    left.set_ylabel("variance over ξ")
    for c, colour in zip(cs, (BLUE, INK), strict=False):
        right.plot(levels, layer_variance(name, levels, c=c, copy=False), color=colour, linestyle="--", label=f"noisy activation alone, c = {c:g}")  # fmt: skip
    right.plot(
        levels, layer_variance(name, levels, c=cs[0], copy=True), color=RED, label=f"with the copy, c = {cs[0]:g}"
    )
    right.set_title("mean over a layer's units", fontsize=11)
    right.axvline(1.0, color=GREY, linewidth=0.8)
    for axes in (left, right):
        axes.set(xlabel="level p", xlim=(0, 1.01))
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False, fontsize=8.5)
        bare(axes)
    return figure


def unit_variance(x: Tensor, name: str, levels: Tensor, *, c: float) -> list[float]:
    """Return the variance of ψ at each level, over as many draws of ξ as x has entries; the draws are the same for every level."""
    draws = torch.randn(x.shape, generator=torch.Generator().manual_seed(0), dtype=x.dtype)
    return [float(noisy_activation(x, name, level=level, a=1.0, c=c, noise=draws).var()) for level in levels]


def layer_variance(
    name: str, levels: Tensor, *, c: float, copy: bool, units: int = 200, samples: int = 400
) -> list[float]:
    """Return the mean over units of the variance of their output at each level, over draws of ξ and π."""
    generator = torch.Generator().manual_seed(0)
    x, below = (
        2.0 * torch.randn(units, generator=generator, dtype=torch.float64).expand(samples, units) for _ in range(2)
    )
    xi = torch.randn(samples, units, generator=generator, dtype=torch.float64)
    uniform = torch.rand(samples, units, generator=generator, dtype=torch.float64)
    found = []
    for level in levels:
        out = noisy_activation(x, name, level=level, a=1.0, c=c, noise=xi)
        out = copy_mix(below, out, level=level, noise=uniform) if copy else out
        found.append(float(out.var(0).mean()))
    return found
