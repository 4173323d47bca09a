"""Interleaved timing: the candidates take turns, so that other load on the machine affects all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class Ratio:
    """Time of a candidate over that of the first one: the median of the rounds' ratios, and their quartiles."""

    line: str
    candidate: str
    ratio: float
    low: float
    high: float
    microseconds: float
    plain_microseconds: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def compare(
    line: str, candidates: dict[str, Callable[[], object]], rounds: int = 200, seconds: float = 3.0
) -> list[Ratio]:
    """Time the candidates in turn; the first is what the others are divided by."""
    for _ in range(5):
        for run in candidates.values():
            getattr(run, "prepare", bool)()
            run()
    times: dict[str, list[float]] = {name: [] for name in candidates}
    end = time.perf_counter() + seconds
    for number in range(rounds):
        if number >= 15 and time.perf_counter() > end:
            break
        for name, run in candidates.items():
            getattr(run, "prepare", bool)()
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    first, *others = candidates
    found = []
    for name in others:
        low, middle, high = statistics.quantiles(
            [mine / plain for mine, plain in zip(times[name], times[first], strict=True)], n=4
        )
        found.append(
            Ratio(
                line,
                name,
                middle,
                low,
                high,
                1e6 * statistics.median(times[name]),
                1e6 * statistics.median(times[first]),
            )
        )
    return found
