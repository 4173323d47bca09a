"""Callbacks for trainers, thin over the calls that a bare loop makes. Import the one for your trainer by its module."""

from __future__ import annotations

import warnings

from torch import nn

from mollifier.anneal import Annealer
from mollifier.convert import restore


def end(model: nn.Module, annealer: Annealer) -> None:
    """Give the plain network back at the end of training, if annealing has come to its end."""
    if annealer.finished and not any(annealer.levels):
        restore(model)
    else:
        warnings.warn(
            f"training ended at levels {[round(level, 3) for level in annealer.levels]}: the model stays mollified. Train on, "
            "anneal faster (a smaller k, or horizon=…), or call mollifier.restore(model, force=True).",
            RuntimeWarning,
            stacklevel=3,
        )
