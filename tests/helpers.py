"""Small models, and a way to see that nothing about one has changed."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from mollifier import ops
from mollifier.functional import normal_like
from mollifier.ops._operator import native


def mlp(*widths: int, activation: type[nn.Module] = nn.Sigmoid) -> nn.Sequential:
    """Linear layers with activations between them: mlp(4, 6, 2) has one hidden layer."""
    layers: list[nn.Module] = []
    for below, above in pairwise(widths):
        layers += [nn.Linear(below, above), activation()]
    return nn.Sequential(*layers[:-1])


class BasicBlock(nn.Module):
    """The usual residual block."""

    def __init__(self, below: int, above: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(below, above, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(above)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(above, above, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(above)
        self.downsample: nn.Module | None = None
        if stride != 1 or below != above:
            self.downsample = nn.Sequential(nn.Conv2d(below, above, 1, stride, bias=False), nn.BatchNorm2d(above))

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


def snapshot(model: nn.Module) -> dict[str, Any]:
    """Everything that a conversion could change: classes, attributes, hooks, modes, tensors and their identity."""
    return {
        name or "(root)": (
            type(module),
            sorted(module.__dict__),
            list(module._modules),
            {key: len(value) for key, value in module.__dict__.items() if key.endswith("_hooks")},
            module.training,
            {key: id(value) for key, value in module._parameters.items()},
            {key: id(value) for key, value in module._buffers.items()},
            {key: value.tolist() for key, value in module.state_dict().items() if not value.is_meta},
            {key: value for key, value in vars(module).items() if callable(value)},
        )
        for name, module in model.named_modules(remove_duplicate=False)
    }


def doubles(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def normal_drawn(x: Tensor) -> Tensor:
    """The |ξ| that a module draws for x from here on, by whatever backend serves."""
    if native(x):
        return ops.noise(ops.draw_seeds(1), x.numel())[0].to(x.dtype).view_as(x)
    return normal_like(x).abs()
