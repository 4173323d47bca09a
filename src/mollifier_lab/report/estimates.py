"""Means over seeds with their 95 % intervals by Student's t, and differences between two variants, seed by seed.

>>> found = estimate([0.2, 0.4, 0.6])
>>> f"{found.mean:.3f}, {found.low:.3f} to {found.high:.3f}, n={found.n}"
'0.400, -0.097 to 0.897, n=3'
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

CONFIDENCE = 0.95
MANY = 1000  # seeds


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds.

    Attributes:
        mean: The mean of the finite values; NaN if there are none.
        low: The start of the 95 % interval; NaN if `n` is below 2.
        high: The end of the interval.
        n: The number of values.
    """

    mean: float
    low: float
    high: float
    n: int


def estimate(values: Iterable[float]) -> Estimate:
    """Return the mean and its 95 % interval by Student's t with n - 1 degrees of freedom.

    The interval is exact for values from a normal distribution, however few. It may extend beyond the values that the metric can take, for example below 0.

    >>> estimate([0.25, 0.25])
    Estimate(mean=0.25, low=0.25, high=0.25, n=2)
    >>> estimate([0.5]).low
    nan
    """
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return Estimate(math.nan, math.nan, math.nan, 0)
    if len(finite) == 1:
        return Estimate(finite[0], math.nan, math.nan, 1)
    if min(finite) == max(finite):  # exactly: a mean of equal values may be off by rounding
        return Estimate(finite[0], finite[0], finite[0], len(finite))

    mean = statistics.fmean(finite)
    half = _half(statistics.stdev(finite), len(finite))
    return Estimate(mean, mean - half, mean + half, len(finite))


def _half(deviation: float, n: int) -> float:
    """Return half the width of the interval of n values."""
    from scipy.stats import t  # type: ignore[import-untyped]

    return float(t.ppf(0.5 + CONFIDENCE / 2, n - 1)) * deviation / math.sqrt(n)


def seeds_needed(found: Estimate, distance: float) -> int | None:
    """Return the number of seeds for which half the interval would be below a distance, if mean and spread stayed as they are.

        >>> seeds_needed(Estimate(mean=0.5, low=-0.5, high=1.5, n=5), distance=0.5)
        13
        >>> seeds_needed(Estimate(mean=0.0, low=-0.5, high=0.5, n=5), distance=0.0)

    Args:
        found: An estimate from two or more seeds.
        distance: The distance of its mean from the value that the interval must not contain.

    Returns:
        The number of seeds, or None if more than `MANY` are needed.
    """
    deviation = (found.high - found.low) / 2 / _half(1.0, found.n)
    good, bad = MANY + 1, 1
    while good - bad > 1:  # half the interval becomes smaller with every seed
        middle = (good + bad) // 2
        good, bad = (middle, bad) if _half(deviation, middle) < distance else (good, middle)
    return good if good <= MANY else None


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Estimate:
    """Return the mean of ours - theirs over the seeds that both have, with its interval.

    A seed gives both the same data in the same order, so the effect of the seed itself cancels.

    >>> paired({0: 0.25, 1: 0.5, 2: 9.0}, {0: 0.75, 1: 1.0})
    Estimate(mean=-0.5, low=-0.5, high=-0.5, n=2)
    """
    return estimate(value - theirs[seed] for seed, value in ours.items() if seed in theirs)
