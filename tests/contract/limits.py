"""What the kinds of the table compute at level 1 in eval, written with slices, sums and the models' own output layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import mollifier
from mollifier.nn import FixedProjection

Limit = Callable[[Any, Tensor], Tensor]


def pad(x: Tensor, units: int, dim: int = 1) -> Tensor:
    """Zeros for the units that the layer below does not have."""
    shape = list(x.shape)
    shape[dim] = units - shape[dim]
    return torch.cat([x, x.new_zeros(shape)], dim)


def halve(x: Tensor) -> Tensor:
    """Each pixel the mean of two in every spatial dimension."""
    for dim in range(2, x.dim()):
        x = 0.5 * (x.unfold(dim, 2, 2)[..., 0] + x.unfold(dim, 2, 2)[..., 1])
    return x


def matrix(projection: Any) -> Tensor:
    """The matrix of a projection, learned or fixed; of the fixed one row j has every n-th weight, from the j-th on."""
    if isinstance(projection, FixedProjection):
        found = projection.weight.new_zeros(projection.out_units, projection.in_units)
        for row in range(projection.out_units):
            found[row, row :: projection.out_units] = projection.weight[row :: projection.out_units]
        return found
    return projection.weight.flatten(1)


def resnet(model: Any, x: Tensor) -> Tensor:
    return model.fc(pad(halve(halve(x)), 16).mean((2, 3)))


def vgg(model: Any, x: Tensor) -> Tensor:
    pooled = F.max_pool2d(pad(F.max_pool2d(pad(x, 4), 2), 8), 2).flatten(1)
    return model.classifier[3](pooled @ matrix(model.classifier.get_submodule("1._mollifier.ends.0.copy.projection")).T)


def gpt2(model: Any, tokens: Tensor) -> Tensor:
    body = model.transformer
    return model.lm_head(body.ln_f(body.wte(tokens) + body.wpe.weight[: tokens.shape[1]]))


def convolutions(model: Any, x: Tensor) -> Tensor:
    weight = matrix(model.get_submodule("6._mollifier.ends.0.copy.projection"))
    return torch.einsum("oi,bi...->bo...", weight, halve(pad(halve(x), 4)))


def projected(*runs: int) -> Limit:
    def limit(model: Any, x: Tensor) -> Tensor:
        for run in runs:
            x = x @ matrix(model.get_submodule(f"{run}._mollifier.ends.0.copy.projection")).T
        return model[-1](x)

    return limit


def by_hand(model: Any, x: Tensor) -> Tensor:
    return model[-1](pad(x, 8) @ matrix(model[1].copy.projection).T)


def alone(model: Any, x: Tensor) -> Tensor:
    act = model.get_submodule("act._mollifier.noise")
    return model.fc2(
        mollifier.functional.noisy_activation(3.0 * model.fc1(x), "tanh", level=1.0, a=act.a, noise="expected")
    )


def functional(model: Any, x: Tensor) -> Tensor:
    fc2 = matrix(model.get_submodule("_mollifier.ends.2.copy.projection"))
    return model.head(pad(halve(x), 4).flatten(1) @ fc2.T)
