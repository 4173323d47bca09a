"""v: the moving average of the loss, on the host or on the device."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from mollifier.anneal._numbers import Numbers

WRONG_LOSS = "step: the loss has shape {}; expected one number, e.g. loss.mean()"
SPIKE = 10.0  # a loss counts as at most this many times the average so far
NOT_FINITE = "Annealer: a loss was not finite and was left out of the average ({} so far; see skipped_losses)"
NEGATIVE = (
    "Annealer: a loss was below 0 and was left out of the average ({} so far; see skipped_losses). The exponential "
    "and the adaptive schedule need a loss that is not negative: pass loss - lower_bound to step, or fix v to 1 with "
    "Annealer(..., loss_average=None)."
)


class LossAverage:
    """The bias-corrected moving average of the losses; 1 before the first loss.

        >>> average = LossAverage(0.9, torch.zeros((), dtype=torch.float64))
        >>> for loss in (1.0, 0.5, 1e30):
        ...     average.observe_on_host(loss)
        >>> round(average.value, 3)
        3.184

    Losses that are not finite are ignored. So are zeros before the first loss above 0: they say nothing about the scale
    of the loss, and an average of 0 would end annealing before it has begun.

    Args:
        beta: The decay; None fixes the average to 1.
        like: A tensor with the device and dtype to use.
        negative: Whether losses below 0 are averaged as well.
        guard: Whether a loss counts as at most ten times the average so far, so that a spike of 1e30 is soon forgotten.
        distributed: Whether to average over all ranks, if torch.distributed is initialised.
    """

    def __init__(
        self,
        beta: float | None,
        like: Tensor,
        *,
        negative: bool = False,
        guard: bool = True,
        distributed: bool = True,
    ) -> None:
        self.beta, self.negative, self.guard, self.distributed = beta, negative, guard, distributed
        # average (not corrected), losses averaged, losses that were not finite, losses below 0
        self._kept = Numbers(like.new_zeros(4))
        self._warned: set[str] = set()
        self.news = False  # whether a loss was left out on the host since `warnings` was last called

    @property
    def numbers(self) -> Tensor:
        """The whole state, on its device."""
        return self._kept.tensor

    @property
    def value(self) -> float:
        """The average as a number; reading it makes the host wait for an accelerator."""
        average, count, _, _ = self._kept.list
        return self._corrected(average, count)

    @property
    def skipped(self) -> int:
        """The number of losses that were left out, over all ranks."""
        return int(sum(self._kept.list[2:]))

    def _corrected(self, average: float, count: float) -> float:
        return average / (1.0 - self.beta**count) if count and self.beta is not None else 1.0

    def on_device(self) -> Tensor:
        """The average as a tensor."""
        average, count = self.numbers[0], self.numbers[1]
        if self.beta is None:
            return torch.ones_like(average)
        correction = 1.0 - torch.pow(self.beta, count)
        return torch.where(count > 0, average / correction.clamp_min(1e-12), torch.ones_like(average))

    def observe_on_host(self, loss: Tensor | float) -> None:
        """Add a loss to the average, using Python numbers: on the CPU they are faster than tensors with one element."""
        if self.beta is None:
            return
        try:
            value = float(loss.item() if isinstance(loss, Tensor) else loss)
        except RuntimeError as error:
            if isinstance(loss, Tensor) and loss.numel() != 1:
                raise ValueError(WRONG_LOSS.format(tuple(loss.shape))) from error
            raise
        average, count, not_finite, below = self._kept.list
        if not math.isfinite(value):
            not_finite, self.news = not_finite + 1, True
        elif value < 0 and not self.negative:
            below, self.news = below + 1, True
        elif count or value:
            # the average itself has not been divided by 1 - beta**count: it is lower
            if self.guard and count and value > SPIKE * average > 0:
                value = min(value, SPIKE * self._corrected(average, count))
            average, count = self.beta * average + (1.0 - self.beta) * value, count + 1
        self._kept.write([average, count, not_finite, below])

    def observe_on_device(self, loss: Tensor | float) -> None:
        """Add a loss to the average, over all ranks, without making the host wait for the device."""
        if self.beta is None:
            return
        numbers = self.numbers
        value = torch.as_tensor(loss, dtype=numbers.dtype, device=numbers.device).detach()
        if value.numel() != 1:
            raise ValueError(WRONG_LOSS.format(tuple(value.shape)))
        value = value.reshape(())
        finite = value.isfinite()
        below = torch.zeros_like(finite) if self.negative else finite & (value < 0)
        good = finite & ~below
        sums = torch.stack(
            [torch.where(good, value, 0.0), *(flag.to(numbers.dtype) for flag in (good, ~finite, below))]
        )
        if self.distributed and torch.distributed.is_initialized():
            torch.distributed.all_reduce(sums)
        mean = sums[0] / sums[1].clamp_min(1.0)
        known = numbers[1] > 0
        if self.guard:
            v = self.on_device()
            mean = torch.where(known & (v > 0), torch.minimum(mean, SPIKE * v), mean)
        taken = (sums[1] > 0) & (known | (mean != 0))
        average = torch.where(taken, self.beta * numbers[0] + (1.0 - self.beta) * mean, numbers[0])
        self._kept.tensor = torch.cat([torch.stack([average, numbers[1] + taken]), numbers[2:] + sums[2:]])

    def warnings(self) -> Iterator[str]:
        """Return the warnings about ignored losses, once for each kind."""
        _, _, not_finite, below = self._kept.list
        self.news = False
        for count, text in ((not_finite, NOT_FINITE), (below, NEGATIVE)):
            if count and text not in self._warned:
                self._warned.add(text)
                yield text.format(int(count))

    def load(self, numbers: Tensor) -> None:
        """Resume from saved numbers, without repeating their warnings."""
        self._kept.tensor = numbers.to(self.numbers).clone()
        self._warned.clear()
        list(self.warnings())
