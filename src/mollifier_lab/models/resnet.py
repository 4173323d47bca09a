"""The ResNets of He et al. 2015 for CIFAR-10, with shortcuts that have no parameters (option A)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from mollifier_lab.errors import LabError
from mollifier_lab.methods import Architecture
from mollifier_lab.models.branches import Survival, survivals

BUILT = ("plain", "residual", "stochastic-depth", "dropout")


class PadShortcut(nn.Module):
    """Return every second pixel, and zeros for the new channels (option A)."""

    def __init__(self, stride: int, channels: int) -> None:
        super().__init__()
        self.stride, self.channels = stride, channels

    def forward(self, x: Tensor) -> Tensor:
        before = (self.channels - x.shape[1]) // 2
        after = self.channels - x.shape[1] - before
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, before, after))


class BasicBlock(nn.Module):
    """Compute relu(shortcut(x) + norm(conv(relu(norm(conv(x)))))); `mollify` copies x past all of it."""

    def __init__(
        self,
        inputs: int,
        channels: int,
        stride: int = 1,
        *,
        residual: bool = True,
        survival: Survival | None = None,
        dropout: float = 0.0,
        normalised: bool = True,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, padding=1, bias=not normalised)
        self.norm1 = _norm(channels, normalised)
        self.relu1 = nn.ReLU()
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=not normalised)
        self.norm2 = _norm(channels, normalised)
        self.relu2 = nn.ReLU()
        same = stride == 1 and inputs == channels
        shortcut = nn.Identity() if same else PadShortcut(stride, channels)
        self.shortcut = shortcut if residual else None
        self.survival = survival or Survival()

    def forward(self, x: Tensor) -> Tensor:
        if self.shortcut is None:
            total = self.branch(x)
        else:
            total = self.survival.add(self.shortcut(x), lambda: self.branch(x), self.parameters())
        out: Tensor = self.relu2(total)
        return out

    def branch(self, x: Tensor) -> Tensor:
        """Compute the branch parallel to the shortcut."""
        h = self.dropout(self.relu1(self.norm1(self.conv1(x))))
        out: Tensor = self.norm2(self.conv2(h))
        return out


def _norm(channels: int, normalised: bool) -> nn.Module:
    return nn.BatchNorm2d(channels) if normalised else nn.Identity()


def resnet(
    depth: int = 110,
    *,
    width: int = 16,
    classes: int = 10,
    architecture: Architecture = "residual",
    survival: float = 0.5,
    per_sample: bool = False,
    dropout: float = 0.2,
    normalised: bool = True,
) -> nn.Sequential:
    """Return a ResNet of three stages, with `width`, 2 `width` and 4 `width` channels.

        >>> sum(parameter.numel() for parameter in resnet(20).parameters())
        269722

    Args:
        depth: 6 n + 2 for n blocks per stage: 20, 32, 56, 110.
        width: The number of channels of the first stage.
        classes: The number of outputs.
        architecture: ``"plain"`` has no shortcuts; ``"dropout"`` is the residual network with dropout between the two convolutions
            of a block (Zagoruyko and Komodakis 2016).
        survival: The survival probability of the last block, for stochastic depth.
        per_sample: Whether stochastic depth draws for each sample.
        dropout: The probability of dropout.
        normalised: Whether it has batch normalisation. Without it, convolutions have biases, and ``"plain"`` is the plain twin of a ResNet: only
            convolutions and ReLUs.
    """
    if depth < 8 or depth % 6 != 2 or architecture not in BUILT:
        raise LabError(
            f"resnet: depth={depth}, architecture={architecture!r}: expected a depth of 6 n + 2, as 20, 32, 56 or 110, and one of {', '.join(BUILT)}"
        )
    each = (depth - 2) // 6
    chances = survivals(3 * each, survival, per_sample=per_sample) if architecture == "stochastic-depth" else []
    first = nn.Conv2d(3, width, 3, padding=1, bias=not normalised)
    layers: list[nn.Module] = [first, _norm(width, normalised), nn.ReLU()]
    inputs = width
    for number in range(3 * each):
        stage, place = divmod(number, each)
        channels = width * 2**stage
        block = BasicBlock(
            inputs,
            channels,
            stride=2 if stage > 0 and place == 0 else 1,
            residual=architecture != "plain",
            survival=chances[number] if chances else None,
            dropout=dropout if architecture == "dropout" else 0.0,
            normalised=normalised,
        )
        layers.append(block)
        inputs = channels
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))
    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return model
