"""The paper's figures and ours, each drawn by a function that returns a matplotlib Figure (needs ``pip install 'mollifier[lab]'``).

>>> from mollifier import figures
>>> figures.continuation().axes[0].get_ylabel()
'loss'
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mollifier.activations import activation
from mollifier.convert import mollify
from mollifier.figures._layer import mollified_layer as mollified_layer
from mollifier.figures._style import BLUE, GREY, INK, RED, bare, new_figure
from mollifier.figures._variance import noise_variance as noise_variance
from mollifier.functional import noisy_activation
from mollifier.landscape import Surface, surfaces
from mollifier.landscape._lab import lab
from mollifier.schedules import cosine, exponential, front, linear, square_root
from mollifier.smoothing import draw_noise, mollified_loss


def continuation(sigmas: Sequence[float] = (2.0, 1.0, 0.6, 0.0), samples: int = 6000) -> Any:
    """Draw the continuation (figure 1): following the minimum of a smoothed loss leads to the minimum of the loss."""
    x = torch.linspace(-6.0, 8.0, 141, dtype=torch.float64)

    def loss(p: dict[str, Tensor]) -> Tensor:
        t = p["x"]
        return 0.05 * (t - 3.0).square() - 0.6 * torch.cos(3.0 * t) - 0.7 * torch.exp(-((t - 4.2) ** 2))

    noise = draw_noise(samples, generator=torch.Generator().manual_seed(0))
    colours = lab("matplotlib").colormaps["viridis"](torch.linspace(0.85, 0.0, len(sigmas)).tolist())
    figure = new_figure(6.4, 4.2)
    axes = figure.subplots()
    shift, at, before = 1.5, 0, None
    for number, (sigma, colour) in enumerate(zip(sigmas, colours, strict=True)):
        if sigma > 0:
            curve = torch.stack([mollified_loss(loss, {"x": t}, sigma, noise=noise) for t in x])
        else:
            curve = loss({"x": x})
        curve = curve + shift * (len(sigmas) - 1 - number)
        at = int(curve.argmin()) if number == 0 else _downhill(curve, at)
        label = f"σ = {sigma:g}" if sigma > 0 else "σ = 0: the loss"
        axes.plot(x, curve, color=colour, linewidth=2)
        axes.text(8.15, float(curve[-1]), label, color=colour, va="center", fontsize=10)
        if before is not None:
            arrow = {"arrowstyle": "-|>", "color": RED, "linewidth": 1.4, "shrinkA": 5, "shrinkB": 5}
            axes.annotate("", (float(x[at]), float(curve[at])), before, arrowprops=arrow)
        before = (float(x[at]), float(curve[at]))
        axes.plot(*before, "o", color=RED, markersize=6)
    axes.set(xlabel="parameter", ylabel="loss", xticks=[], yticks=[], xlim=(-6.2, 10.6))
    bare(axes)
    return figure


def _downhill(curve: Tensor, at: int) -> int:
    """Return where gradient descent from ``at`` ends."""
    while True:
        near = [i for i in (at - 1, at, at + 1) if 0 <= i < len(curve)]
        lowest = min(near, key=lambda i: float(curve[i]))
        if lowest == at:
            return at
        at = lowest


def linearisation(c: float = 20.0) -> Any:
    """Draw the linearisation: |sigmoid*| under |0.25 x|, and how noise moves the sigmoid toward its tangent."""
    act = activation("sigmoid")
    x = torch.linspace(-8.0, 8.0, 401, dtype=torch.float64)
    f, u = act.f(x), act.u(x)
    figure = new_figure(9.4, 3.7)
    left, right = figure.subplots(1, 2)
    left.fill_between(x, (f - 0.5).abs(), (u - 0.5).abs(), color=BLUE, alpha=0.12, linewidth=0)
    left.plot(x, (u - 0.5).abs(), "--", color=GREY, linewidth=1.6, label="|u*(x)| = |0.25 x|")
    left.plot(x, (f - 0.5).abs(), color=INK, linewidth=2, label="|f*(x)| = |sigmoid(x) − ½|")
    _arrows(left, [-6.5, -5.0, -3.5, 3.5, 5.0, 6.5], lambda t: (act.f(t) - 0.5).abs(), lambda t: (act.u(t) - 0.5).abs())
    left.set_title("a) the envelope", fontsize=11)
    right.plot(x, u, "--", color=GREY, linewidth=1.6, label="tangent u, level 1 and c → ∞")
    for level, shade in ((0.2, 0.3), (0.5, 0.55), (1.0, 0.9)):
        mean = noisy_activation(x, act, level=level, a=1.0, c=c, noise="exact")
        right.plot(x, mean, color=BLUE, alpha=shade, linewidth=1.5, label=f"mean of ψ, level {level:g}")
    right.plot(x, f, color=INK, linewidth=2, label="sigmoid f, level 0")

    def pushed(t: Tensor) -> Tensor:
        return noisy_activation(t, act, level=1.0, a=1.0, c=c, noise="exact")

    _arrows(right, [-6.5, -5.0, 5.0, 6.5], act.f, pushed)
    right.set_title(f"b) the push (a = 1, c = {c:g})", fontsize=11)
    for axes in (left, right):
        axes.set(xlabel="x", xlim=(-8, 8))
        bare(axes)
    # where the curves leave room
    left.legend(frameon=False, fontsize=9, loc="upper center")
    right.legend(frameon=False, fontsize=8, loc="upper left")
    return figure


def _arrows(axes: Any, at: Sequence[float], start: Callable[[Tensor], Tensor], end: Callable[[Tensor], Tensor]) -> None:
    """Draw the direction of the noise."""
    style = {"arrowstyle": "-|>", "color": RED, "linewidth": 1.4, "shrinkA": 0, "shrinkB": 0}
    for t in at:
        point = torch.tensor([t], dtype=torch.float64)
        axes.annotate("", (t, float(end(point))), (t, float(start(point))), arrowprops=style)


def schedules(horizon: int = 500, ks: Sequence[float] = (10.0, 50.0, 100.0), layers: int = 6) -> Any:
    """Draw the annealing schedules: the paper's for several k, the others, and how lower layers become plain first."""
    t = torch.arange(horizon + 1).tolist()
    figure = new_figure(10.2, 3.2)
    panels = figure.subplots(1, 3, sharey=True)
    pick = lab("matplotlib").colormaps["viridis"]
    for k, colour in zip(ks, pick(torch.linspace(0.0, 0.8, len(ks)).tolist()), strict=True):
        panels[0].plot(t, [exponential(now, layers, layers, k=k) for now in t], color=colour, label=f"k = {k:g}")
    panels[0].set_title("exponential, v = 1, top layer", fontsize=11)
    others = {"linear": linear, "square root": square_root, "cosine": cosine, "front": front}
    for (name, schedule), colour in zip(others.items(), (INK, BLUE, RED, GREY), strict=True):
        curve = [schedule(now, layers, layers, horizon=horizon) for now in t]
        panels[1].plot(t, curve, color=colour, label=name)
    panels[1].set_title(f"over a horizon of {horizon}", fontsize=11)
    for layer, colour in zip(range(1, layers + 1), pick(torch.linspace(0.9, 0.0, layers).tolist()), strict=True):
        curve = [exponential(now, layer, layers, k=ks[-1]) for now in t]
        panels[2].plot(t, curve, color=colour, label=f"layer {layer}" if layer in (1, layers) else None)
    panels[2].set_title(f"exponential, k = {ks[-1]:g}, {layers} layers", fontsize=11)
    for axes in panels:
        axes.set(xlabel="update t", xlim=(0, horizon), ylim=(0, 1.02))
        axes.legend(frameon=False, fontsize=9)
        bare(axes)
    panels[0].set_ylabel("level p")
    return figure


