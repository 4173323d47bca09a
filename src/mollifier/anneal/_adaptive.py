"""The adaptive front: it advances while the loss stays low, waits while the loss rises, and goes back a little if the loss rises too far.
Ours, not the paper's.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mollifier.anneal._numbers import Numbers

# Chosen on tasks that no comparison uses; docs/cards/annealing.md has the figures. Speeds are in windows per update.
DECAY = 0.95  # decay of the average loss: with 0.99 the front is lost before the average shows it
FASTEST, SLOWEST = 1 / 50, 1 / 200  # it starts with the former
FASTER, SLOWER = 2 ** (1 / 400), 2 ** (-1 / 40)  # the speed doubles in 400 updates, and halves in 40
TOLERANCE = 0.25  # the loss follows while it is at most this fraction above the reference; at twice that it is lost
LEAK = 1e-3  # the reference rises by this fraction per update, so that no front waits for ever
FLOOR = 0.05  # the reference is at least this fraction of the first loss: near 0, the noise of a loss means nothing


class Follower:
    """The place of a front, in windows, moved by comparing the average loss v with the lowest one so far.

        >>> front = Follower(2, 6.0, torch.zeros((), dtype=torch.float64))
        >>> for v in (0.7, 0.7, 0.7):
        ...     front.move_on_host(v, None)
        >>> round(front.place, 3)
        0.06
        >>> front.move_on_host(1.0, None)  # the loss does not follow: it waits
        >>> round(front.place, 3)
        0.06
        >>> front.move_on_host(2.0, None)  # lost: it goes back
        >>> round(front.place, 3)
        0.04

    Args:
        layers: L, the number of layers; the front has passed all of them at L - 1 + width.
        width: The number of windows that a layer takes.
        like: A tensor with the device and dtype to use.
    """

    def __init__(self, layers: int, width: float, like: Tensor) -> None:
        self.end = layers - 1 + width
        # place, speed, reference (the lowest average of the loss, which slowly rises), the first average
        self.numbers = Numbers(torch.tensor([0.0, FASTEST, math.inf, math.inf], dtype=like.dtype).to(like.device))

    @property
    def place(self) -> float:
        """The place of the front; reading it makes the host wait for an accelerator."""
        return self.numbers.list[0]

    def move_on_host(self, v: float, left: float | None) -> None:
        """Move the front, using Python numbers.

        Args:
            v: The average loss.
            left: The number of ticks until it must have passed; None without a horizon.
        """
        place, speed, reference, first = self.numbers.list
        first = v if first == math.inf else first
        reference = max(min(v, reference * (1.0 + LEAK)), FLOOR * first)
        if v <= reference * (1.0 + TOLERANCE):
            speed = min(speed * FASTER, FASTEST)
            step = speed
        else:
            speed = max(speed * SLOWER, SLOWEST)
            step = -FASTEST if v > reference * (1.0 + 2.0 * TOLERANCE) else 0.0
        if left is not None:
            step = max(step, self.least(left) * (self.end - place))
        self.numbers.write([min(max(place + step, 0.0), self.end), speed, reference, first])

    def move_on_device(self, v: Tensor, left: float | None) -> None:
        """Do the same without making the host wait for the device."""
        place, speed, reference, first = self.numbers.tensor.unbind()
        first = torch.where(first.isinf(), v, first)
        reference = torch.maximum(torch.minimum(v, reference * (1.0 + LEAK)), FLOOR * first)
        follows, lost = v <= reference * (1.0 + TOLERANCE), v > reference * (1.0 + 2.0 * TOLERANCE)
        speed = torch.where(follows, (speed * FASTER).clamp(max=FASTEST), (speed * SLOWER).clamp(min=SLOWEST))
        step = torch.where(follows, speed, -FASTEST * lost.to(speed.dtype))
        if left is not None:
            step = torch.maximum(step, self.least(left) * (self.end - place))
        self.numbers.tensor = torch.stack([(place + step).clamp(0.0, self.end), speed, reference, first])

    @staticmethod
    def least(left: float) -> float:
        """Return the fraction of the remaining way that must be covered in this tick, for a horizon that is a number of ticks ahead.

        This is half of an even pace: a front that always waits has covered half of its way after three quarters of the time, and all of it at the end.
        """
        return 1.0 if left <= 1.0 else 0.5 / left
