"""Noise on the weights: its moments, its level, and how it comes and goes."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import mollifier
from mollifier.nn import Annealed, WeightNoise, remove_weight_noise, weight_noise
from tests.helpers import mlp, snapshot


def draws(module: WeightNoise, weight: torch.Tensor, count: int = 2000) -> torch.Tensor:
    return torch.stack([module(weight) for _ in range(count)])


@pytest.mark.parametrize("level", [1.0, 0.5])
@pytest.mark.parametrize("mean", [0.0, 0.3])
def test_it_has_the_stated_mean_and_variance_scaled_by_the_level(level, mean):
    weight = torch.randn(4, 5, dtype=torch.float64)
    noise = weight - draws(WeightNoise(0.2, mean, level=level), weight)
    count = noise.numel()
    assert float(noise.mean()) == pytest.approx(level * mean, abs=5 * 0.2 * level / math.sqrt(count))
    assert float(noise.std()) == pytest.approx(level * 0.2, rel=5 / math.sqrt(2 * count))


def test_eval_and_level_0_are_plain():
    weight = torch.randn(4, 5)
    noise = WeightNoise(0.2)
    assert noise.eval()(weight) is weight
    noise.train().set_level(0)
    assert noise(weight) is weight


def test_it_keeps_the_dtype_and_lets_gradients_through():
    weight = torch.randn(4, 5, dtype=torch.bfloat16, requires_grad=True)
    out = WeightNoise(0.2)(weight)
    assert out.dtype == torch.bfloat16
    out.sum().backward()
    assert torch.equal(weight.grad, torch.ones_like(weight))


def test_frozen_noise():
    net = weight_noise(mlp(3, 4, 1), std=0.5)
    x = torch.randn(6, 3)
    assert not torch.equal(net(x), net(x))
    with mollifier.frozen(net):
        assert torch.equal(net(x), net(x))


def test_it_goes_on_linear_and_convolutional_layers_and_comes_off_again():
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3), nn.LayerNorm(3))
    x = torch.randn(2, 1, 4, 4)
    before, plain = snapshot(net), net(x)
    assert weight_noise(net, std=0.1) is net
    noisy = [name for name, module in net.named_modules() if isinstance(module, WeightNoise)]
    assert noisy == ["0.parametrizations.weight.0", "3.parametrizations.weight.0"]
    assert not torch.equal(net(x), plain)
    assert torch.equal(net.eval()(x), plain)
    assert remove_weight_noise(net.train()) is net
    assert torch.equal(net(x), plain)
    after = snapshot(net)
    # torch's parametrize puts a parameter back at the end of its module: the same objects under the same keys
    assert {name: (row[0], row[5]) for name, row in after.items()} == {n: (row[0], row[5]) for n, row in before.items()}


def test_a_saved_optimiser_goes_on_training_the_same_parameters():
    net = mlp(3, 4, 1)
    weight = net[0].weight
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    weight_noise(net, std=0.1)
    net(torch.randn(6, 3)).sum().backward()
    old = weight.detach().clone()
    optimizer.step()
    remove_weight_noise(net)
    assert net[0].weight is weight
    assert not torch.equal(weight, old)


def test_an_annealer_drives_it():
    net = weight_noise(mlp(3, 4, 4, 1), std=0.1)
    annealer = mollifier.Annealer(net, "linear", horizon=10)
    assert len(annealer.levels) == 3
    annealer.step(0.7)
    assert mollifier.levels(net) == pytest.approx([0.7, 0.85, 0.9])
    annealer.finish()
    assert not any(part.active for part in net.modules() if isinstance(part, Annealed))


def test_assigning_to_the_weight_sets_it():
    layer = nn.Linear(3, 2)
    parametrize.register_parametrization(layer, "weight", WeightNoise(0.1))
    layer.weight = torch.ones(2, 3)
    assert torch.equal(layer.eval().weight, torch.ones(2, 3))


def test_other_parametrizations_stay_when_it_is_taken_away():
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    nn.utils.parametrizations.orthogonal(net[0])
    weight_noise(net[1], std=0.1)
    remove_weight_noise(net)
    assert parametrize.is_parametrized(net[0])
    assert not parametrize.is_parametrized(net[1])


def test_what_cannot_be_noisy_is_refused_and_left_alone():
    with pytest.raises(ValueError, match=r"std=-1: expected a number >= 0"):
        WeightNoise(-1)
    with pytest.raises(ValueError, match=r"the model has no nn.Linear and no convolution"):
        weight_noise(nn.ReLU(), std=0.1)
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    weight_noise(net[1], std=0.1)
    before = copy.deepcopy(list(net.state_dict()))
    with pytest.raises(ValueError, match=r"the weight of '1' is parametrized already"):
        weight_noise(net, std=0.1)
    assert list(net.state_dict()) == before
    with pytest.raises(ValueError, match=r"std=-1"):
        weight_noise(nn.Linear(3, 3), std=-1)