def loss_surface(found: Sequence[Surface] | None = None, *, points: int = 41, span: float = 1.5) -> Any:
    """Draw a loss surface from level 1 to level 0: the result of `landscape.surfaces`, or that of a small deep network on two spirals."""
    if found is None:
        found = spiral_surfaces(points=points, span=span)
    lab("mpl_toolkits.mplot3d")
    figure = new_figure(2.6 * len(found), 4.6)
    for number, one in enumerate(found):
        first, second = torch.meshgrid(one.axis, one.axis, indexing="ij")
        height = one.values.clamp(max=float(one.values.median()) * 4.0)  # walls would hide the ground
        axes = figure.add_subplot(2, len(found), number + 1, projection="3d")
        axes.plot_surface(first.numpy(), second.numpy(), height.numpy(), cmap="viridis", linewidth=0, antialiased=False)
        axes.view_init(elev=35, azim=-60)
        axes.set(xticks=[], yticks=[], zticks=[])
        names = {1.0: "level 1: convex", 0.0: "level 0: the network"}
        axes.set_title("" if one.level is None else names.get(one.level, f"level {one.level:g}"), fontsize=11)
        flat = figure.add_subplot(2, len(found), len(found) + number + 1)
        flat.contourf(one.axis, one.axis, height.T, levels=18, cmap="viridis")
        flat.contour(one.axis, one.axis, height.T, levels=18, colors="white", linewidths=0.35)
        flat.plot(0, 0, "o", color=RED, markeredgecolor="white", markersize=6)
        flat.set(xticks=[], yticks=[], aspect="equal")
    return figure


