"""Activations tailored by Deep Kernel Shaping."""

from __future__ import annotations

import copy
import sys

import pytest
import torch
from torch import nn

from mollifier_lab.errors import LabError
from mollifier_lab.models import mlp
from mollifier_lab.models.tailored import Tailored, _tailor, tailor


@pytest.mark.parametrize("activation", ["sigmoid", "tanh"])
def test_two_inputs_stay_apart_through_a_hundred_layers(activation: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(100, 100)
    tailored, plain = (mlp(100, 1, width=100, depth=100, activation=activation) for _ in range(2))
    tailor(tailored, x)
    with torch.no_grad():
        spread = [float(model[:-1](x).std(dim=0).mean()) for model in (tailored, plain)]
    assert 0.3 < spread[0] < 1.5
    assert spread[1] < 0.2  # sigmoid: all samples look the same; tanh: the signal has shrunk


def test_the_gradient_reaches_the_first_layer() -> None:
    torch.manual_seed(0)
    x = torch.rand(64, 50)
    model = mlp(50, 1, width=50, depth=60)
    tailor(model, x)
    model(x).square().mean().backward()
    first, last = (float(model[number].weight.grad.norm()) for number in (0, -3))
    assert 0.05 < first / last < 20


def test_with_its_constants_in_the_layers_around_it_the_network_is_a_plain_one() -> None:
    """γ (f(α x + β) + δ) is found from its values, and moved into the weights below and above."""
    torch.manual_seed(0)
    x = torch.rand(20, 8, dtype=torch.float64)
    model = mlp(8, 2, width=8, depth=2).double()
    tailor(model, x)
    unit = model[1]
    low, high = (unit(torch.tensor(value, dtype=torch.float64)) for value in (-1e4, 1e4))
    scale, shift = high - low, low  # of a sigmoid, which goes from 0 to 1
    logits = torch.logit((unit(torch.tensor([0.0, 1.0], dtype=torch.float64)) - shift) / scale)
    alpha, beta = logits[1] - logits[0], logits[0]
    plain = mlp(8, 2, width=8, depth=2).double()
    with torch.no_grad():
        for number, (own, other) in enumerate(zip(model, plain, strict=True)):
            if not isinstance(own, nn.Linear):
                continue
            below = (1.0, 0.0) if number == 0 else (scale, shift)
            above = (1.0, 0.0) if number == len(model) - 1 else (alpha, beta)
            other.weight.copy_(above[0] * own.weight * below[0])
            other.bias.copy_(above[0] * (own.bias + below[1] * own.weight.sum(1)) + above[1])
    torch.testing.assert_close(plain(x), model(x))


def test_it_can_be_copied() -> None:
    unit = Tailored(nn.Tanh(), 10)
    x = torch.randn(5)
    assert torch.equal(copy.deepcopy(unit)(x), unit(x))


def test_other_networks_are_refused() -> None:
    x = torch.rand(4, 4)
    with pytest.raises(LabError, match="a plain network; this has Linear, ReLU"):
        tailor(mlp(4, 1, width=4, depth=2, activation="relu"), x)
    with pytest.raises(LabError, match="this has Sequential, Residual, Linear"):
        tailor(mlp(4, 1, width=4, depth=2, architecture="residual"), x)
    with pytest.raises(LabError, match="ReLU: it is for smooth activations"):
        Tailored(nn.ReLU(), 3)


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    _tailor.cache_clear()
    monkeypatch.setitem(sys.modules, "dks.pytorch.activation_transform", None)
    with pytest.raises(LabError, match=r"mollifier\[frontier\]"):
        Tailored(nn.Sigmoid(), 3)
