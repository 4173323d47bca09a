"""A small task for all trainers, and the bare loop that they are compared with."""

from typing import Any

import torch
from torch import Tensor, nn

import mollifier


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Sigmoid(), nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 1))


def batches() -> list[tuple[Tensor, Tensor]]:
    x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    return list(zip(x.split(8), (x.prod(1, keepdim=True) > 0).float().split(8), strict=True))


loss_of = nn.BCEWithLogitsLoss()


def bare(
    epochs: int, options: dict[str, Any] | None = None, **settings: float
) -> tuple[nn.Sequential, mollifier.Annealer]:
    """Mollify, train and anneal without any trainer."""
    model = mollifier.mollify(network(), **(options or {}))
    annealer = mollifier.Annealer(model, **settings)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    torch.manual_seed(1)
    for _ in range(epochs):
        for x, y in batches():
            loss = loss_of(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            annealer.step(loss)
    return model, annealer


def same(one: nn.Module, two: nn.Module) -> bool:
    first, second = one.state_dict(), two.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)
