"""The networks and steps that are timed."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

import mollifier
from mollifier.nn.copy import Projection

Step = Callable[[], object]


def mlp(inputs: int, width: int = 200, depth: int = 6, dropout: bool = False) -> nn.Sequential:
    """Sigmoid layers and a linear one; the first layer stands apart, so that the others can be mollified alone."""
    hidden: list[nn.Module] = []
    for _ in range(depth - 1):
        hidden += [nn.Linear(width, width), nn.Sigmoid()] + [nn.Dropout(0.5)] * dropout
    first = [nn.Linear(inputs, width), nn.Sigmoid()] + [nn.Dropout(0.5)] * dropout
    return nn.Sequential(nn.Sequential(*first), nn.Sequential(*hidden), nn.Linear(width, 1))


def mollified(model: nn.Sequential, whole: bool = True, projection: Projection = "learned") -> nn.Sequential:
    """All layers, or all but the first."""
    model = copy.deepcopy(model)
    if whole:
        return mollifier.mollify(nn.Sequential(*model[0], *model[1], model[2]), projection=projection)
    model[1] = mollifier.mollify(model[1], output=True)  # a hidden layer is the last one in there
    return model


def training(model: nn.Module, inputs: int, batch: int = 128) -> Step:
    """One step of training: forward, backward, momentum."""
    x, y = torch.randn(batch, inputs), torch.rand(batch, 1).round()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True)
    loss_of = nn.BCEWithLogitsLoss()

    def step() -> None:
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()

    return step


class going:  # noqa: N801
    """A step as in the midst of training: one goes before, while the clock stands."""

    def __init__(self, step: Step) -> None:
        self.step = step

    def prepare(self) -> None:
        self.step()

    def __call__(self) -> None:
        self.step()


class at(going):  # noqa: N801
    """The same at this level."""

    def __init__(self, level: float, model: nn.Module, step: Step) -> None:
        super().__init__(step)
        self.level, self.model = level, model

    def prepare(self) -> None:
        mollifier.set_level(self.model, self.level)
        super().prepare()


def sequence(module: nn.Module, size: int, steps: int, batch: int) -> Step:
    """Forward and backward through a recurrent stack."""
    x = torch.randn(steps, batch, size, requires_grad=True)
    grad = torch.randn(steps, batch, size)

    def run() -> None:
        module.zero_grad()
        module(x)[0].backward(grad)

    return run


class DropPath(nn.Module):
    """The usual two lines of stochastic depth, as a yardstick."""

    def forward(self, x: Tensor) -> Tensor:
        keep = torch.rand(len(x), *[1] * (x.dim() - 1)) < 0.5
        return x * keep / 0.5
