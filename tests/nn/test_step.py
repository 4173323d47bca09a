"""Binary units: hard at level 0, a line at level 1, trainable in between and after."""

import math
import pickle

import pytest
import torch
from torch import Tensor, nn

import mollifier
from mollifier.nn import MollifiedBlock, Sign, Step
from mollifier.smoothing import loss_of, weak_gradient

KINDS = [Step, Sign]
Kind = type[Step] | type[Sign]
X = torch.linspace(-3, 3, 61, dtype=torch.float64)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("training", [True, False])
def test_level_zero_is_the_hard_function(kind: Kind, training: bool) -> None:
    unit = kind(level=0).train(training)
    assert unit(torch.tensor([-1.0, -1e-30, -0.0, 0.0, 2.0])).tolist() == [unit.low, unit.low, 1.0, 1.0, 1.0]
    assert unit(torch.ones(2, dtype=torch.bfloat16)).dtype == torch.bfloat16


@pytest.mark.parametrize("training", [True, False])
def test_level_one_is_the_tangent(training: bool) -> None:
    assert torch.allclose(Step().train(training)(X), 0.25 * X + 0.5, atol=1e-15)
    assert torch.allclose(Sign().train(training)(X), X, atol=1e-15)
    assert torch.allclose(Sign(width=2.0).train(training)(X), X * 2 / (2.0 * math.sqrt(2 * math.pi)))


@pytest.mark.parametrize("kind", KINDS)
def test_the_mean_of_samples_and_of_their_gradients_is_what_eval_computes(kind: Kind) -> None:
    unit = kind(level=0.4)
    x = X.repeat(4000, 1).requires_grad_()
    samples = unit(x)
    (slopes,) = torch.autograd.grad(samples.sum(), x)
    alone = X.clone().requires_grad_()
    mean = unit.eval()(alone)
    (slope,) = torch.autograd.grad(mean.sum(), alone)
    assert ((samples.mean(0) - mean).abs() < 4.5 * samples.std(0) / 4000**0.5 + 1e-3).all()
    assert ((slopes.mean(0) - slope).abs() < 4.5 * slopes.std(0) / 4000**0.5 + 1e-3).all()
    # a sample is binary, or the tangent
    binary = (samples == 1) | (samples == unit.low)
    assert (binary | torch.isclose(samples, unit.tangent(X))).all()
    assert binary[:, 0].double().mean() == pytest.approx(0.6, abs=0.03)  # where the tangent is neither


@pytest.mark.parametrize("kind", KINDS)
def test_the_curve_is_the_gaussian_mollification(kind: Kind) -> None:
    unit = kind(level=0.3, width=0.8, narrowing=0.5)
    sigma = 0.8 * 0.3**0.5
    assert float(unit.sigma) == pytest.approx(sigma)
    z = torch.randn(200_000, dtype=torch.float64)
    for x in (-1.0, 0.2, 0.7):
        draws = torch.where(x - sigma * z >= 0, 1.0, unit.low)
        assert abs(draws.mean() - unit.smooth(torch.tensor(x, dtype=torch.float64))) < 4 * draws.std() / 200_000**0.5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", [0.01, 0.3, 1.0])
def test_gradcheck_of_the_mean(kind: Kind, level: float) -> None:
    unit = kind(level=level).eval()
    assert torch.autograd.gradcheck(unit, torch.randn(6, dtype=torch.float64, requires_grad=True))
    assert torch.autograd.gradgradcheck(unit, torch.randn(6, dtype=torch.float64, requires_grad=True))


def slope(unit: Step | Sign) -> Tensor:
    x = X.clone().requires_grad_()
    out = unit(x)
    return torch.autograd.grad(out.sum(), x)[0] if out.requires_grad else torch.zeros_like(X)


def test_derivatives_at_level_zero() -> None:
    assert not slope(Sign(level=0, hard_gradient="exact")).any()
    weak = slope(Sign(level=0, width=0.5))
    assert torch.allclose(weak, 2 * torch.exp(-0.5 * (X / 0.5) ** 2) / (0.5 * math.sqrt(2 * math.pi)))
    assert float(weak.sum() * (X[1] - X[0])) == pytest.approx(2.0, abs=1e-6)  # all of the jump
    through = slope(Sign(level=0, hard_gradient="straight_through"))
    assert torch.equal(through, (X.abs() <= 1 + 1e-12).double())  # the hard tanh's, as Hubara et al. have it
    through = slope(Step(level=0, hard_gradient="straight_through"))
    assert torch.equal(through, 0.25 * (X.abs() <= 2 + 1e-12).double())


