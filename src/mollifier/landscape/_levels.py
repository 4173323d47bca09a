"""The same landscape at a list of levels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Generator, Tensor, nn

from mollifier.convert import levels as read_levels, set_level
from mollifier.landscape._curvature import Extremes, Trace, extremes, trace
from mollifier.landscape._lab import track
from mollifier.landscape._objective import Vector, objective
from mollifier.landscape._surface import Surface, filter_direction, surface

LEVELS = (1.0, 0.75, 0.5, 0.25, 0.0)


@dataclass(frozen=True)
class Curvature:
    """The Hessian's extreme eigenvalues and trace, and the loss, at a level."""

    level: float
    loss: float
    extremes: Extremes
    trace: Trace


def surfaces(
    model: nn.Module,
    criterion: Callable[..., Tensor],
    *data: Tensor,
    levels: Sequence[float] = LEVELS,
    directions: int | Sequence[Vector] = 2,
    generator: Generator | None = None,
    chunk: int | None = None,
    **options: Any,
) -> list[Surface]:
    """Compute the loss surface of a mollified model at each level, on the same line or plane. The model's levels are restored afterwards.

        >>> import mollifier, torch
        >>> from mollifier.landscape import surfaces
        >>> model = mollifier.mollify(torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))).eval()
        >>> found = surfaces(model, torch.nn.functional.mse_loss, torch.randn(9, 2), torch.randn(9, 1), directions=1, points=5)
        >>> [one.level for one in found]
        [1.0, 0.75, 0.5, 0.25, 0.0]

    Args:
        model: A mollified model in eval(), or inside `mollifier.frozen`.
        criterion: ``(output, target) -> loss``.
        *data: The inputs and the target.
        levels: The levels, each for all blocks.
        directions: The number of random filter-normalised directions, or the directions themselves.
        generator: The generator of random directions.
        chunk: The number of examples at once.
        **options: Options of `surface`: span, points, at_once, progress.
    """
    found: list[Surface] = []
    ways: Sequence[Vector] | None = None if isinstance(directions, int) else directions
    with _kept(model):
        for level in levels:
            set_level(model, level)
            loss = objective(model, criterion, *data, chunk=chunk)
            if ways is None:
                ways = [filter_direction(loss.parameters, generator=generator) for _ in range(directions)]  # type: ignore[arg-type]
            found.append(surface(loss, ways, level=level, **options))
    return found


def curvatures(
    model: nn.Module,
    criterion: Callable[..., Tensor],
    *data: Tensor,
    levels: Sequence[float] = LEVELS,
    iterations: int = 100,
    samples: int = 32,
    generator: Generator | None = None,
    chunk: int | None = None,
    progress: bool = False,
) -> list[Curvature]:
    """Compute loss, extreme eigenvalues and trace of the Hessian at each level. The arguments are those of `surfaces`, `extremes` and `trace`."""
    found = []
    with _kept(model):
        for level in track(levels, "levels", progress):
            set_level(model, level)
            loss = objective(model, criterion, *data, chunk=chunk)
            ends = extremes(loss, iterations=iterations, generator=generator)
            found.append(Curvature(level, float(loss()), ends, trace(loss, samples=samples, generator=generator)))
    return found


@contextmanager
def _kept(model: nn.Module) -> Iterator[None]:
    """Restore the levels at the end of this context."""
    before = read_levels(model)
    try:
        yield
    finally:
        set_level(model, before)
