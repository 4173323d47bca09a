"""Limits, chunks, common noise, groups, and the annealed sigma."""

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import mse_loss

import mollifier
from mollifier.smoothing import Sigma, draw_noise, loss_of, mollified_loss, mollified_value, weak_gradient
from mollifier.smoothing._vectorise import LossFunction
from tests.helpers import mlp


@pytest.fixture
def problem() -> tuple[LossFunction, dict[str, Tensor]]:
    model = mlp(3, 5, 4, 1, activation=nn.Tanh).double()
    return loss_of(model, mse_loss, torch.randn(7, 3).double(), torch.randn(7, 1).double())


def gradient(loss: Tensor, parameters: dict[str, Tensor]) -> Tensor:
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(parameters.values()))])


@pytest.mark.parametrize("kernel", ["gaussian", "bump", "uniform"])
def test_sigma_to_zero_gives_the_loss_and_its_gradient(problem, kernel: str) -> None:
    loss_fn, parameters = problem
    plain = loss_fn(parameters)
    slope = gradient(plain, parameters)
    noise = draw_noise(8, kernel=kernel)
    errors = []
    for sigma in (1e-2, 1e-3, 1e-4):
        loss = mollified_loss(loss_fn, parameters, sigma, noise=noise)
        errors.append([float((loss - plain).detach().abs()), float((gradient(loss, parameters) - slope).norm())])
    for value, path in zip(*[iter(torch.tensor(errors).T)] * 2, strict=True):
        for error in (value, path):  # pairs: the error is of second order
            assert 50 < error[0] / error[1] < 200
            assert 50 < error[1] / error[2] < 200
            assert error[2] < 1e-6
    tiny = mollified_loss(loss_fn, parameters, 1e-12, noise=noise)
    assert torch.allclose(tiny, plain, rtol=1e-12)
    assert torch.allclose(gradient(tiny, parameters), slope, rtol=1e-9, atol=1e-12)


def test_weak_gradient_goes_to_the_gradient_as_sigma_does_to_zero(problem) -> None:
    loss_fn, parameters = problem
    slope = gradient(loss_fn(parameters), parameters)
    gradients, errors = weak_gradient(loss_fn, parameters, 1e-5, samples=4000, generator=Generator().manual_seed(0))
    away = (torch.cat([g.flatten() for g in gradients.values()]) - slope).abs()
    assert (away < 4.5 * torch.cat([e.flatten() for e in errors.values()])).all()


@pytest.mark.parametrize("antithetic", [True, False])
def test_chunks_change_nothing(problem, antithetic: bool) -> None:
    loss_fn, parameters = problem
    noise = draw_noise(200, antithetic=antithetic)
    whole = mollified_loss(loss_fn, parameters, 0.3, noise=noise, chunk=200)
    slope = gradient(whole, parameters)
    weak = weak_gradient(loss_fn, parameters, 0.3, noise=noise, chunk=200)
    value = mollified_value(loss_fn, parameters, 0.3, noise=noise, chunk=200)
    for chunk in (1, 7, 64, None):
        part = mollified_loss(loss_fn, parameters, 0.3, noise=noise, chunk=chunk)
        assert torch.allclose(part, whole, rtol=1e-13)
        assert torch.allclose(gradient(part, parameters), slope, rtol=1e-11, atol=1e-14)
        for mine, its in zip(weak, weak_gradient(loss_fn, parameters, 0.3, noise=noise, chunk=chunk), strict=True):
            assert all(torch.allclose(mine[name], its[name], rtol=1e-10, atol=1e-14) for name in mine)
        for mine, its in zip(value, mollified_value(loss_fn, parameters, 0.3, noise=noise, chunk=chunk), strict=True):
            assert torch.allclose(mine, its, rtol=1e-11)


