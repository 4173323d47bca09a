"""Small plain networks to be mollified. They do not depend on mollifier, and can be imported, so that pickle finds them."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def mlp(*widths: int, activation: type[nn.Module] = nn.Sigmoid) -> nn.Sequential:
    """Linear and activation by turns, and a linear output layer."""
    layers: list[nn.Module] = []
    for i, o in pairwise(widths[:-1]):
        layers += [nn.Linear(i, o), activation()]
    return nn.Sequential(*layers, nn.Linear(widths[-2], widths[-1]))


class ZeroPadShortcut(nn.Module):
    """Option A of the ResNet paper: every second pixel, and zeros for the new channels."""

    def __init__(self, new_channels: int, stride: int) -> None:
        super().__init__()
        self.new_channels, self.stride = new_channels, stride

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.new_channels))


class BasicBlock(nn.Module):
    """conv-bn-relu-conv-bn + shortcut, then relu: two activation modules."""

    def __init__(self, i: int, o: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1, self.bn1, self.relu1 = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU()
        self.conv2, self.bn2, self.relu2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU()
        self.shortcut = nn.Identity() if stride == 1 and i == o else ZeroPadShortcut(o - i, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu1(self.bn1(self.conv1(x)))
        return self.relu2(self.bn2(self.conv2(out)) + self.shortcut(x))


class ResNet20(nn.Module):
    """He et al.'s ResNet-20 for CIFAR: a stem and three stages of three blocks; narrower here."""

    def __init__(self, width: int = 4, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        widths, stages, below = (width, 2 * width, 4 * width), [], width
        for w in widths:
            stages.append(nn.Sequential(BasicBlock(below, w, w // below), BasicBlock(w, w), BasicBlock(w, w)))
            below = w
        self.layer1, self.layer2, self.layer3 = stages
        self.fc = nn.Linear(below, classes)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer3(self.layer2(self.layer1(self.stem(x))))
        return self.fc(out.mean((2, 3)))


class SharedReluBasicBlock(nn.Module):
    """torchvision's BasicBlock: one in-place ReLU, called twice, and a downsampling convolution."""

    def __init__(self, i: int, o: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o)
        self.relu = nn.ReLU(inplace=True)
        self.conv2, self.bn2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
        conv = nn.Conv2d(i, o, 1, stride, bias=False)
        self.downsample = nn.Sequential(conv, nn.BatchNorm2d(o)) if stride > 1 or i != o else None

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class Bottleneck(nn.Module):
    """torchvision's Bottleneck: one in-place ReLU after three layers of two widths."""

    def __init__(self, i: int, inner: int, o: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(i, inner, 1, bias=False), nn.BatchNorm2d(inner)
        self.conv2, self.bn2 = nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner)
        self.conv3, self.bn3 = nn.Conv2d(inner, o, 1, bias=False), nn.BatchNorm2d(o)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += self.downsample(x)
        return self.relu(out)


class VGG(nn.Module):
    """Convolutions, in-place ReLUs, max-pooling, and a classifier with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(
                nn.Conv2d(3, 4, 3, padding=1),
                nn.ReLU(True),
                nn.Conv2d(4, 4, 3, padding=1),
                nn.ReLU(True),
                nn.MaxPool2d(2),
            ),
            *(nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(True), nn.MaxPool2d(2)),
        )
        self.classifier = nn.Sequential(nn.Linear(32, 16), nn.ReLU(True), nn.Dropout(0.3), nn.Linear(16, 5))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(torch.flatten(self.features(x), 1))


class Functional(nn.Module):
    """Activations that are function and method calls: seen while the forward runs."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4)
        self.fc1, self.fc2, self.head = nn.Linear(16, 16), nn.Linear(16, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.conv(x))).flatten(1)
        x = torch.tanh(self.fc1(x))
        return self.head(self.fc2(x).sigmoid())


class WithCache(nn.Module):
    """A layer that returns its state and something else, like those of language models."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.inner, self.act, self.outer = nn.Linear(units, 2 * units), nn.GELU(), nn.Linear(2 * units, units)

    def forward(self, h: Tensor, scale: float = 1.0) -> tuple[Tensor, Tensor]:
        inner = self.act(self.inner(h))
        return h + scale * self.outer(inner), inner.mean(-1)


class TupleStack(nn.Module):
    """Two such layers and a head."""

    def __init__(self, units: int = 6) -> None:
        super().__init__()
        self.layers, self.head = nn.ModuleList([WithCache(units), WithCache(units)]), nn.Linear(units, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        caches = []
        for layer in self.layers:
            x, cache = layer(x, scale=0.5)
            caches.append(cache)
        return self.head(x), caches


class Custom(nn.Module):
    """A forward of its own around one activation module, which nothing is copied past."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.act(3.0 * self.fc1(x)))
