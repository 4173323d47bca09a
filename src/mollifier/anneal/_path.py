"""The path of the levels: a schedule with its settings, and the bounds that keep levels from rising again."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from mollifier.anneal._adaptive import Follower
from mollifier.anneal._average import LossAverage
from mollifier.anneal._numbers import Numbers
from mollifier.nn._annealed import check_level
from mollifier.schedules import BUILT_IN, Number, exponential, front_at, front_place, solve_k, timed_exponential

ROOM = 1.25  # -log(1 - p) may rise to this many times its lowest value


def highest(lowest: float) -> float:
    """Return the highest level that the guard allows after this lowest one.

    In the paper's schedule -log(1 - p) is proportional to v, so that ordinary noise of v, up to a quarter, changes nothing.

    >>> [round(highest(level), 3) for level in (0.0, 0.1, 0.5, 1.0)]
    [0.0, 0.123, 0.58, 1.0]
    """
    return 1.0 if lowest >= 1.0 else -math.expm1(ROOM * math.log1p(-lowest))


@lru_cache  # the same at every step of an Annealer
def end_exponent(layers: int, stop_at: float) -> float:
    """Return k v / t where the levels of the exponential schedule sum to ``stop_at``.

    >>> round(end_exponent(1, 0.05), 4)
    0.0513
    """
    return solve_k(1.0, layers, 1.0, stop_at)


class Path:
    """The level of each block as a function of the clock and the average loss; `Annealer` documents the arguments.

    ``start`` are the initial levels: no level rises above its own.
    """

    def __init__(
        self,
        schedule: str | Callable[[float, int, int, float], float],
        k: float | None,
        horizon: float | None,
        p_min: float,
        stop_at: float | None,
        every: int,
        guard: bool,
        width: float,
        start: Tensor,
    ) -> None:
        exponential = schedule == "exponential"
        self.schedule, self.horizon, self.p_min, self.every, self.guard = schedule, horizon, p_min, every, guard
        self.width = width
        self._front = Follower(len(start), width, start) if schedule == "adaptive" else None
        self.k = 100.0 if k is None and horizon is None and exponential else k
        self.stop_at = stop_at
        # the others end only at a horizon, and the adaptive front ends where it has passed the last layer
        if stop_at is None and (horizon is None or exponential) and self._front is None:
            self.stop_at = 0.05 * len(start)
        self._layers = len(start)
        self._layer = torch.arange(1, len(start) + 1, device=start.device, dtype=start.dtype)
        self._start, self._lowest = Numbers(start.clone()), Numbers(start.clone())

    @property
    def _timed(self) -> bool:
        return self.schedule == "exponential" and self.horizon is not None

    def _least(self) -> float:
        """The sum of the levels at which annealing ends, with a margin for rounding."""
        if self._timed or self.stop_at == 0 or (self.stop_at is None and self._front is None):
            return -1.0
        return max(self.stop_at or 1e-9, self.p_min * self._layers) * (1.0 + 1e-9)

    def _end_exponent(self) -> float:
        assert self.stop_at is not None
        return end_exponent(self._layers, self.stop_at)

    def _solve(self, average: LossAverage) -> bool:
        """Find k for the horizon at the first loss (1 if none is given); return False while every loss was ignored."""
        assert self.horizon is not None
        if average.skipped and float(average.numbers[1]) == 0:
            return False
        self.k = self._end_exponent() * self.horizon / self.every / average.value
        return True

    def _at(self, t: float, v: Number) -> Callable[[Any], Any]:
        """Return the level as a function of the layer, which may be a number or a tensor of several."""
        schedule, layers, p_min, k = self.schedule, self._layers, self.p_min, self.k
        if not isinstance(schedule, str):
            return lambda layer: max(p_min, check_level(schedule(t, layer, layers, v)))  # type: ignore[arg-type]
        if self.horizon is None:
            return lambda layer: exponential(t, layer, layers, v, k=k, p_min=p_min)  # type: ignore[arg-type]
        horizon = self.horizon / self.every
        if self._timed:
            end = self._end_exponent()
            first = 1.0 if k is None else end * horizon / k
            return partial(timed_exponential, t, layers=layers, v=v, p_min=p_min, horizon=horizon, end=end, first=first)
        if schedule == "front":
            return self._front_at(front_place(t, layers, horizon, self.width))
        return partial(BUILT_IN[schedule], t, layers=layers, p_min=p_min, horizon=horizon)

    def _front_at(self, place: Number) -> Callable[[Any], Any]:
        """Return the level as a function of the layer for a front that is at this place."""
        width, p_min = self.width, self.p_min
        return lambda layer: front_at(place, layer, width, p_min)

    def _left(self, t: float) -> float | None:
        """Return the number of ticks from the one before t to the horizon."""
        return None if self.horizon is None else self.horizon / self.every - t + 1.0

    def _on_numbers(self, t: float, v: float) -> list[float]:
        """Compute the levels, and the lowest so far, on the host."""
        if self._front is not None:
            self._front.move_on_host(v, self._left(t))
            at = self._front_at(self._front.place)
        else:
            at = self._at(t, v)
        levels = [at(layer) for layer in range(1, self._layers + 1)]
        lowest = list(map(min, levels, self._lowest.list))
        if self.guard and self._front is None and lowest != levels:  # an adaptive front may go back
            levels = [min(level, highest(low)) for level, low in zip(levels, lowest, strict=True)]
        self._lowest.write(lowest)
        tops = self._start.list
        return levels if min(tops) >= 1.0 else list(map(min, levels, tops))

    def _on_tensors(self, t: float, average: LossAverage) -> Tensor:
        """Return the levels, computed on the device; a user-defined schedule is called on the host."""
        if not isinstance(self.schedule, str):
            return torch.tensor(self._on_numbers(t, average.value), dtype=self._layer.dtype, device=self._layer.device)
        if self._front is not None:
            self._front.move_on_device(average.on_device(), self._left(t))
            moved: Tensor = self._front_at(self._front.numbers.tensor[0])(self._layer)
            return torch.minimum(moved, self._start.tensor)
        levels = torch.minimum(self._at(t, average.on_device())(self._layer), self._start.tensor)
        return torch.minimum(levels, -torch.expm1(ROOM * torch.log1p(-self._lowest.tensor))) if self.guard else levels
