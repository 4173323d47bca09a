from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import mollifier
from mollifier_lab.models import mlp

SIZES = {"width": 6, "depth": 4}
X = torch.linspace(-1, 1, 20).view(5, 4)


def linears(model: nn.Module) -> list[nn.Linear]:
    """Of the layers themselves, without gates."""
    return [part for name, part in model.named_modules() if isinstance(part, nn.Linear) and "gate" not in name]


def test_plain() -> None:
    model = mlp(4, 2, **SIZES)
    h = X
    for layer in linears(model)[:-1]:
        h = torch.sigmoid(h @ layer.weight.T + layer.bias)
    torch.testing.assert_close(model(X), linears(model)[-1](h))
    assert len(linears(model)) == 5
    assert all(type(part) in (nn.Linear, nn.Sigmoid) for part in model)  # flat: mollify and its kernels see all of it
    assert len(mollifier.levels(mollifier.mollify(model))) == 4


def test_residual_goes_around_all_hidden_layers_but_the_first() -> None:
    model = mlp(4, 2, **SIZES, architecture="residual", activation="tanh")
    first, *hidden, last = linears(model)
    h = torch.tanh(first(X))
    for layer in hidden:
        h = h + torch.tanh(layer(h))
    torch.testing.assert_close(model(X), last(h))


@pytest.mark.parametrize("architecture", ["batch-norm", "residual-bn"])
def test_batch_norm_stands_before_the_activation(architecture: str) -> None:
    model = mlp(4, 2, **SIZES, architecture=architecture, activation="relu")
    h = X
    for number, layer in enumerate(linears(model)[:-1]):
        z = layer(h)
        out = ((z - z.mean(0)) / (z.var(0, unbiased=False) + 1e-5).sqrt()).relu()
        h = h + out if architecture == "residual-bn" and number else out
    torch.testing.assert_close(model(X), linears(model)[-1](h), atol=1e-5, rtol=1e-4)


def test_highway_starts_near_the_identity() -> None:
    model = mlp(4, 2, **SIZES, architecture="highway")
    first, *hidden, last = linears(model)
    h = torch.sigmoid(first(X))
    for layer, highway in zip(hidden, model[1:-1], strict=True):
        gate = torch.sigmoid(highway.gate(h))
        assert gate.mean() < 0.2
        h = gate * torch.sigmoid(layer(h)) + (1 - gate) * h
    torch.testing.assert_close(model(X), last(h))


def test_stochastic_depth_in_eval_and_its_probabilities() -> None:
    model = mlp(4, 2, **SIZES, architecture="stochastic-depth", survival=0.4, per_sample=True).eval()
    first, *hidden, last = linears(model)
    h = torch.sigmoid(first(X))
    for layer, chance in zip(hidden, (0.8, 0.6, 0.4), strict=True):
        h = h + chance * torch.sigmoid(layer(h))
    torch.testing.assert_close(model(X), last(h))
    assert all(part.survival.per_sample for part in model[1:-1])


def test_stochastic_depth_leaves_no_parameter_without_a_gradient() -> None:
    model = mlp(4, 2, **SIZES, architecture="stochastic-depth", survival=1e-9)
    model(X).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_stochastic_depth_under_ddp(process_group: None) -> None:
    model = mlp(4, 2, **SIZES, architecture="stochastic-depth", survival=0.2)
    parallel = nn.parallel.DistributedDataParallel(model)
    for _ in range(5):  # the next forward finds out if a gradient was missing
        parallel(X).sum().backward()


def test_dropout_follows_each_activation() -> None:
    model = mlp(4, 2, **SIZES, architecture="dropout", dropout=0.3)
    assert [type(part) for part in model[:3]] == [nn.Linear, nn.Sigmoid, nn.Dropout]
    assert [part.p for part in model if isinstance(part, nn.Dropout)] == [0.3] * 4
    plain = nn.Sequential(*(part for part in model if not isinstance(part, nn.Dropout)))
    assert torch.equal(model.eval()(X), plain(X))


def test_glorot_with_a_gain_on_hidden_weights() -> None:
    model = mlp(30, 20, width=100, depth=3, gain=4.0, architecture="highway")
    *hidden, last = linears(model)
    for layer, gain in [*((each, 4.0) for each in hidden), (last, 1.0), (model[1].gate, 1.0)]:
        bound = gain * math.sqrt(6 / sum(layer.weight.shape))
        assert 0.95 * bound < layer.weight.abs().max() <= bound
    assert not any(layer.bias.any() for layer in linears(model))
