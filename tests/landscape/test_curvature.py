"""Lanczos and Hutchinson against the dense Hessian, and the curvature along the level."""

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy, mse_loss

import mollifier
from mollifier import landscape
from tests.helpers import mlp

Data = tuple[Tensor, Tensor]


def dense(model: nn.Module, criterion, x: Tensor, y: Tensor) -> Tensor:
    names = dict(model.named_parameters())
    sizes = [p.numel() for p in names.values()]
    flat = torch.cat([p.detach().flatten() for p in names.values()])

    def loss(v: Tensor) -> Tensor:
        parts = {n: q.view_as(p) for (n, p), q in zip(names.items(), v.split(sizes), strict=True)}
        return criterion(functional_call(model, parts, x), y)

    return torch.autograd.functional.hessian(loss, flat)


def regression(inputs: int = 3) -> Data:
    return torch.randn(30, inputs).double(), torch.randn(30, 1).double()


@pytest.mark.parametrize("activation", [nn.Tanh, nn.Sigmoid, nn.SiLU])
@pytest.mark.parametrize("chunk", [None, 7])
def test_lanczos_finds_the_ends_of_the_dense_spectrum(activation: type[nn.Module], chunk: int | None) -> None:
    model = mlp(3, 6, 5, 1, activation=activation).double()
    x, y = regression()
    eigenvalues = torch.linalg.eigvalsh(dense(model, mse_loss, x, y))
    found = landscape.extremes(landscape.objective(model, mse_loss, x, y, chunk=chunk))
    assert found.smallest == pytest.approx(float(eigenvalues[0]), abs=1e-4)
    assert found.largest == pytest.approx(float(eigenvalues[-1]), abs=1e-4)
    assert abs(found.smallest - float(eigenvalues[0])) <= found.error + 1e-9
    assert eigenvalues[0] < -1e-3  # so that a wrong sign would show


def test_lanczos_on_a_classifier_of_images() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(18, 3)).double()
    x, y = torch.randn(12, 1, 5, 5).double(), torch.randint(3, (12,))
    eigenvalues = torch.linalg.eigvalsh(dense(model, cross_entropy, x, y))
    found = landscape.extremes(landscape.objective(model, cross_entropy, x, y))
    assert found.smallest == pytest.approx(float(eigenvalues[0]), abs=1e-4)
    assert found.largest == pytest.approx(float(eigenvalues[-1]), abs=1e-4)


def test_lanczos_stops_early_and_says_how_far_it_is() -> None:
    model = mlp(3, 6, 5, 1, activation=nn.Tanh).double()
    loss = landscape.objective(model, mse_loss, *regression())
    rough, good = landscape.extremes(loss, iterations=4), landscape.extremes(loss)
    assert rough.products == 4
    assert rough.error > 1e-4 > good.error
    assert good.products < loss.size
    # Ritz values lie inside the spectrum
    assert good.smallest <= rough.smallest <= rough.largest <= good.largest


def test_lanczos_keeps_its_vectors_orthogonal_where_plain_lanczos_finds_ghosts() -> None:
    # one eigenvalue far from all others: without re-orthogonalisation the matrix fills with copies of it
    class Diagonal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.zeros(80, dtype=torch.float64))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.w

    curvature = torch.cat([torch.linspace(-0.01, 1, 79), torch.tensor([1e4])]).double()
    loss = landscape.objective(
        Diagonal(),
        lambda out, y: 0.5 * (curvature * out.square()).sum(1).mean(),
        torch.ones(1, 80).double(),
        torch.ones(1),
    )
    found = landscape.extremes(loss, iterations=80, tolerance=0.0)
    assert found.largest == pytest.approx(1e4, rel=1e-12)
    assert found.smallest == pytest.approx(-0.01, abs=1e-6)


def test_hutchinson_is_unbiased_and_knows_its_error() -> None:
    model = mlp(3, 6, 1, activation=nn.Tanh).double()
    x, y = regression()
    exact = float(dense(model, mse_loss, x, y).trace())
    found = landscape.trace(landscape.objective(model, mse_loss, x, y, chunk=16), samples=200)
    assert abs(found.value - exact) < 4 * found.error
    assert 0 < found.error < 0.2 * abs(exact)


