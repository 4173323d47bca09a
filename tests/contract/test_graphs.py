"""Row 8: how many graphs torch.compile makes over a whole annealing, with its default settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter

import mollifier
from tests.helpers import mlp


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.rnn, self.last = kind(3, 4), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.rnn(x)[0])


# torch cuts a graph at every recurrent module, plain or not; what is between the cuts of ours makes these.
MODELS: dict[str, tuple[Any, tuple[int, ...], int]] = {
    "mlp": (lambda: mlp(4, 5, 5, 1), (7, 4), 1),
    "lstm": (lambda: Recurrent(nn.LSTM), (5, 2, 3), 9),
    "gru": (lambda: Recurrent(nn.GRU), (5, 2, 3), 9),
}


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # torch's compiler
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_graphs_over_a_whole_annealing(name: str, training: bool) -> None:
    make, shape, most = MODELS[name]
    model, counter = mollifier.mollify(make()).train(training), CompileCounter()
    compiled = torch.compile(model, backend=counter)
    annealer = mollifier.Annealer(model, "linear", horizon=5)
    x, counts, seen = torch.randn(shape), [], []
    for _ in range(8):
        seen.append(mollifier.levels(model)[-1])
        loss = compiled(x).square().mean()
        if training:
            loss.backward()
        annealer.step(loss)
        counts.append(counter.frame_count)
    assert seen[0] == 1.0
    assert seen[-1] == 0.0
    assert set(counts) == {counts[0]}
    assert 0 < counts[0] <= most


def test_a_compiled_model_notices_a_level_that_somebody_else_wrote() -> None:
    model, x = mollifier.mollify(mlp(4, 5, 5, 1), level=0.0).eval(), torch.randn(7, 4)
    counter = CompileCounter()
    compiled = torch.compile(model, backend=counter)
    for level in (0.0, 1.0, 0.5, 0.0):
        for buffer in model.buffers():
            buffer.data.fill_(level)
        torch.testing.assert_close(compiled(x), model(x))
    assert counter.frame_count == 1
