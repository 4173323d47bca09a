"""The noise itself: means, variances, draws, generators and dtypes."""

import math

import pytest
import torch
from hypothesis import given, strategies as st
from scipy import integrate

from mollifier.activations import activation, names
from mollifier.functional import HALF_NORMAL_MEAN, copy_mix, noisy_activation
from tests.helpers import doubles

NAMES = names()
N = 100_000
levels = st.floats(0.0, 1.0)
finite = st.floats(-1e6, 1e6)


def by_quadrature(name: str, x: float, **options: float) -> float:
    """E ψ over the half-normal |ξ|, with a break where the push meets the tangent."""

    def psi(xi: float) -> float:
        return float(noisy_activation(doubles([x]), name, noise=doubles([xi]), **options))

    act = activation(name)
    gap = float((act.u(doubles([x])) - act.f(doubles([x]))).abs())
    size = options["c"] * options["level"] * 0.25 * math.tanh(0.5 * options["a"] * gap) ** 2
    kink = min(gap / size, 12.0) if size > 0 else 12.0
    density = math.sqrt(2 / math.pi)
    pieces = [(0.0, kink), (kink, kink + 12.0)]
    terms = (integrate.quad(lambda t: psi(t) * density * math.exp(-t * t / 2), *p, epsabs=1e-12)[0] for p in pieces)
    return sum(terms)


