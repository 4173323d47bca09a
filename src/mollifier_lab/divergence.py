"""When has a run diverged?"""

from __future__ import annotations

import math

# A run has diverged when its mean training loss exceeds this many times the loss of its first update (or 1, if that was less). All losses here start
# near that of guessing. A network can recover from a batch that is a thousand times as bad; at a million times its outputs have lost all scale.
ABSURD = 1e6


def describe_divergence(loss: float, first: float, update: int) -> str | None:
    """Say why a mean training loss means that the run has diverged; None if it does not.

    >>> describe_divergence(1e29, first=6.2, update=100)
    'training loss 1e+29 at update 100, more than 1e+06 times the first (6.2)'
    >>> describe_divergence(23.7, first=6.2, update=100)
    """
    if not math.isfinite(loss):
        return f"training loss {loss:g} at update {update}"
    if math.isfinite(first) and loss > ABSURD * max(first, 1.0):
        return f"training loss {loss:.3g} at update {update}, more than {ABSURD:g} times the first ({first:.3g})"
    return None
