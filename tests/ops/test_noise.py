"""The quality of the counter-based noise, at ten million draws."""

import math

import pytest
import torch
from scipy import stats
from torch import Tensor

from mollifier import ops
from tests.ops.helpers import Spec, draw_seed, unit

COUNT = 10_000_000
LIMIT = 4.5 / math.sqrt(COUNT)  # a correlation that chance exceeds once in 150,000 times
SEED = 8_345_093_222_119_453_217


@pytest.fixture(scope="module")
def draws() -> tuple[Tensor, Tensor]:
    return ops.noise(SEED, COUNT)


def correlation(one: Tensor, two: Tensor) -> float:
    one, two = (each.double() - each.double().mean() for each in (one, two))
    return float((one * two).mean() / (one.square().mean() * two.square().mean()).sqrt())


def test_mean_and_variance(draws):
    normal, uniform = (each.double() for each in draws)
    for values, mean, variance, kurtosis in (
        (normal, math.sqrt(2 / math.pi), 1 - 2 / math.pi, 3.869),
        (uniform + 0.5 / 65536, 0.5, 1 / 12, 1.8),
    ):
        assert abs(values.mean().item() - mean) < 4.5 * math.sqrt(variance / COUNT)
        assert abs(values.var().item() / variance - 1) < 4.5 * math.sqrt((kurtosis - 1) / COUNT)


def test_distributions_by_kolmogorov_and_smirnov(draws):
    normal, uniform = (each.double().numpy() for each in draws)
    limit = 1.95 / math.sqrt(COUNT)  # 0.001
    assert stats.kstest(normal, stats.halfnorm.cdf).statistic < limit
    assert stats.kstest(uniform + 0.5 / 65536, "uniform").statistic < limit


def test_cells_by_chi_square(draws):
    normal, uniform = draws
    cells = (uniform * 65536).long()
    assert 1e-4 < stats.chisquare(torch.bincount(cells, minlength=65536).numpy()).pvalue < 1 - 1e-4
    # both halves of the hash together: 256 classes of |ξ| by 256 of the uniform
    ranks = (torch.erf(normal.double() / math.sqrt(2)) * 256).long().clamp(0, 255)
    pairs = torch.bincount(ranks * 256 + (uniform * 256).long(), minlength=65536)
    assert 1e-4 < stats.chisquare(pairs.numpy()).pvalue < 1 - 1e-4
    # neighbours, by the upper and by the lower bits
    for classes in (cells // 256, cells % 256):
        follow = torch.bincount(classes[::2] * 256 + classes[1::2], minlength=65536)
        assert 1e-4 < stats.chisquare(follow.numpy()).pvalue < 1 - 1e-4


def test_the_copy_and_the_push_of_a_unit_are_independent(draws):
    assert abs(correlation(*draws)) < LIMIT


@pytest.mark.parametrize("lag", [1, 2, 3, 4, 7, 8, 16, 64, 100, 200, 256, 1024, 4096, 65536, 1 << 20])
def test_no_correlation_across_lags_and_rows(draws, lag):
    for values in draws:
        assert abs(correlation(values[:-lag], values[lag:])) < 1.1 * LIMIT
    assert abs(correlation(draws[0][:-lag], draws[1][lag:])) < 1.1 * LIMIT


@pytest.mark.parametrize("other", [SEED + 1, SEED - 1, SEED + (1 << 32), SEED ^ (1 << 62), 0, 1])
def test_no_correlation_across_seeds(draws, other):
    others = ops.noise(other, COUNT)
    for one in draws:
        for two in others:
            assert abs(correlation(one, two)) < LIMIT
            assert abs(correlation(one[1:], two[:-1])) < LIMIT
            assert abs(correlation(one[:-1], two[1:])) < LIMIT


def test_no_correlation_across_layers_and_steps():
    # what layers and steps draw, one after another: their seeds come from torch's generator
    torch.manual_seed(0)
    normal, uniform = (
        torch.stack(parts) for parts in zip(*(ops.noise(draw_seed(), 25_000) for _ in range(400)), strict=True)
    )
    for values in (normal, uniform):
        for lag in (1, 2, 6):
            assert abs(correlation(values[:-lag].flatten(), values[lag:].flatten())) < 1.1 * LIMIT
        units = values.double().mean(0)  # one unit over many steps: as spread as chance has it
        spread = values.double().var().item() / len(values)
        assert abs(units.var().item() / spread - 1) < 4.5 * math.sqrt(2 / 25_000)


def test_levels_are_met_to_16_bits():
    for level in (0.001, 0.25, 0.9, 0.9999):
        torch.manual_seed(1)
        out = unit(torch.zeros(1000, 1000), torch.ones(1000, 1000), None, Spec(None, level, in_units=1000))
        assert abs(out.mean().item() - level) < 4.5 * math.sqrt(level * (1 - level) / 1e6) + 1 / 65536