def test_products_are_those_of_the_hessian_and_symmetric() -> None:
    model = mlp(3, 4, 1, activation=nn.Tanh).double()
    x, y = regression()
    product = landscape.hessian_product(landscape.objective(model, mse_loss, x, y, chunk=8))
    matrix = dense(model, mse_loss, x, y)
    v, w = torch.randn(2, len(matrix)).double()
    assert torch.allclose(product(v), matrix @ v, atol=1e-12)
    assert torch.allclose(v @ product(w), w @ product(v))


def test_convex_at_level_one_and_not_at_level_zero_on_the_same_deep_net_and_data() -> None:
    model = mollifier.mollify(mlp(6, 8, 8, 8, 8, 1)).double().eval()
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_normal_(layer.weight, 4.0)
    x, y = torch.randn(60, 6).double(), torch.randint(2, (60, 1)).double()
    criterion = nn.functional.binary_cross_entropy_with_logits
    before = mollifier.levels(model)
    table = landscape.curvatures(model, criterion, x, y, levels=(1.0, 0.5, 0.0), samples=4)
    assert [row.level for row in table] == [1.0, 0.5, 0.0]
    assert table[0].extremes.smallest >= -1e-6
    assert table[0].extremes.largest > 0.01
    assert table[2].extremes.smallest < -1e-3
    assert all(row.loss > 0 and row.trace.error >= 0 for row in table)
    assert mollifier.levels(model) == before


def test_levels_come_back_also_after_an_error() -> None:
    model = mollifier.mollify(mlp(2, 4, 1)).eval()
    mollifier.set_level(model, 0.3)
    with pytest.raises(ValueError, match="points=1"):
        landscape.surfaces(model, mse_loss, torch.randn(5, 2), torch.randn(5, 1), points=1)
    with pytest.raises(ValueError, match="samples=1"):
        landscape.curvatures(model, mse_loss, torch.randn(5, 2), torch.randn(5, 1), samples=1)
    assert mollifier.levels(model) == [0.3]


def test_frozen_noise_makes_a_function_of_a_model_in_training() -> None:
    model = mollifier.mollify(mlp(3, 5, 1)).double()
    x, y = regression()
    mollifier.set_level(model, 0.5)
    with pytest.raises(ValueError, match=r"model\.eval\(\), or use mollifier.frozen"):
        landscape.objective(model, mse_loss, x, y)
    with mollifier.frozen(model):
        eigenvalues = torch.linalg.eigvalsh(dense(model, mse_loss, x, y))
        loss = landscape.objective(model, mse_loss, x, y)
        found = landscape.extremes(loss)
        values = landscape.surface(loss, [landscape.filter_direction(loss.parameters)], points=5).values
        assert values[2] == pytest.approx(float(loss()))
    assert found.smallest == pytest.approx(float(eigenvalues[0]), abs=1e-4)


def test_bad_input() -> None:
    model, x, y = nn.Linear(3, 1).double(), *regression()
    with pytest.raises(ValueError, match="expected inputs and target"):
        landscape.objective(model, mse_loss, x)
    with pytest.raises(ValueError, match="with the examples as its first dimension"):
        landscape.objective(model, mse_loss, x, y[:4])
    with pytest.raises(ValueError, match="chunk=0"):
        landscape.objective(model, mse_loss, x, y, chunk=0)
    with pytest.raises(ValueError, match="the loss is nan"):
        landscape.objective(model, mse_loss, x, y * float("nan"))
    loss = landscape.objective(model, mse_loss, x, y)
    with pytest.raises(ValueError, match="iterations=0"):
        landscape.extremes(loss, iterations=0)
    with pytest.raises(ValueError, match="samples=1"):
        landscape.trace(loss, samples=1)


def test_generators_make_it_reproducible() -> None:
    loss = landscape.objective(mlp(3, 4, 1), mse_loss, torch.randn(9, 3), torch.randn(9, 1))

    def run(seed: int) -> tuple[float, float]:
        g = Generator().manual_seed(seed)
        return landscape.extremes(loss, iterations=3, generator=g).largest, landscape.trace(
            loss, samples=3, generator=g
        ).value

    assert run(1) == run(1)
    assert run(1) != run(2)
