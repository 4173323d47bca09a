"""Multi-layer perceptrons: plain networks, and the architectures they are compared with."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from torch import nn

from mollifier.nn import HardSigmoid, Step
from mollifier_lab.methods import Architecture
from mollifier_lab.models.branches import Highway, Residual, Survival, survivals
from mollifier_lab.models.sparse import SparseInputLinear

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "hard-sigmoid": HardSigmoid,
    "step": partial(Step, level=0.0),
}


def mlp(
    inputs: int,
    outputs: int,
    *,
    width: int,
    depth: int,
    activation: Literal["sigmoid", "tanh", "relu", "hard-sigmoid", "step"] = "sigmoid",
    architecture: Architecture = "plain",
    gain: float = 1.0,
    survival: float = 0.5,
    per_sample: bool = False,
    dropout: float = 0.2,
    sparse: bool = False,
) -> nn.Sequential:
    """Return a network of `depth` hidden layers and a linear output.

        >>> mlp(40, 1, width=100, depth=1)
        Sequential(
          (0): Linear(in_features=40, out_features=100, bias=True)
          (1): Sigmoid()
          (2): Linear(in_features=100, out_features=1, bias=True)
        )

    Without connections around the layers it is flat, so that `mollify` finds its blocks. With connections, each layer is a module; the first
    layer has none, since widths differ there.

    Args:
        inputs: The number of input units.
        outputs: The number of output units.
        width: The number of units of a hidden layer.
        depth: The number of hidden layers.
        activation: The activation of the hidden units.
        architecture: The architecture that is built.
        gain: The gain of the Glorot initialisation of the hidden layers. It is 1 for the output layer and for the gates of highways. Biases are 0.
        survival: The survival probability of the last layer, for stochastic depth.
        per_sample: Whether stochastic depth draws for each sample.
        dropout: The probability of dropout.
        sparse: Whether nearly all inputs are zero. Then the first layer is a `SparseInputLinear`: the same function, but faster.
    """
    chances = survivals(depth - 1, survival, per_sample=per_sample) if architecture == "stochastic-depth" else []
    layers: list[nn.Module] = []
    for number in range(depth):
        body = _layer(inputs if number == 0 else width, width, activation, architecture, gain, dropout)
        if sparse and number == 0:
            SparseInputLinear.of(body[0])
        if architecture in ("plain", "batch-norm", "dropout"):
            layers += body
        else:
            chance = chances[number - 1] if chances and number > 0 else None
            layers.append(_around(nn.Sequential(*body), width, architecture, number == 0, chance))
    return nn.Sequential(*layers, linear(width if depth else inputs, outputs))


def linear(inputs: int, outputs: int, gain: float = 1.0) -> nn.Linear:
    """Return a linear layer with Glorot's weights and biases of 0."""
    layer = nn.Linear(inputs, outputs)
    nn.init.xavier_uniform_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def _layer(
    inputs: int, width: int, activation: str, architecture: Architecture, gain: float, dropout: float
) -> list[nn.Module]:
    norm = [nn.BatchNorm1d(width)] if architecture in ("batch-norm", "residual-bn") else []
    drop = [nn.Dropout(dropout)] if architecture == "dropout" else []
    return [linear(inputs, width, gain), *norm, ACTIVATIONS[activation](), *drop]


def _around(
    body: nn.Sequential, width: int, architecture: Architecture, first: bool, survival: Survival | None
) -> nn.Module:
    if first:
        return body
    return Highway(body, width) if architecture == "highway" else Residual(body, survival)
