"""Numbers for people."""

import math

import pytest

from mollifier_lab.report.formats import show_count, show_interval, show_metric, show_seconds, significant, title


@pytest.mark.parametrize(
    ("value", "text"), [(0.6931, "0.693"), (0.9996, "1.00"), (9.999, "10.0"), (12.34, "12.3"), (-0.05, "-0.0500"), (1e-5, "1.00e-05"), (3e7, "3.00e+07")]
)  # fmt: skip
def test_three_significant_digits(value: float, text: str) -> None:
    assert significant(value) == text


def test_by_kind_of_metric() -> None:
    assert show_metric("valid_error", 0.5) == "50.00 %"
    assert show_metric("valid_perplexity", 99.96) == "100.0"
    assert show_metric("test_loss", 0.128) == "0.128"
    assert show_metric("test_loss", None) == show_metric("test_loss", math.nan) == "–"
    assert show_interval("test_loss", 0.1, 0.25) == "0.100 – 0.250"
    assert title("valid_perplexity") == "validation perplexity"


def test_times_and_counts() -> None:
    assert [show_seconds(value) for value in (0, 59.94, 59.96, 3599.6, math.nan)] == ["0.0 s", "59.9 s", "1 min 00 s", "1 h 00 min", "–"]  # fmt: skip
    assert [show_count(value) for value in (0, 102000, math.inf, None)] == ["0", "102,000", "–", "–"]
