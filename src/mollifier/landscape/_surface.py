"""Loss surfaces along filter-normalised directions (Li et al., 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from mollifier.landscape._lab import lab, track
from mollifier.landscape._objective import Objective, Vector


@dataclass(frozen=True)
class Surface:
    """The loss along one direction or two.

    Attributes:
        axis: The steps along each direction; the present parameters are at 0.
        values: The loss at each step, with shape (points,) or (points along the first direction, points along the second).
        level: The level of the model, if all blocks have the same.
    """

    axis: Tensor
    values: Tensor
    level: float | None = None

    def figure(self, **options: Any) -> Any:
        """Draw a matplotlib figure: a curve, or contours. The options go to ``plot`` or ``contour``."""
        figure = lab("matplotlib.figure").Figure(figsize=(4.2, 3.6), layout="constrained")
        axes = figure.subplots()
        if self.values.dim() == 1:
            axes.plot(self.axis, self.values, **options)
            axes.set(xlabel="along the direction", ylabel="loss")
        else:
            lines = axes.contour(self.axis, self.axis, self.values.T, **{"levels": 20, **options})
            axes.clabel(lines, fontsize=7)
            axes.set(xlabel="first direction", ylabel="second direction", aspect="equal")
        if self.level is not None:
            axes.set_title(f"level {self.level:g}")
        return figure


def filter_direction(parameters: Vector, *, generator: Generator | None = None, vectors: bool = False) -> Vector:
    """Draw a random direction in which each filter has the same length as in the parameters.

        >>> import torch
        >>> from mollifier.landscape import filter_direction
        >>> weight = torch.tensor([[3.0, 4.0], [0.0, 0.1]])
        >>> filter_direction({"weight": weight})["weight"].norm(dim=1)
        tensor([5.0000, 0.1000])

    This makes surfaces of networks with weights of different sizes comparable. A filter is a row of a matrix, or the weights of one
    channel of a convolution.

    Args:
        parameters: The tensors, by name.
        generator: The generator of the direction.
        vectors: Whether to move biases and other vectors as well, each as one filter.
    """
    direction = {}
    for name, value in parameters.items():
        noise = torch.randn(value.shape, generator=generator, dtype=value.dtype, device=value.device)
        if value.dim() < 2:
            length = noise.norm().clamp_min(1e-12)
            direction[name] = noise * (value.norm() / length) if vectors else torch.zeros_like(value)
        else:
            length = noise.flatten(1).norm(dim=1).clamp_min(1e-12)
            ratio = value.flatten(1).norm(dim=1) / length
            direction[name] = noise * ratio.view(-1, *(1,) * (value.dim() - 1))
    return direction


def surface(
    objective: Objective,
    directions: Sequence[Vector],
    *,
    span: float = 1.0,
    points: int = 25,
    at_once: int | None = None,
    progress: bool = False,
    level: float | None = None,
) -> Surface:
    """Compute the loss on a line or a plane through the parameters.

        >>> import torch
        >>> from mollifier.landscape import filter_direction, objective, surface
        >>> model, x, y = torch.nn.Linear(4, 1), torch.randn(10, 4), torch.randn(10, 1)
        >>> loss = objective(model, torch.nn.functional.mse_loss, x, y)
        >>> surface(loss, [filter_direction(loss.parameters) for _ in range(2)], points=5).values.shape
        torch.Size([5, 5])

    Args:
        objective: The result of `objective`.
        directions: One or two, as dicts of tensors.
        span: The surface extends from -span to span along each direction, in lengths of the direction.
        points: The number of points along each direction.
        at_once: The number of points computed at once, which multiplies the memory. By default as many as give 4 million perturbed numbers, but at most 32.
        progress: Whether to show a progress bar (needs rich).
        level: Stored in the result.
    """
    if len(directions) not in (1, 2):
        raise ValueError(f"surface: {len(directions)} directions; expected 1 or 2")
    if points < 2 or not span > 0:
        raise ValueError(f"points={points}, span={span}: expected at least 2 points and a span above 0")
    axis = torch.linspace(-span, span, points, dtype=torch.float64)
    steps = torch.cartesian_prod(*[axis] * len(directions)).view(-1, len(directions))
    size = max(1, min(32, 2**22 // objective.size)) if at_once is None else at_once
    chunks = torch.split(steps, size)
    values = [
        objective.at(_moved(objective.parameters, directions, part)) for part in track(chunks, "surface", progress)
    ]
    return Surface(axis, torch.cat(values).view(*[points] * len(directions)).cpu(), level)


def _moved(parameters: Vector, directions: Sequence[Vector], steps: Tensor) -> Vector:
    """Return the parameters at each step, stacked."""
    moved = {}
    for name, value in parameters.items():
        weights = steps.to(device=value.device, dtype=value.dtype)
        moved[name] = value + torch.tensordot(weights, torch.stack([way[name] for way in directions]), dims=1)
    return moved
