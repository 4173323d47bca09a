"""Intervals, against values from a table of Student's t and against the truth."""

import math
import random

import pytest

from mollifier_lab.report.estimates import estimate, paired


def test_an_interval_by_a_table_of_students_t() -> None:
    # t for 95 % and 4 degrees of freedom is 2.776; the standard error of 1…5 is sqrt(2.5 / 5)
    found = estimate([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (found.mean, found.n) == (3.0, 5)
    assert found.high - found.mean == pytest.approx(2.776 * math.sqrt(0.5), rel=1e-3)
    assert found.mean - found.low == pytest.approx(found.high - found.mean)
    two = estimate([0.2, 0.6])  # t for 1 degree of freedom is 12.706
    assert two.high - two.mean == pytest.approx(12.706 * 0.2, rel=1e-3)


def test_an_interval_where_there_is_none_and_where_it_has_no_width() -> None:
    assert math.isnan(estimate([0.3]).low)
    assert math.isnan(estimate([0.3]).high)
    assert estimate([math.nan, math.inf]).n == 0
    same = estimate([0.1] * 3)  # whose mean, summed and divided, is 0.10000000000000002
    assert (same.mean, same.low, same.high) == (0.1, 0.1, 0.1)
    assert estimate([0.3, math.nan, 0.5]).mean == pytest.approx(0.4)


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_the_intervals_cover_the_truth_as_often_as_they_say(seeds: int) -> None:
    # 4000 studies: two standard deviations of the share are 0.7 %
    draw = random.Random(seeds)
    studies = [estimate(draw.gauss(0.3, 0.05) for _ in range(seeds)) for _ in range(4000)]
    covered = sum(found.low <= 0.3 <= found.high for found in studies) / len(studies)
    assert 0.93 <= covered <= 0.97


def test_differences_are_taken_seed_by_seed() -> None:
    # the seeds differ widely, the difference hardly: only pairs show it
    theirs = {seed: 0.1 * seed for seed in range(5)}
    ours = {seed: 0.1 * seed - 0.02 + 0.001 * (seed % 2) for seed in range(5)} | {9: 7.0}
    found = paired(ours, theirs)
    assert found.n == 5
    assert found.mean == pytest.approx(-0.0196)
    assert found.low < found.mean < found.high < -0.018
    assert paired(ours, {7: 1.0}).n == 0
