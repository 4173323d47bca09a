"""Draws the figures of the README and the docs with the library itself: `make figures`."""

from functools import partial
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

import mollifier
from mollifier import functional
from mollifier.activations import activation

OUT = Path(__file__).parent.parent / "docs" / "figures"
INK, BLUE, RED, GREY = "#222222", "#1f6f8b", "#b0413e", "#9a9a9a"
LEVELS = (1.0, 0.75, 0.5, 0.25, 0.0)

plt.rcParams.update(
    {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": GREY, "text.color": INK}
)


def spiral(samples: int = 600) -> tuple[Tensor, Tensor]:
    """Two arms around the origin, within the unit circle."""
    y = torch.arange(samples) % 2
    radius = torch.rand(samples).sqrt()
    angle = 4.5 * radius + torch.pi * y
    x = torch.stack([radius * angle.cos(), radius * angle.sin()], 1) + 0.02 * torch.randn(samples, 2)
    return x, y.float()[:, None]


def trained_network(x: Tensor, y: Tensor, updates: int = 4000) -> nn.Module:
    """A sigmoid network of four layers, trained mollified. Its levels have come to 0, but it is not restored."""
    widths = [2, 30, 30, 30, 30]
    layers = [part for i in range(4) for part in (nn.Linear(widths[i], widths[i + 1]), nn.Sigmoid())]
    model = mollifier.mollify(nn.Sequential(*layers, nn.Linear(30, 1)))
    annealer = mollifier.Annealer(model, "exponential", horizon=updates / 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(updates):
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        annealer.step(loss)
    return model.eval()


def draw_mollifier() -> None:
    """One network, five levels: from a linear function of its input to itself."""
    torch.manual_seed(0)
    x, y = spiral()
    model = trained_network(x, y)
    side = torch.linspace(-1.15, 1.15, 161)
    grid = torch.stack(torch.meshgrid(side, side, indexing="xy"), -1).view(-1, 2)
    figure, axes = plt.subplots(1, len(LEVELS), figsize=(11, 2.5), layout="constrained")
    for axis, level in zip(axes, LEVELS, strict=True):
        mollifier.set_level(model, level)
        with torch.no_grad():
            z = model(grid).view(161, 161)
        z = z / z.abs().max()  # each panel on its own scale: the shape is the point
        lines = torch.linspace(-1, 1, 15)
        axis.contourf(side, side, z, levels=lines, cmap="RdBu", alpha=0.85)
        axis.contour(side, side, z, levels=lines, colors="white", linewidths=0.4, linestyles="solid")
        axis.contour(side, side, z, levels=[0], colors=INK, linewidths=1.4)
        axis.set(xticks=[], yticks=[], aspect="equal")
        axis.set_title({1.0: "level 1: linear", 0.0: "level 0: the network itself"}.get(level, f"level {level:g}"))
        axis.spines[:].set_visible(False)
    for arm, colour in ((0, "#fbc4ad"), (1, "#b5dcf0")):
        axes[-1].scatter(*x[y[:, 0] == arm][::3].T, s=11, color=colour, edgecolor=INK, linewidth=0.5, zorder=3)
    save(figure, "mollifier.png")


def draw_pushes(axis: Axes, name: str, level: float, x: Tensor, label: bool) -> None:
    """The activation, its tangent, samples of ψ, and arrows from f to some of them."""
    act = activation(name)
    psi = partial(functional.noisy_activation, activation=name, level=level, a=1.0, c=20.0)
    axis.plot(x, act.u(x), color=GREY, linestyle="--", label="tangent u" if label else None)
    many = x[::4].repeat(25)
    axis.scatter(many, psi(many), s=2, color=BLUE, alpha=0.35, linewidth=0, label="samples of ψ" if label else None)
    axis.plot(x, act.f(x), color=INK, linewidth=1.8, label="activation f" if label else None)
    axis.plot(x, psi(x, noise="exact"), color=RED, label="mean of ψ" if label else None)
    for at in (-6.0, -4.5, -3.0, 3.0, 4.5, 6.0):
        point = torch.tensor([at])
        start, end = float(act.f(point)), float(psi(point, noise="exact"))
        if abs(end - start) > 0.05 * float(act.u(x[-1]) - act.u(x[0])):  # a shorter one would be all head
            axis.annotate("", (at, end), (at, start), arrowprops={"arrowstyle": "-|>", "color": RED, "linewidth": 1.2})
    axis.set_title(f"{name}, level {level:g}")


def draw_activation() -> None:
    """How the push takes an activation to its tangent, at three levels."""
    torch.manual_seed(0)
    x = torch.linspace(-7, 7, 281)
    figure, axes = plt.subplots(2, 3, figsize=(10, 5.6), layout="constrained", sharex=True, sharey="row")
    for row, name in zip(axes, ("sigmoid", "silu"), strict=True):
        for axis, level in zip(row, (0.1, 0.5, 1.0), strict=True):
            draw_pushes(axis, name, level, x, label=axis is axes[0, 0])
    axes[0, 0].legend(frameon=False, loc="upper left", markerscale=4)
    for axis in axes[1]:
        axis.set_xlabel("pre-activation x")
    save(figure, "activation.png")


def draw_levels() -> None:
    """The level of each of six layers over the updates, for every schedule."""
    t = range(1001)
    schedules = {
        "exponential, k = 100, v = 1": mollifier.exponential,
        "linear": partial(mollifier.linear, horizon=1000),
        "square root": partial(mollifier.square_root, horizon=1000),
        "cosine": partial(mollifier.cosine, horizon=1000),
        "front": partial(mollifier.front, horizon=1000),
    }
    colours = plt.get_cmap("viridis")(torch.linspace(0.0, 0.88, 6))
    figure, axes = plt.subplots(1, 5, figsize=(12, 2.9), layout="constrained", sharey=True)
    for axis, (name, schedule) in zip(axes, schedules.items(), strict=True):
        for layer, colour in enumerate(colours, start=1):
            axis.plot(t, [schedule(now, layer, 6) for now in t], color=colour, label=f"layer {layer} of 6")
        axis.set(title=name, xlabel="update t", xticks=[0, 500, 1000])
    axes[0].set_ylabel("level p")
    axes[0].legend(frameon=False, fontsize=8, labelspacing=0.2)
    save(figure, "levels.png")


def save(figure: Figure, name: str) -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    figure.savefig(OUT / name, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    torch.set_num_threads(1)  # layers this small are slower on two
    draw_activation()
    draw_levels()
    draw_mollifier()
