"""Schedules: the level p as a pure function of the time t, the layer l of L and the average loss v.

    >>> from mollifier.schedules import exponential
    >>> round(exponential(100, layer=6, layers=6, v=0.7, k=100.0), 4)
    0.5034

All of them start at 1, fall with t, never leave [p_min, 1], and are smaller for lower layers (small l), so that these become plain first.
In `front` the layers become plain one after the other.
``layer`` and ``v`` may be tensors: then so is p, on their device.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Number = float | Tensor
Schedule = Callable[..., Any]
# The width of a front, in windows, up to a depth, and what each layer beyond it adds. docs/cards/annealing.md has the figures.
NARROW, SHALLOW, PER_LAYER = 6.0, 50, 0.4


def exponential(t: float, layer: Number, layers: int, v: Number = 1.0, *, k: float = 100.0, p_min: float = 0.0) -> Any:
    """Return the level of the paper's schedule (eq. 14): p = 1 - exp(-k v l / (t L)).

        >>> exponential(0, layer=1, layers=3)
        1.0

    Args:
        t: Updates so far, or any clock.
        layer: l, from 1.
        layers: L.
        v: The moving average of the loss; 1 for a schedule that ignores it.
        k: The annealing constant; a larger k anneals more slowly.
        p_min: The level is never below this.
    """
    if t <= 0:
        return _like(layer, v, 1.0)
    x = -(k * v * layer) / (t * layers)
    return _clip(-math.expm1(x) if isinstance(x, float) else -torch.expm1(x), p_min)


def timed_exponential(
    t: float,
    layer: Number,
    layers: int,
    v: Number = 1.0,
    *,
    horizon: float,
    end: float,
    first: float,
    p_min: float = 0.0,
) -> Any:
    """Return the level of the exponential schedule with a fixed end: p = 1 - exp(-x l / L), with x = end / s · bend^(1 - s) and s = t / horizon.

        >>> [round(timed_exponential(1000, 2, 2, v, horizon=1000, end=0.1, first=1.0), 3) for v in (0.01, 1.0, 100.0)]
        [0.095, 0.095, 0.095]

    At a steady loss this is the paper's schedule with k = end · horizon / first. bend is v / first, but at least 1/e and at most e:
    within these bounds x falls with t and is above ``end`` until the horizon, so the loss bends the path and not its end.

    Args:
        t: Updates so far, or any clock.
        layer: l, from 1.
        layers: L.
        v: Moving average of the loss.
        horizon: The time at which x has fallen to ``end``.
        end: x at the horizon, see `solve_k`.
        first: v at the beginning.
        p_min: The level is never below this.
    """
    if t <= 0:
        return _like(layer, v, 1.0)
    s = min(t / horizon, 1.0)
    if isinstance(v, Tensor):
        factor: Number = torch.exp((1.0 - s) * torch.log(v / first).clamp(-1.0, 1.0))
    else:
        factor = math.exp((1.0 - s) * math.log(min(max(v / first, 1.0 / math.e), math.e)))
    x = -(end * factor * layer) / (s * layers)
    return _clip(-math.expm1(x) if isinstance(x, float) else -torch.expm1(x), p_min)


def linear(t: float, layer: Number, layers: int, v: Number = 1.0, *, horizon: float, p_min: float = 0.0) -> Any:
    """Return p = max(p_min, 1 - t / N), where layer l of L has N = horizon · l / L.

    >>> linear(250, layer=2, layers=2, horizon=1000)
    0.75
    """
    return _clip(1.0 - _progress(t, layer, layers, horizon), p_min)


def square_root(
    t: float, layer: Number, layers: int, v: Number = 1.0, *, horizon: float, p_min: float = 0.0, printed: bool = False
) -> Any:
    """Return p = max(p_min, sqrt(1 - t / N)), as the published version plots it; ``printed=True``: 1 - sqrt(t / N).

    >>> square_root(750, layer=2, layers=2, horizon=1000)
    0.5
    """
    done = _progress(t, layer, layers, horizon)
    return _clip(1.0 - done**0.5 if printed else (1.0 - done) ** 0.5, p_min)


def cosine(t: float, layer: Number, layers: int, v: Number = 1.0, *, horizon: float, p_min: float = 0.0) -> Any:
    """Return p = max(p_min, (1 + cos(π t / N)) / 2).

    >>> cosine(500, layer=2, layers=2, horizon=1000)
    0.5
    """
    angle = math.pi * _progress(t, layer, layers, horizon)
    return _clip(0.5 * (1.0 + (torch.cos(angle) if isinstance(angle, Tensor) else math.cos(angle))), p_min)


def front(
    t: float,
    layer: Number,
    layers: int,
    v: Number = 1.0,
    *,
    horizon: float,
    width: float | None = None,
    p_min: float = 0.0,
) -> Any:
    """Return the level of a front that moves up from the input (ours, not the paper's): layer l falls from 1 to 0 over ``width`` windows, beginning with window l - 1.

        >>> [round(front(400, layer, 4, horizon=1000), 3) for layer in (1, 2, 3, 4)]  # a window is 1000 / (4 + 6) updates long
        [0.333, 0.5, 0.667, 0.833]

    Each layer therefore learns while the layers above it still copy, and gradients reach it directly.

    Args:
        t: Updates so far, or any clock.
        layer: l, from 1.
        layers: L.
        v: Not used.
        horizon: The time at which all layers are plain; the last layer is plain one window earlier.
        width: The number of windows that a layer takes; a window is horizon / (L + width) long. By default `front_width`.
        p_min: The level is never below this.
    """
    width = front_width(layers) if width is None else width
    return front_at(front_place(t, layers, horizon, width), layer, width, p_min)


def front_width(layers: int) -> float:
    """Return the width of a front over L layers, in windows: 6, and 0.4 more for each layer beyond 50. In a deeper network more layers are between 1 and 0 at a time.

    >>> front_width(50), front_width(200)
    (6.0, 66.0)
    """
    return NARROW + PER_LAYER * max(0, layers - SHALLOW)


def front_place(t: float, layers: int, horizon: float, width: float) -> float:
    """Return how many windows a front has moved up by the time t.

    >>> front_place(400, layers=4, horizon=1000, width=6.0)
    4.0
    """
    if not (horizon > 0 and width > 0):
        raise ValueError(f"horizon={horizon}, width={width}: expected a number of updates and of windows above 0")
    return t * (layers + width) / horizon


def front_at(place: Number, layer: Number, width: float, p_min: float = 0.0) -> Any:
    """Return the level of a layer when the front is at ``place``, counted in windows.

    >>> front_at(5.0, 3, width=6.0)  # layer 3 began at 2
    0.5
    """
    return _clip(1.0 - (place - (layer - 1)) / width, p_min)


BUILT_IN: dict[str, Schedule] = {
    "exponential": exponential,
    "linear": linear,
    "square_root": square_root,
    "cosine": cosine,
    "front": front,
}


def solve_k(updates: float, layers: int, v: float, stop_at: float) -> float:
    """Return the k with which the levels of the exponential schedule sum to ``stop_at`` after a number of updates at the loss v.

        >>> k = solve_k(1000, layers=6, v=0.7, stop_at=0.3)
        >>> round(sum(exponential(1000, l, 6, 0.7, k=k) for l in range(1, 7)), 6)
        0.3

    Raises:
        ValueError: If there is no such k.
    """
    if not (0.0 < stop_at < layers and v > 0.0 and updates > 0):
        raise ValueError(
            f"horizon={updates}, loss {v}, stop_at={stop_at}: expected a horizon and a loss above 0, and "
            f"0 < stop_at < {layers}, the number of blocks"
        )
    low, high = 0.0, 1.0

    def total(x: float) -> float:
        return sum(-math.expm1(-x * layer / layers) for layer in range(1, layers + 1))

    while total(high) < stop_at:
        high *= 2.0
    for _ in range(200):  # bisection to the last bit
        middle = 0.5 * (low + high)
        low, high = (middle, high) if total(middle) < stop_at else (low, middle)
    return low * updates / v


def check_settings(
    schedule: Any,
    name: str | None,
    k: float | None,
    horizon: float | None,
    loss_average: float | None,
    stop_at: float | None,
    then: str,
    every: int,
    layers: int,
    width: float,
) -> None:
    """Refuse settings of an Annealer that make no sense."""
    if name is None and not callable(schedule):
        raise ValueError(f"schedule={schedule!r}: expected one of {', '.join(BUILT_IN)}, adaptive, or a function")
    if k is not None and (horizon is not None or name != "exponential"):
        raise ValueError("k belongs to the exponential schedule and replaces a horizon: give one of them")
    if horizon is None and name not in ("exponential", "adaptive", None):
        raise ValueError(f"schedule={name!r} needs horizon=…, the number of updates to anneal over")
    for what, value in (("k", k), ("horizon", horizon), ("every", every), ("width", width)):
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{what}={value}: expected a number above 0")
    if loss_average is not None and not 0.0 <= loss_average < 1.0:
        raise ValueError(f"loss_average={loss_average}: expected a decay in [0, 1), or None to fix v to 1")
    if then not in ("plain", "hold", "restore"):
        raise ValueError(f"then={then!r}: expected 'plain', 'hold' or 'restore'")
    if stop_at is not None and not 0.0 <= stop_at < layers:
        raise ValueError(f"stop_at={stop_at}: expected 0 <= stop_at < {layers}, the number of blocks")
    if stop_at == 0 and horizon is not None and name == "exponential":
        raise ValueError(
            "horizon with stop_at=0: the exponential schedule never reaches 0; give k, or a stop_at above 0"
        )


def _progress(t: float, layer: Number, layers: int, horizon: float) -> Any:
    if not horizon > 0:
        raise ValueError(f"horizon={horizon}: expected a number of updates above 0")
    done = t * layers / (horizon * layer)
    return min(max(done, 0.0), 1.0) if isinstance(done, float) else done.clamp(0.0, 1.0)


def _clip(p: Any, p_min: float) -> Any:
    # An Annealer calls this for every layer at every step, and checking for a Tensor would take longer.
    if isinstance(p, float):
        return p_min if p < p_min else 1.0 if p > 1.0 else p
    return p.clamp(p_min, 1.0)


def _like(layer: Number, v: Number, value: float) -> Any:
    like = layer * v
    return torch.full_like(like, value) if isinstance(like, Tensor) else value
