"""Networks as other people write them."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """The usual residual block."""

    def __init__(self, below: int, above: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(below, above, 3, stride, 1, bias=False), nn.BatchNorm2d(above)
        self.conv2, self.bn2 = nn.Conv2d(above, above, 3, 1, 1, bias=False), nn.BatchNorm2d(above)
        self.relu = nn.ReLU()
        self.short = nn.Conv2d(below, above, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        h = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(h)) + self.short(x))


class ResNet20(nn.Sequential):
    """For images of 32×32 pixels."""

    def __init__(self) -> None:
        widths = [16] * 3 + [32] * 3 + [64] * 3
        pairs = zip([16, *widths], widths, strict=False)
        blocks = [Block(below, above, 1 + (below != above)) for below, above in pairs]
        first = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()
        super().__init__(*first, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class GPT(nn.Module):
    """One block of attention and its MLP, 128 wide."""

    def __init__(self, width: int = 128, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.act, self.down = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.attend(self.norm1(x)).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.out(mixed)
        return x + self.down(self.act(self.up(self.norm2(x))))