def test_it_is_the_mean_of_the_perturbed_losses(problem) -> None:
    loss_fn, parameters = problem
    noise = draw_noise(6, antithetic=False)
    count = sum(p.numel() for p in parameters.values())
    rows = noise.rows(0, 6, count, torch.device("cpu"), torch.float64)
    losses = []
    for row in rows:
        parts = dict(zip(parameters, row.split([p.numel() for p in parameters.values()]), strict=True))
        losses.append(loss_fn({name: p - 0.3 * parts[name].view_as(p) for name, p in parameters.items()}))
    by_hand = torch.stack(losses).mean()
    loss = mollified_loss(loss_fn, parameters, 0.3, noise=noise)
    assert torch.allclose(loss, by_hand, rtol=1e-13)
    assert torch.allclose(gradient(loss, parameters), gradient(by_hand, parameters), rtol=1e-11, atol=1e-14)


def test_generators_make_it_reproducible_and_common_noise_makes_it_comparable(problem) -> None:
    loss_fn, parameters = problem

    def loss(seed: int) -> Tensor:
        return mollified_loss(loss_fn, parameters, 0.3, generator=Generator().manual_seed(seed))

    assert torch.equal(loss(1), loss(1))
    assert not torch.equal(loss(1), loss(2))
    moved = {name: value + 1e-4 for name, value in parameters.items()}
    noise = draw_noise(16)
    common = mollified_loss(loss_fn, moved, 0.3, noise=noise) - mollified_loss(loss_fn, parameters, 0.3, noise=noise)
    fresh = mollified_loss(loss_fn, moved, 0.3, samples=16) - mollified_loss(loss_fn, parameters, 0.3, samples=16)
    assert common.abs() < 0.1 * fresh.abs()


def test_successive_rows_of_noise_are_independent() -> None:
    # across the seams of the blocks as well: 4096 numbers a seed are 4 rows here
    rows = draw_noise(4000, antithetic=False).rows(0, 4000, 1000, torch.device("cpu"), torch.float64)
    for lag in (1, 2, 4):
        correlation = (rows[lag:, :100] * rows[:-lag, :100]).mean()
        assert correlation.abs() < 5 / (len(rows) * 100) ** 0.5
    assert len(rows.unique(dim=0)) == 4000


def test_sigma_by_name_group_and_default() -> None:
    theta = {name: torch.zeros(2, dtype=torch.float64) for name in ("a.w", "a.b", "ab.w", "c")}
    seen: list[dict[str, Tensor]] = []

    def loss(values: dict[str, Tensor]) -> Tensor:
        seen.append(values)
        return torch.stack([value.square().sum() for value in values.values()]).sum()

    mollified_value(loss, theta, {"a": 1.0, "a.b": 10.0, "c": torch.tensor(0.1)}, samples=400, chunk=1)
    spread = {name: float(torch.stack([values[name] for values in seen]).std()) for name in theta}
    assert spread["ab.w"] == 0.0
    for name, expected in (("a.w", 1.0), ("a.b", 10.0), ("c", 0.1)):
        assert 0.9 < spread[name] / expected < 1.1
    gradients, _ = weak_gradient(loss, theta, {"": 1.0, "a": 0.5}, samples=4)
    assert set(gradients) == set(theta)
    assert set(weak_gradient(loss, theta, {"a": 0.5}, samples=4)[0]) == {"a.w", "a.b"}


def test_gradient_in_sigma() -> None:
    sigma = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    theta = {"x": torch.tensor(1.0, dtype=torch.float64)}
    mollified_loss(lambda p: p["x"].square(), theta, sigma, samples=20_000).backward()
    assert abs(sigma.grad - 1.0) < 0.05  # of x² + σ²: 2 σ


def test_second_derivatives_need_the_graph_and_say_so() -> None:
    x = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    noise = draw_noise(4000, generator=Generator().manual_seed(0))

    def loss(p: dict[str, Tensor], graph: bool) -> Tensor:
        return mollified_loss(lambda q: q["x"].sin(), p, 0.5, noise=noise, graph=graph)

    with pytest.raises(RuntimeError, match="graph=True"):
        torch.autograd.grad(loss({"x": x}, False), x, create_graph=True)
    second = torch.func.grad(torch.func.grad(lambda y: loss({"x": y}, True)))(x.detach())
    assert abs(second - -(x.sin() * torch.exp(torch.tensor(-0.125)))) < 0.03