def spiral_problem(samples: int = 120, width: int = 12, depth: int = 5) -> tuple[nn.Module, Tensor, Tensor]:
    """Return a deep mollified tanh network in eval(), with its initial weights (gain 2), and two spirals."""
    generator = torch.Generator().manual_seed(0)
    y = (torch.arange(samples) % 2).double()
    radius = torch.rand(samples, generator=generator, dtype=torch.float64).sqrt()
    angle = 1.5 * math.pi * radius + math.pi * y
    x = 2.0 * torch.stack([radius * angle.cos(), radius * angle.sin()], 1)
    layers: list[nn.Module] = []
    for below in (2, *[width] * (depth - 1)):
        layers += [nn.Linear(below, width), nn.Tanh()]
    model = nn.Sequential(*layers, nn.Linear(width, 1)).double()
    for layer in model:
        if isinstance(layer, nn.Linear):
            bound = 2.0 * math.sqrt(6.0 / sum(layer.weight.shape))
            uniform = torch.rand(layer.weight.shape, generator=generator, dtype=torch.float64)
            layer.weight.data = bound * (2.0 * uniform - 1.0)
            layer.bias.data.zero_()
    return mollify(model, a=(1.0, 1.0)).eval(), x, y[:, None]


def spiral_surfaces(points: int = 41, span: float = 1.5) -> list[Surface]:
    """Return the loss of `spiral_problem` on one plane, at five levels."""
    model, x, y = spiral_problem()
    loss = nn.functional.binary_cross_entropy_with_logits
    return surfaces(model, loss, x, y, generator=torch.Generator().manual_seed(3), points=points, span=span)


FIGURES: dict[str, Callable[[], Any]] = {
    "continuation": continuation,
    "linearisation": linearisation,
    "schedules": schedules,
    "loss-surface": loss_surface,
    "layer": mollified_layer,
    "noise-variance": noise_variance,
}


def save(folder: str | Path, names: Sequence[str] = tuple(FIGURES), dpi: int = 100) -> list[Path]:
    """Draw figures into a folder, as PNG files with 256 colours (small enough for a repository)."""
    unknown = sorted(set(names) - set(FIGURES))
    if unknown:
        raise ValueError(f"figures {unknown} are not known; expected some of: {', '.join(FIGURES)}")
    written = []
    for name in names:
        raw = io.BytesIO()
        FIGURES[name]().savefig(raw, dpi=dpi)
        path = Path(folder) / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        lab("PIL.Image").open(raw).convert("RGB").quantize(256).save(path, optimize=True)
        written.append(path)
    return written
