"""Surfaces: what is on them, and what they are drawn with."""

import sys

import pytest
import torch
from torch import Generator, nn
from torch.nn.functional import mse_loss

import mollifier
from mollifier import landscape
from tests.helpers import mlp


def test_directions_have_the_norm_of_the_parameters_filter_by_filter() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(36, 5))
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    direction = landscape.filter_direction(parameters)
    for name, value in parameters.items():
        if value.dim() > 1:
            assert torch.allclose(direction[name].flatten(1).norm(dim=1), value.flatten(1).norm(dim=1))
        else:
            assert not direction[name].any()
    moved = landscape.filter_direction(parameters, vectors=True)
    assert torch.allclose(moved["0.bias"].norm(), parameters["0.bias"].norm())


def test_scaling_a_layer_up_and_the_next_down_leaves_the_surface() -> None:
    # what the normalisation is for: a ReLU network is the same function, and gets the same picture
    model = mlp(3, 8, 1, activation=nn.ReLU).double()
    for layer in (model[0], model[2]):
        nn.init.zeros_(layer.bias)
    x, y = torch.randn(20, 3).double(), torch.randn(20, 1).double()

    def picture() -> torch.Tensor:
        loss = landscape.objective(model, mse_loss, x, y)
        way = landscape.filter_direction(loss.parameters, generator=Generator().manual_seed(1))
        return landscape.surface(loss, [way], points=9).values

    before = picture()
    with torch.no_grad():
        model[0].weight.mul_(10)
        model[2].weight.div_(10)
    assert torch.allclose(picture(), before, rtol=1e-10)


@pytest.mark.parametrize("at_once", [1, 7, None])
@pytest.mark.parametrize("chunk", [4, None])
def test_a_plane_holds_the_loss_at_its_points(at_once: int | None, chunk: int | None) -> None:
    model = mlp(3, 4, 1, activation=nn.Tanh).double()
    x, y = torch.randn(10, 3).double(), torch.randn(10, 1).double()
    loss = landscape.objective(model, mse_loss, x, y, chunk=chunk)
    first, second = (landscape.filter_direction(loss.parameters) for _ in range(2))
    found = landscape.surface(loss, [first, second], span=0.5, points=5, at_once=at_once)
    assert found.values.shape == (5, 5)
    assert found.axis.tolist() == [-0.5, -0.25, 0.0, 0.25, 0.5]
    with torch.no_grad():
        assert found.values[2, 2] == pytest.approx(float(mse_loss(model(x), y)))
        for name, p in model.named_parameters():
            p += 0.5 * first[name] - 0.25 * second[name]
        assert found.values[4, 1] == pytest.approx(float(mse_loss(model(x), y)))


def test_the_parameters_and_gradients_of_the_model_are_not_touched() -> None:
    model = mollifier.mollify(mlp(3, 4, 1)).eval()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    landscape.surfaces(model, mse_loss, torch.randn(6, 3), torch.randn(6, 1), levels=(1.0, 0.0), points=3)
    assert all(torch.equal(p, before[name]) and p.grad is None for name, p in model.named_parameters())


def test_surfaces_at_levels_lie_on_the_same_plane_and_get_convex() -> None:
    model = mollifier.mollify(mlp(2, 6, 6, 1, activation=nn.Tanh)).double().eval()
    x, y = torch.randn(20, 2).double(), torch.randn(20, 1).double()
    found = landscape.surfaces(model, mse_loss, x, y, levels=(1.0, 0.0), directions=1, span=3.0, points=41)
    bends = [one.values[2:] - 2 * one.values[1:-1] + one.values[:-2] for one in found]
    assert (bends[0] >= -1e-12).all()
    assert (bends[1] < -1e-4).any()
    ways = [landscape.filter_direction({n: p.detach() for n, p in model.named_parameters()}) for _ in range(2)]
    twice = [
        landscape.surfaces(model, mse_loss, x, y, levels=(0.5,), directions=ways, points=3)[0].values for _ in range(2)
    ]
    assert torch.equal(*twice)


def test_figures_of_a_line_and_a_plane() -> None:
    axis = torch.linspace(-1, 1, 5)
    line = landscape.Surface(axis, axis.square(), level=0.5).figure(color="red")
    assert line.axes[0].lines[0].get_ydata().tolist() == axis.square().tolist()
    assert line.axes[0].get_title() == "level 0.5"
    plane = landscape.Surface(axis, axis[:, None] * axis).figure()
    assert plane.axes[0].get_xlabel() == "first direction"
    assert plane.axes[0].collections


def test_progress_bars_are_shown_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    loss = landscape.objective(nn.Linear(2, 1), mse_loss, torch.randn(4, 2), torch.randn(4, 1))
    way = [landscape.filter_direction(loss.parameters)]
    landscape.surface(loss, way, points=3)
    assert capsys.readouterr().out == ""
    landscape.surface(loss, way, points=3, progress=True)
    landscape.extremes(loss, progress=True)
    landscape.trace(loss, samples=2, progress=True)
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("surface", "Lanczos", "Hutchinson"))


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("matplotlib", "matplotlib.figure", "rich", "rich.progress"):
        monkeypatch.setitem(sys.modules, name, None)  # importing it now raises
    found = landscape.Surface(torch.zeros(2), torch.zeros(2))
    with pytest.raises(ImportError, match=r"needs matplotlib.*pip install 'mollifier\[lab\]'"):
        found.figure()
    loss = landscape.objective(nn.Linear(2, 1), mse_loss, torch.randn(4, 2), torch.randn(4, 1))
    with pytest.raises(ImportError, match=r"needs rich.*pip install 'mollifier\[lab\]'"):
        landscape.trace(loss, samples=2, progress=True)
    assert landscape.trace(loss, samples=2).value > 0  # all else works without


def test_bad_input() -> None:
    loss = landscape.objective(nn.Linear(2, 1), mse_loss, torch.randn(4, 2), torch.randn(4, 1))
    way = landscape.filter_direction(loss.parameters)
    with pytest.raises(ValueError, match="3 directions"):
        landscape.surface(loss, [way] * 3)
    with pytest.raises(ValueError, match="span=0"):
        landscape.surface(loss, [way], span=0)