def test_what_vmap_cannot_do_runs_one_by_one_and_the_error_says_so() -> None:
    theta = {"x": torch.tensor(1.0)}

    def loss(p: dict[str, Tensor]) -> Tensor:
        return p["x"] if float(p["x"]) > 0 else -p["x"]

    with pytest.raises(RuntimeError) as caught:
        mollified_loss(loss, theta, 0.1)
    assert "chunk=1" in caught.value.__notes__[0]
    assert abs(mollified_loss(loss, theta, 0.1, samples=200, chunk=1) - 1.0) < 0.05


def test_an_annealer_drives_sigma(problem) -> None:
    loss_fn, parameters = problem
    sigma = Sigma(0.5)
    annealer = mollifier.Annealer(sigma, "linear", horizon=10)
    assert mollifier.levels(sigma) == [1.0]
    seen = []
    for _ in range(10):
        seen.append(float(sigma.value))
        loss = mollified_loss(loss_fn, parameters, sigma, samples=8)
        annealer.step(loss)
    assert seen == pytest.approx([0.5 - 0.05 * i for i in range(10)])
    assert annealer.finished
    assert sigma.value == 0
    assert torch.equal(mollified_loss(loss_fn, parameters, sigma), loss_fn(parameters))
    value, error = mollified_value(loss_fn, parameters, sigma)
    assert torch.equal(value, loss_fn(parameters))
    assert error == 0


def test_annealing_sigma_finds_the_deep_minimum_where_gradient_descent_does_not() -> None:
    # the continuation picture: f has a shallow well at the start and a deep one beyond a ridge
    def loss(p: dict[str, Tensor]) -> Tensor:
        x = p["x"]
        return 0.05 * (x - 3).square() - 0.6 * torch.cos(3 * x)

    def descend(sigma: Sigma | None) -> float:
        x = torch.tensor(-4.1, dtype=torch.float64, requires_grad=True)
        annealer = None if sigma is None else mollifier.Annealer(sigma, "linear", horizon=400)
        generator = Generator().manual_seed(0)
        for _ in range(600):
            here = {"x": x}
            value = loss(here) if sigma is None else mollified_loss(loss, here, sigma, samples=32, generator=generator)
            (slope,) = torch.autograd.grad(value, x)
            x = (x - 0.05 * slope).detach().requires_grad_()
            if annealer is not None:
                annealer.step()
        return float(loss({"x": x}).detach())

    lowest = float(loss({"x": torch.linspace(-6, 8, 5000, dtype=torch.float64)}).min())
    assert descend(None) > lowest + 1
    assert descend(Sigma(2.0)) < lowest + 0.05


def test_groups_may_be_annealed_apart(problem) -> None:
    loss_fn, parameters = problem
    first = Sigma(0.5, level=0.0)
    seen: list[dict[str, Tensor]] = []

    def watched(values: dict[str, Tensor]) -> Tensor:
        seen.append(values)
        return loss_fn(values)

    mollified_value(watched, parameters, {"0": first, "2": Sigma(0.5)}, samples=4, chunk=1)
    assert all(values["0.weight"] is parameters["0.weight"] for values in seen)
    assert not any(torch.equal(values["2.weight"], parameters["2.weight"]) for values in seen)


def test_half_precision_parameters_keep_their_dtype() -> None:
    model = nn.Linear(4, 1).bfloat16()
    loss_fn, parameters = loss_of(model, mse_loss, torch.randn(8, 4).bfloat16(), torch.randn(8, 1).bfloat16())
    mollified_loss(loss_fn, parameters, 0.1).backward()
    assert model.weight.grad.dtype == torch.bfloat16
    gradients, errors = weak_gradient(loss_fn, parameters, torch.tensor(0.1, dtype=torch.float64))
    assert gradients["weight"].dtype == errors["weight"].dtype == torch.bfloat16
