"""The estimates against what is known in closed form, or by quadrature."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Generator, Tensor

from mollifier.nn import Step
from mollifier.smoothing import KERNELS, Kernel, draw_noise, loss_of, mollified_loss, mollified_value, weak_gradient


def density(z: Tensor) -> Tensor:
    return torch.exp(-0.5 * z.square()) / math.sqrt(2 * math.pi)


def distribution(z: Tensor) -> Tensor:
    return 0.5 * (1 + torch.erf(z / math.sqrt(2)))


Pair = Callable[[Tensor, float], tuple[Tensor, Tensor]]
# the function, and the value and derivative of its convolution with a Gaussian of standard deviation s
FORMS: dict[str, tuple[Callable[[Tensor], Tensor], Pair]] = {
    "step": (lambda x: (x >= 0).to(x), lambda x, s: (distribution(x / s), density(x / s) / s)),
    "sign": (lambda x: 2 * (x >= 0).to(x) - 1, lambda x, s: (2 * distribution(x / s) - 1, 2 * density(x / s) / s)),
    "abs": (
        torch.abs,
        lambda x, s: (x * (2 * distribution(x / s) - 1) + 2 * s * density(x / s), 2 * distribution(x / s) - 1),
    ),
    "relu": (torch.relu, lambda x, s: (x * distribution(x / s) + s * density(x / s), distribution(x / s))),
    "quadratic": (lambda x: 3 * x.square(), lambda x, s: (3 * (x.square() + s**2), 6 * x)),
    "sin": (torch.sin, lambda x, s: (math.exp(-0.5 * s**2) * x.sin(), math.exp(-0.5 * s**2) * x.cos())),
}
SMOOTH_ENOUGH = ["abs", "relu", "quadratic", "sin"]
N = 2000


def settings(seed: int, count: int) -> list[tuple[Tensor, float, Generator]]:
    g = Generator().manual_seed(seed)
    x = 2 * torch.randn(count, generator=g, dtype=torch.float64)
    s = torch.rand(count, generator=g).mul(3).sub(2).exp()  # from 0.14 to 2.7
    return [(x[i], float(s[i]), g) for i in range(count)]


@pytest.mark.parametrize("antithetic", [True, False])
@pytest.mark.parametrize("name", FORMS)
def test_values_are_within_four_standard_errors(name: str, antithetic: bool) -> None:
    f, form = FORMS[name]
    for x, s, g in settings(1, 40):
        value, error = mollified_value(lambda p: f(p["x"]), {"x": x}, s, samples=N, antithetic=antithetic, generator=g)
        # what happens less than once in N draws leaves no trace in their deviation
        assert abs(value - form(x, s)[0]) < 4 * error + 4 / N, (x, s)


@pytest.mark.parametrize("antithetic", [True, False])
@pytest.mark.parametrize("name", FORMS)
def test_weak_gradients_are_within_four_standard_errors(name: str, antithetic: bool) -> None:
    f, form = FORMS[name]
    for x, s, g in settings(2, 40):
        gradients, errors = weak_gradient(
            lambda p: f(p["x"]), {"x": x}, s, samples=N, antithetic=antithetic, generator=g
        )
        assert abs(gradients["x"] - form(x, s)[1]) < 4 * errors["x"] + 4 / N, (x, s)


@pytest.mark.parametrize("name", SMOOTH_ENOUGH)
def test_pathwise_gradients_are_within_four_standard_errors(name: str) -> None:
    f, form = FORMS[name]
    for x, s, g in settings(3, 12):
        found = []
        for _ in range(20):
            theta = x.clone().requires_grad_()
            mollified_loss(lambda p: f(p["x"]), {"x": theta}, s, samples=200, generator=g).backward()
            found.append(theta.grad)
        draws = torch.stack(found)
        assert abs(draws.mean() - form(x, s)[1]) < 4 * draws.std() / math.sqrt(20) + 1e-3, (x, s)


@pytest.mark.parametrize("name", ["step", "abs", "sin"])
def test_the_error_falls_with_the_square_root_of_the_samples(name: str) -> None:
    f, form = FORMS[name]
    x, s, g = torch.tensor(0.4, dtype=torch.float64), 0.8, Generator().manual_seed(4)

    def error(samples: int) -> tuple[float, float]:
        values, slopes = [], []
        for _ in range(200):
            noise = draw_noise(samples, antithetic=False, generator=g)
            values.append(mollified_value(lambda p: f(p["x"]), {"x": x}, s, noise=noise)[0] - form(x, s)[0])
            slopes.append(weak_gradient(lambda p: f(p["x"]), {"x": x}, s, noise=noise)[0]["x"] - form(x, s)[1])
        return float(torch.stack(values).square().mean().sqrt()), float(torch.stack(slopes).square().mean().sqrt())

    few, many = error(32), error(32 * 16)
    for i in range(2):
        assert 3.2 < few[i] / many[i] < 5.0  # 4 in the mean; its own standard error is about 7 %


@pytest.mark.parametrize("name", ["step", "sign", "relu", "sin"])
def test_reported_standard_errors_are_the_spread_of_the_estimates(name: str) -> None:
    f, _ = FORMS[name]
    x, g = {"x": torch.tensor(0.3, dtype=torch.float64)}, Generator().manual_seed(5)
    runs = [weak_gradient(lambda p: f(p["x"]), x, 0.7, samples=200, generator=g) for _ in range(400)]
    spread = torch.stack([gradients["x"] for gradients, _ in runs]).std()
    reported = torch.stack([errors["x"] for _, errors in runs]).mean()
    assert 0.85 < spread / reported < 1.15


def errors_of(f: Callable[[Tensor], Tensor], antithetic: bool, baseline: bool = False) -> tuple[float, float]:
    """Standard errors of value and weak gradient, with the same number of values of f."""
    x, g = {"x": torch.tensor(0.3, dtype=torch.float64)}, Generator().manual_seed(6)
    noise = draw_noise(N, antithetic=antithetic, generator=g)
    value = mollified_value(lambda p: f(p["x"]), x, 0.7, noise=noise)[1]
    slope = weak_gradient(lambda p: f(p["x"]), x, 0.7, noise=noise, baseline=baseline)[1]["x"]
    return float(value), float(slope)


@pytest.mark.parametrize("name", ["step", "sign", "relu", "sin"])
def test_antithetic_pairs_have_less_variance_than_plain_samples(name: str) -> None:
    f, _ = FORMS[name]
    assert errors_of(f, antithetic=True)[0] < 0.9 * errors_of(f, antithetic=False)[0]
    # a loss is seldom centred: of its constant the pairs know nothing
    assert errors_of(lambda x: 2 + f(x), antithetic=True)[1] < 0.7 * errors_of(lambda x: 2 + f(x), antithetic=False)[1]


def test_pairs_of_a_straight_line_say_the_same_thing_twice() -> None:
    # what the card says: there the baseline does as much at half the cost, so that the errors differ by sqrt 2
    pairs, plain = (errors_of(lambda x: 2 + x, antithetic=a, baseline=True)[1] for a in (True, False))
    assert 1.3 < pairs / plain < 1.55


def test_the_baseline_takes_a_constant_out() -> None:
    x, g = {"x": torch.tensor(0.3, dtype=torch.float64)}, Generator().manual_seed(7)

    def error(baseline: bool) -> float:
        return float(
            weak_gradient(
                lambda p: 100 + p["x"].sin(), x, 0.5, samples=N, antithetic=False, baseline=baseline, generator=g
            )[1]["x"]
        )

    assert error(True) < 0.02 * error(False)


def test_weak_gradient_of_a_step_network_is_the_derivative_of_its_smoothed_loss() -> None:
    g = Generator().manual_seed(8)
    network = torch.nn.Sequential(torch.nn.Linear(1, 2, bias=False), Step(level=0), torch.nn.Linear(2, 1)).double()
    x = torch.randn(12, 1, generator=g, dtype=torch.float64)
    y = torch.randn(12, 1, generator=g, dtype=torch.float64)
    loss_fn, parameters = loss_of(network, torch.nn.functional.mse_loss, x, y)
    weights, sigma = {"0.weight": torch.tensor([[0.4], [-0.2]], dtype=torch.float64)}, 0.5
    fixed = {name: value.detach() for name, value in parameters.items() if name not in weights}

    def loss(values: dict[str, Tensor]) -> Tensor:
        return loss_fn({**fixed, **values})

    # L * K by a sum over a fine grid of the two weights, which is smooth in where K stands
    side = torch.linspace(-3.5, 3.5, 401, dtype=torch.float64)
    grid = torch.cartesian_prod(side, side)
    values = torch.func.vmap(lambda w: loss({"0.weight": w[:, None]}))(grid)

    def smoothed(at: Tensor) -> Tensor:
        k = torch.exp(-0.5 * ((grid - at) / sigma).square().sum(1))
        return (values * k).sum() / k.sum()

    at, h = weights["0.weight"][:, 0], 1e-4
    numerical = torch.stack([(smoothed(at + h * e) - smoothed(at - h * e)) / (2 * h) for e in torch.eye(2).double()])
    gradients, errors = weak_gradient(loss, weights, sigma, samples=200_000, generator=g)
    difference = (gradients["0.weight"][:, 0] - numerical).abs()
    assert (numerical.abs() > 20 * errors["0.weight"][:, 0]).all()  # so that 0 would not pass
    assert (difference < 4 * errors["0.weight"][:, 0] + 1e-3).all()


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_are_symmetric_with_variance_one(kernel: str) -> None:
    draws = KERNELS[kernel].draw((400_000,), Generator().manual_seed(9), torch.float64)
    assert abs(draws.mean()) < 0.007
    assert abs(draws.square().mean() - 1) < 0.01
    assert abs((draws > 0).double().mean() - 0.5) < 0.004


def test_bump_is_drawn_from_its_density_and_its_score_is_its_derivative() -> None:
    bump = KERNELS["bump"]
    assert bump.score is not None
    draws = bump.draw((400_000,), Generator().manual_seed(10), torch.float64)
    x = torch.linspace(-0.999, 0.999, 20_001, dtype=torch.float64)
    weight = torch.exp(-1 / (1 - x.square()))
    std = float((weight * x.square()).sum() / weight.sum()) ** 0.5
    assert draws.abs().max() < 1 / std
    edges = torch.linspace(-0.8, 0.8, 17, dtype=torch.float64)
    cumulative = weight.cumsum(0) / weight.sum()
    expected = torch.stack([cumulative[(x < e).sum() - 1] for e in edges])
    found = torch.stack([(draws * std < e).double().mean() for e in edges])
    assert (expected - found).abs().max() < 0.004
    xi = torch.tensor([-1.5, -0.3, 0.0, 1.0, 2.0], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad((-1 / (1 - (xi * std).square())).sum(), xi)
    assert torch.allclose(bump.score(xi.detach()), slope, rtol=1e-6)


def test_bump_smooths_and_differentiates_a_step() -> None:
    x = torch.linspace(-1, 1, 20_001, dtype=torch.float64)
    weight = torch.exp(-1 / (1 - x.square()).clamp_min(1e-9))
    weight = weight / weight.sum()
    std = float((weight * x.square()).sum()) ** 0.5
    theta, sigma, g = 0.3, 0.6, Generator().manual_seed(11)
    at = theta / sigma * std  # where the step is, in units of the kernel
    value = weight[x < at].sum()
    slope = weight[(x - at).abs().argmin()] / (x[1] - x[0]) * std / sigma
    parameters = {"x": torch.tensor(theta, dtype=torch.float64)}
    found, error = mollified_value(
        lambda p: (p["x"] >= 0).double(), parameters, sigma, kernel="bump", samples=20_000, generator=g
    )
    assert abs(found - value) < 4 * error
    gradients, errors = weak_gradient(
        lambda p: (p["x"] >= 0).double(), parameters, sigma, kernel="bump", samples=20_000, generator=g
    )
    assert abs(gradients["x"] - slope) < 4 * errors["x"]
    assert slope > 10 * errors["x"]


def test_uniform_kernel_averages_over_a_box() -> None:
    g, theta = Generator().manual_seed(12), {"x": torch.zeros((), dtype=torch.float64)}
    value, error = mollified_value(lambda p: p["x"].abs(), theta, 0.4, kernel="uniform", samples=N, generator=g)
    assert abs(value - 0.4 * math.sqrt(3) / 2) < 4 * error


def test_a_kernel_of_the_users_own() -> None:
    def draw(shape: tuple[int, ...], generator: Generator, dtype: torch.dtype) -> Tensor:
        u = torch.rand(shape, generator=generator, dtype=dtype).clamp(1e-12, 1 - 1e-12)
        return (u / (1 - u)).log() * math.sqrt(3) / math.pi

    scale = math.pi / math.sqrt(3)
    logistic = Kernel("logistic", draw, lambda xi: -scale * torch.tanh(0.5 * scale * xi))
    g, theta = Generator().manual_seed(13), {"x": torch.tensor(0.2, dtype=torch.float64)}
    step = FORMS["step"][0]
    gradients, errors = weak_gradient(lambda p: step(p["x"]), theta, 0.5, samples=20_000, kernel=logistic, generator=g)
    s = torch.sigmoid(torch.tensor(0.4 * scale, dtype=torch.float64))
    assert abs(gradients["x"] - s * (1 - s) * scale / 0.5) < 4 * errors["x"]
