"""Multi-layer perceptrons, plain and with what is compared."""

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
    """A network of `depth` hidden layers and a linear output.

        >>> mlp(40, 1, width=100, depth=1)
        Sequential(
          (0): Linear(in_features=40, out_features=100, bias=True)
          (1): Sigmoid()
          (2): Linear(in_features=100, out_features=1, bias=True)
        )

    Without a way around the layers it is flat, so that `mollify` finds its blocks. With one, each layer is a module; the first
    has no way around, since widths differ there.

    Args:
        inputs: Units of the input.
        outputs: Units of the output.
        width: Units of a hidden layer.
        depth: Hidden layers.
        activation: Of the hidden units.
        architecture: What is built.
        gain: Of the Glorot initialisation of the hidden layers; the output layer, and the gates of highways, have 1. Biases are 0.
        survival: Of the last layer, for stochastic depth.
        per_sample: Stochastic depth draws for each sample.
        dropout: Probability, for dropout.
        sparse: Are nearly all inputs zero? Then the first layer is a `SparseInputLinear`: the same function, quicker.
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
    """A linear layer with Glorot's weights and no biases."""
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
