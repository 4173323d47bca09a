"""Annealing: from level 1 to level 0, driven by the loss."""

from __future__ import annotations

from mollifier.anneal._annealer import POLL, Annealer

__all__ = ["POLL", "Annealer"]
