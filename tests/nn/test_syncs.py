"""On an accelerator nothing waits for the device: the host reads no value in a step, but for the annealer's look now and then."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import mollifier
from mollifier.anneal import POLL
from mollifier.nn import RecurrentOptions
from tests.helpers import mlp


class Count(TorchDispatchMode):
    """How often the host asks for a value, as .item(), float(), bool() and int() do."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.asked += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


class Residual(nn.Module):
    """A small ResNet: two blocks, the second of half the size and twice the channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(4, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU())
        self.short, self.last = nn.Conv2d(4, 8, 1, 2), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        return self.last((self.second(h) + self.short(h)).mean((2, 3)))


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.rnn, self.last = kind(3, 4, num_layers=2), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.rnn(x)[0])


MODELS: dict[str, tuple[Any, tuple[int, ...], dict[str, Any]]] = {
    "mlp": (lambda: mlp(4, 5, 3, 1), (7, 4), {}),
    "resnet": (Residual, (2, 3, 8, 8), {}),
    "lstm": (lambda: Recurrent(nn.LSTM), (5, 2, 3), {}),
    "gru": (lambda: Recurrent(nn.GRU), (5, 2, 3), {"recurrent": RecurrentOptions(carry_time=True)}),
    "annealed lstm": (lambda: Recurrent(nn.LSTM), (5, 2, 3), {"recurrent": RecurrentOptions(time="annealing")}),
}


@pytest.mark.usefixtures("accelerator")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("noise", ["sample", "expected"])
def test_a_step_reads_nothing_from_the_device(name: str, noise: Any) -> None:
    make, shape, options = MODELS[name]
    model = mollifier.mollify(make(), train_noise=noise, **options)
    annealer = mollifier.Annealer(model, "linear", horizon=5)
    annealer._on_host = False
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(shape)
    with Count() as count:
        for update in range(8):
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            annealer.step(loss)
            assert count.asked == (0 if update < 4 else 1)  # the one look at the horizon, where annealing ends
        model.eval()(x)
    assert count.asked == 1
    assert set(mollifier.levels(model)) == {0.0}


@pytest.mark.usefixtures("accelerator")
def test_the_annealer_looks_once_in_a_while() -> None:
    model = mollifier.mollify(mlp(4, 5, 1))
    annealer = mollifier.Annealer(model, k=1e6)
    annealer._on_host = False
    with Count() as count:
        for _ in range(POLL - 1):
            annealer.step(torch.tensor(0.7))
        assert count.asked == 0
        annealer.step(torch.tensor(0.7))
    assert 0 < count.asked <= 3