@pytest.mark.parametrize("kind", KINDS)
def test_an_annealer_drives_them_and_a_written_zero_is_the_hard_unit(kind: Kind) -> None:
    model = nn.Sequential(nn.Linear(3, 4), kind(), nn.Linear(4, 4), kind(), nn.Linear(4, 1))
    annealer = mollifier.Annealer(model, "linear", horizon=10)
    for _ in range(5):
        annealer.step()
    assert mollifier.levels(model) == pytest.approx([0.0, 0.5])
    x = torch.linspace(-3.0, 3.0, 7, requires_grad=True)  # 0 is among them
    plain = kind(level=0)(x)
    (slope,) = torch.autograd.grad(plain.sum(), x)
    model[1].known_level = lambda: None  # as on an accelerator, where the host does not look at every level
    for mode in (True, False):
        out = model[1].train(mode)(x)
        assert torch.equal(out, plain)
        assert torch.equal(torch.autograd.grad(out.sum(), x)[0], slope)
    annealer.finish()
    del model[1].known_level
    assert set(model[1](torch.randn(50)).tolist()) == {model[1].low, 1.0}


def test_frozen_noise_copies_blocks_and_pickles() -> None:
    block = MollifiedBlock(nn.Sequential(nn.Linear(3, 5), Step(level=0.5)), 3, 5, level=0.5)
    x = torch.randn(4, 3)
    with mollifier.frozen(block):
        assert torch.equal(block(x), block(x))
    assert not torch.equal(block(x), block(x))
    assert mollifier.levels(block) == [0.5]
    again = pickle.loads(pickle.dumps(block))
    assert torch.equal(again.eval()(x), block.eval()(x))
    assert "hard_gradient='weak', level=0.5" in repr(block)


def test_expected_values_in_training() -> None:
    unit = Step(level=0.3, train_noise="expected")
    assert torch.equal(unit.train()(X), unit.eval()(X))


def test_training_by_vmap_and_under_compile_sees_the_same_function() -> None:
    unit = Step(level=0)
    x = torch.randn(5, 4, requires_grad=True)
    assert torch.equal(torch.func.vmap(unit)(x), unit(x))
    assert torch.equal(
        torch.func.vmap(torch.func.grad(lambda v: unit(v).sum()))(x), torch.autograd.grad(unit(x).sum(), x)[0]
    )


def moons(count: int = 200) -> tuple[Tensor, Tensor]:
    angle = math.pi * torch.rand(count)
    y = torch.arange(count) % 2
    x = torch.stack([angle.cos() * (1 - 2 * y) + y, angle.sin() * (1 - 2 * y) + 0.5 * y], 1)
    return 2 * (x + 0.1 * torch.randn(count, 2)) - torch.tensor([1.0, 0.5]), y.float()[:, None]


def network(**options) -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 16), Sign(**options), nn.Linear(16, 16), Sign(**options), nn.Linear(16, 1))


def errors(model: nn.Module, x: Tensor, y: Tensor) -> float:
    assert all(level == 0 for level in mollifier.levels(model))
    return float(((model.eval()(x) > 0) != (y > 0.5)).float().mean())


def test_a_network_of_binary_units_trains_by_mollification() -> None:
    x, y = moons()
    model = network()
    annealer = mollifier.Annealer(model, horizon=200)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(400):
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        annealer.step(loss)
    assert annealer.finished
    assert errors(model, x, y) < 0.05


def test_a_network_of_binary_units_trains_by_its_weak_gradient_alone() -> None:
    x, y = moons()
    model = network(level=0, hard_gradient="exact")
    loss_fn, parameters = loss_of(model, nn.functional.binary_cross_entropy_with_logits, x, y)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    for _ in range(150):
        gradients, _ = weak_gradient(loss_fn, parameters, 0.2, samples=64)
        for name, parameter in model.named_parameters():
            parameter.grad = gradients[name]
        optimizer.step()
    assert errors(model, x, y) < 0.15  # the best straight line makes about 0.12 to 0.2 errors here


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0.0}, "width=0.0"),
        ({"narrowing": 0.0}, "narrowing=0.0"),
        ({"hard_gradient": "none"}, "hard_gradient='none': expected 'weak'"),
        ({"level": 2.0}, "level 2.0"),
        ({"train_noise": "some"}, "noise 'some'"),
    ],
)
def test_bad_input(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Step(**options)  # type: ignore[arg-type]