@pytest.mark.parametrize("x", [-6.0, -1.5, -0.2, 0.7, 2.5])
@pytest.mark.parametrize("name", NAMES)
def test_exact_is_the_mean_by_quadrature(name, x):
    for level, c, a in ((0.3, 20.0, 1.0), (1.0, 100.0, -1.8)):
        exact = float(noisy_activation(doubles([x]), name, noise="exact", level=level, c=c, a=a))
        assert exact == pytest.approx(by_quadrature(name, x, level=level, c=c, a=a), abs=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_exact_is_the_mean_of_the_samples(name):
    x = doubles([-4.0, -1.0, 0.5, 3.0]).expand(N, 4)
    options = {"level": 0.7, "a": 1.5, "c": 30.0}
    samples = noisy_activation(x, name, noise="sample", **options)
    exact = noisy_activation(x[0], name, noise="exact", **options)
    error = samples.std(0) / math.sqrt(N)
    assert ((samples.mean(0) - exact).abs() <= 5 * error + 1e-12).all()


def test_the_plug_in_value_overstates_the_mean():
    """Of the gap between sigmoid and its tangent at level 1, x ~ N(0, 1), a ~ U[-2, 2] (READING: .434 and .367 at c = 100)."""
    x = torch.linspace(-6, 6, 1201, dtype=torch.float64)
    weight = torch.exp(-x.square() / 2)[:, None]
    a = torch.linspace(-2, 2, 401, dtype=torch.float64)
    grid = x[:, None].expand(1201, 401)
    f, u = torch.sigmoid(grid), 0.25 * grid + 0.5

    def closed(mode: str, c: float) -> float:
        psi = noisy_activation(grid, "sigmoid", level=1.0, a=a, c=c, noise=mode)
        return float((weight * (psi - f).abs()).sum() / (weight * (u - f).abs()).sum())

    assert closed("expected", 100.0) == pytest.approx(0.434, abs=0.005)
    assert closed("exact", 100.0) == pytest.approx(0.367, abs=0.005)
    assert closed("exact", 20.0) == pytest.approx(0.13, abs=0.005)


def test_the_mean_of_the_half_normal():
    assert pytest.approx(integrate.quad(lambda t: t * 2 * _normal(t), 0, 40)[0], abs=1e-10) == HALF_NORMAL_MEAN


def _normal(t: float) -> float:
    return math.exp(-t * t / 2) / math.sqrt(2 * math.pi)


@given(p=levels, below=finite, above=finite)
def test_the_copy_mix_has_the_stated_mean_and_variance(p, below, above):
    draws = torch.rand(N, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    mixed = copy_mix(doubles([below]).expand(N), doubles([above]).expand(N), level=p, noise=draws)
    assert ((mixed == below) | (mixed == above)).all()  # a hard decision
    gap, spread = below - above, p * (1 - p)
    error = math.sqrt(spread / N)
    rounding = 1e-9 * (abs(below) + abs(above))
    assert abs(mixed.mean() - (p * below + (1 - p) * above)) <= 5 * error * abs(gap) + rounding
    # p̂(1 - p̂) varies by |1 - 2p| se(p̂) to first order, by its square to second
    wiggle = 5 * abs(1 - 2 * p) * error + 25 * error**2
    assert abs(mixed.var(unbiased=False) - spread * gap**2) <= wiggle * gap**2 + rounding**2 + 1e-9 * gap**2


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_copy_is_drawn_afresh_for_each_unit_and_example(p):
    mixed = copy_mix(torch.ones(N // 4, 4), torch.zeros(N // 4, 4), level=p)
    assert abs(mixed.mean() - p) <= 5 * math.sqrt(p * (1 - p) / N)
    between_units = torch.corrcoef(mixed.T) - torch.eye(4)
    between_examples = torch.corrcoef(torch.stack([mixed[:-1].flatten(), mixed[1:].flatten()]))[0, 1]
    assert between_units.abs().max() < 5 / math.sqrt(N // 4)
    assert between_examples.abs() < 5 / math.sqrt(N)


@given(values=st.lists(st.tuples(finite, finite), min_size=1, max_size=20), mode=st.sampled_from(["expected", "exact"]))
def test_the_expected_mix_is_exact_at_both_ends(values, mode):
    below, above = doubles([v[0] for v in values]), doubles([v[1] for v in values])
    assert torch.equal(copy_mix(below, above, level=0.0, noise=mode), above)
    assert torch.equal(copy_mix(below, above, level=1.0, noise=mode), below)
    torch.testing.assert_close(copy_mix(below, above, level=0.25, noise=mode), 0.25 * below + 0.75 * above)


def test_a_unit_is_copied_where_its_draw_is_below_p():
    draws = torch.tensor([0.0, 0.25, 0.5, 0.999])
    below, above = torch.ones(4), torch.zeros(4)
    assert copy_mix(below, above, level=0.5, noise=draws).tolist() == [1, 1, 0, 0]
    assert copy_mix(below, above, level=0.0, noise=draws).tolist() == [0, 0, 0, 0]
    assert copy_mix(below, above, level=1.0, noise=draws).tolist() == [1, 1, 1, 1]


def test_half_precision_draws_are_fine_enough_for_levels_near_1():
    """bf16 has 256 values in [0, 1): drawn in it, p = .999 would copy always."""
    one = torch.ones(N, dtype=torch.bfloat16)
    copied = float(copy_mix(one, torch.zeros_like(one), level=0.999).float().mean())
    assert copied == pytest.approx(0.999, abs=5 * math.sqrt(0.001 / N))


@pytest.mark.parametrize("noise", ["sample", "expected", "exact"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtypes_are_kept(dtype, noise):
    x = torch.randn(6, 4).to(dtype)
    level, c = torch.tensor(0.5, dtype=torch.float64), torch.tensor(20.0, dtype=torch.float64)
    for a in (torch.ones(4), torch.ones(4, dtype=torch.float64), 1.0):
        assert noisy_activation(x, "tanh", level=level, a=a, c=c, noise=noise).dtype == dtype
    assert copy_mix(x.float(), x, level=level, noise=noise).dtype == dtype
    assert copy_mix(x.double(), x, level=0.5, noise=noise).dtype == dtype


def both(**how) -> list[torch.Tensor]:
    x = torch.linspace(-3, 3, 500)
    return [noisy_activation(x, "tanh", level=0.5, a=2.0, **how), copy_mix(x, -x, level=0.5, **how)]


def test_a_generator_reproduces_and_leaves_torchs_own_alone():
    before = torch.get_rng_state()
    one, two, other = (both(generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_without_a_generator_torchs_seed_reproduces():
    torch.manual_seed(3)
    one = both()
    fresh = both()
    torch.manual_seed(3)
    assert all(torch.equal(a, b) for a, b in zip(one, both(), strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(one, fresh, strict=True))


@pytest.mark.parametrize("noise", ["expected", "exact"])
def test_means_draw_nothing(noise):
    before = torch.get_rng_state()
    one, two = both(noise=noise), both(noise=noise)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
