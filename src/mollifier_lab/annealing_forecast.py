"""Predict whether annealing ends before the run does, at the start, when the user can still change something."""

from __future__ import annotations

from typing import Any

import mollifier
from mollifier.schedules import BUILT_IN

HALVINGS = 60
NEVER = 1e-9  # the fraction of the first loss below which no average falls


def forecast(annealer: mollifier.Annealer, updates: int, v: float | None) -> str:
    """Say that annealing cannot end within a number of updates, or under which condition it can; empty if it will, or if a loss must be
    known first.

        >>> from mollifier_lab.models import mlp
        >>> annealer = mollifier.Annealer(mollifier.mollify(mlp(4, 1, width=8, depth=2)), "linear", horizon=500)
        >>> forecast(annealer, 100, None)
        'annealing will not have ended when the run does: its horizon is 500 updates, the run has 100'

    Args:
        annealer: The annealer before its first update, or just after it.
        updates: The number of updates of the run.
        v: The initial loss that drives annealing; None if it is not known yet.
    """
    said = "annealing will not have ended when the run does"
    if annealer.stop_at == 0:
        return f"{said}: stop_at is 0, so that it never ends"
    if annealer.schedule == "adaptive":  # the losses to come decide
        return ""
    if annealer.horizon is not None:
        late = annealer.horizon > updates and (annealer.stop_at is None or annealer.schedule == "exponential")
        return f"{said}: its horizon is {annealer.horizon:g} updates, the run has {updates}" if late else ""
    if annealer.beta is None:  # v is fixed to 1
        return "" if _ends(annealer, updates, 1.0) else f"{said}: k={annealer.k:g} is too slow for {updates} updates"
    if v is None or not v > 0 or _ends(annealer, updates, v):
        return ""
    low, high = 0.0, v
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _ends(annealer, updates, middle) else (low, middle)
    if low < NEVER * v:
        ticks = f", {annealer.every} to a tick of its clock" if annealer.every > 1 else ""
        return f"{said}: k={annealer.k:g} is too slow for {updates} updates{ticks}, whatever the loss does"
    return f"annealing ends before the run does only if the loss average falls below {low:.3g} (it starts at {v:.3g}); else take a smaller k than {annealer.k:g}"


def _ends(annealer: mollifier.Annealer, updates: int, v: float) -> bool:
    """Return whether the levels have fallen far enough at the last update, if the loss stays at v."""
    layers, schedule = len(annealer.levels), annealer.schedule
    function: Any = BUILT_IN[schedule] if isinstance(schedule, str) else schedule
    t = updates // annealer.every
    levels: list[float] = [
        max(annealer.p_min, function(t, layer, layers, v, k=annealer.k)) for layer in range(1, layers + 1)
    ]
    return sum(levels) <= max(annealer.stop_at or 0.0, annealer.p_min * layers) * (1.0 + 1e-9)
