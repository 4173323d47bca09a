"""Format numbers for people, by the kind of metric."""

from __future__ import annotations

import math
from collections.abc import Sequence

NONE = "–"
_WORDS = {"nll": "NLL", "train": "training", "valid": "validation", "lr": "learning rate"}


def title(metric: str) -> str:
    """Return the name of a metric in words.

    >>> title("train_nll"), title("valid_error"), title("train_loss")
    ('training NLL', 'validation error', 'training loss')
    """
    return " ".join(_WORDS.get(word, word) for word in metric.split("_"))


def is_percent(metric: str) -> bool:
    """Return whether a metric is a fraction that is shown as a percentage."""
    return metric.endswith("_error")


def show_metric(metric: str, value: float | None) -> str:
    """Format a value of a metric: errors in percent, perplexities with one decimal, the rest with three significant digits.

    >>> show_metric("test_error", 0.0822), show_metric("test_perplexity", 123.62), show_metric("train_nll", 0.020312)
    ('8.22 %', '123.6', '0.0203')
    """
    if value is None or math.isnan(value):
        return NONE
    if is_percent(metric):
        return f"{100 * value:.2f} %"
    return f"{value:.1f}" if metric.endswith("_perplexity") else significant(value)


def significant(value: float, digits: int = 3) -> str:
    """Format with three significant digits, keeping trailing zeros and avoiding an exponent where possible.

    >>> significant(0.05), significant(1234.5), significant(2e-7), significant(0.0)
    ('0.0500', '1234', '2.00e-07', '0')
    """
    if value == 0:
        return "0"
    if not 1e-4 <= abs(value) < 1e6:
        return f"{value:.{digits - 1}e}"
    exponent = int(f"{value:.{digits - 1}e}".split("e")[1])
    return f"{value:.{max(0, digits - 1 - exponent)}f}"


def show_interval(metric: str, low: float, high: float) -> str:
    """Format an interval of a metric.

    >>> show_interval("test_error", 0.08, 0.0855)
    '8.00 – 8.55 %'
    """
    first, last = show_metric(metric, low), show_metric(metric, high)
    return f"{first.removesuffix(' %')} – {last}"


def show_difference(metric: str, value: float) -> str:
    """Format a difference of two values of a metric, with its sign.

    >>> show_difference("test_error", -0.0123), show_difference("train_nll", 0.25)
    ('-1.23 %', '+0.250')
    """
    return ("+" if value > 0 else "") + show_metric(metric, value)


def show_unfinished(annealing: object) -> str:
    """Say that annealing had not ended, and at which levels; empty if it had, or if there was none.

    >>> show_unfinished({"finished": False, "levels": [0.25, 0.5, 0.75]})
    'annealing had not ended: levels 0.25…0.75'
    """
    if not isinstance(annealing, dict) or annealing.get("finished") is not False:
        return ""
    levels = annealing.get("levels")
    shown = show_levels(levels) if isinstance(levels, list) else ""
    return "annealing had not ended" + (f": {shown}" if shown else "")


def show_levels(levels: Sequence[object]) -> str:
    """Format the lowest and the highest of some levels; empty if they are not numbers.

    >>> show_levels([0.25, 0.5]), show_levels([0.5])
    ('levels 0.25…0.50', 'level 0.50')
    """
    found = [float(level) for level in levels if isinstance(level, int | float)]
    if not found or len(found) < len(levels):
        return ""
    return f"levels {min(found):.2f}…{max(found):.2f}" if len(found) > 1 else f"level {found[0]:.2f}"


def show_count(value: float | None) -> str:
    """Format a whole number with thousands separators.

    >>> show_count(12500.0)
    '12,500'
    """
    return NONE if value is None or not math.isfinite(value) else f"{value:,.0f}"


def show_seconds(value: float | None) -> str:
    """Format a time.

    >>> show_seconds(4.26), show_seconds(75), show_seconds(3725)
    ('4.3 s', '1 min 15 s', '1 h 02 min')
    """
    if value is None or math.isnan(value):
        return NONE
    if value < 59.95:
        return f"{value:.1f} s"
    minutes, seconds = divmod(round(value), 60)
    return f"{minutes} min {seconds:02d} s" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60:02d} min"
