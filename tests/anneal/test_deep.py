"""What the defaults are for: a deep sigmoid network that neither plain training nor the paper's schedule with k = 100 trains."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mollifier
from tests.helpers import mlp

DEPTH, WIDTH, UPDATES = 16, 24, 800


def train(**annealing: Any) -> float:
    """Train on clusters of ten classes; the error of the plain network at the end."""
    generator = torch.Generator().manual_seed(0)
    centres = 2.0 * torch.randn(10, 16, generator=generator)

    def batch(size: int) -> tuple[Tensor, Tensor]:
        labels = torch.randint(0, 10, (size,), generator=generator)
        return (centres[labels] + 0.5 * torch.randn(size, 16, generator=generator)).sigmoid(), labels

    torch.manual_seed(1)
    model = mlp(16, *[WIDTH] * DEPTH, 10)
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
    annealer = mollifier.Annealer(mollifier.mollify(model), **annealing)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(UPDATES):
        inputs, labels = batch(64)
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        annealer.step(loss)
    annealer.finish()
    inputs, labels = batch(2000)
    return float((mollifier.restore(model)(inputs).argmax(1) != labels).float().mean())


def test_a_horizon_alone_trains_it():
    assert train(horizon=0.75 * UPDATES) < 0.25


@pytest.mark.parametrize("papers", [{"k": 100.0}, {"schedule": "exponential", "horizon": 0.75 * UPDATES}])
def test_the_papers_schedule_does_not(papers):
    assert train(**papers) > 0.7
