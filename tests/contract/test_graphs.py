"""Row 8: how many graphs torch.compile makes over a whole annealing, with its default settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter

import mollifier
from tests.helpers import mlp

from . import models
from .zoo import KINDS


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.rnn, self.last = kind(3, 4), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.rnn(x)[0])


class Functional(nn.Module):
    """Activations that are calls, with and without a layer before them; dropout, an attribute and a random number."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.last, self.scale = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 2), 0.5

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.one(x))
        h = torch.tanh(F.dropout(self.two(h), 0.1, self.training)) + self.scale * torch.sigmoid(h)
        return self.last(h + 1e-6 * torch.randn_like(h) if self.training else h)


GPT2 = next(kind for kind in KINDS if kind.name == "gpt2")


# torch cuts a graph at every recurrent module, plain or not; what is between the cuts of ours makes these.
MODELS: dict[str, tuple[Any, tuple[int, ...], int]] = {
    "mlp": (lambda: mlp(4, 5, 5, 1), (7, 4), 1),
    "lstm": (lambda: Recurrent(nn.LSTM), (5, 2, 3), 9),
    "gru": (lambda: Recurrent(nn.GRU), (5, 2, 3), 9),
    "resnet": (models.ResNet20, (2, 3, 8, 8), 1),
    "functional": (Functional, (7, 4), 1),
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


@pytest.mark.parametrize("training", [True, False])
def test_graphs_of_a_transformer(training: bool) -> None:
    model, counter = GPT2.mollified().train(training), CompileCounter()
    compiled = torch.compile(model, backend=counter)
    annealer, counts = mollifier.Annealer(model, "linear", horizon=3), []
    for _ in range(5):
        loss = GPT2.run(compiled, GPT2.input()).square().mean()
        if training:
            loss.backward()
        annealer.step(loss)
        counts.append(counter.frame_count)
    assert mollifier.levels(model) == [0.0, 0.0]
    assert counts == [1] * 5


SMALL: dict[str, tuple[Any, tuple[int, ...]]] = {
    "mlp": (lambda: mlp(4, 5, 5, 1), (7, 4)),
    "resnet": (models.ResNet20, (2, 3, 8, 8)),
    "functional": (Functional, (7, 4)),
}


@pytest.mark.parametrize("name", SMALL)
def test_a_mollified_model_is_exported_and_computes_the_same(name: str) -> None:
    make, shape = SMALL[name]
    model, x = mollifier.mollify(make(), level=0.5).eval(), torch.randn(shape)
    program = torch.export.export(model, (x,))
    torch.testing.assert_close(program.module()(x), model(x))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", SMALL)
def test_a_mollified_model_runs_on_the_meta_device(name: str, training: bool) -> None:
    make, shape = SMALL[name]
    plain, model = make().to("meta"), mollifier.mollify(make(), level=0.5).train(training).to("meta")
    x = torch.randn(shape, device="meta")
    assert model(x).shape == plain(x).shape
    assert model(x).is_meta


@pytest.mark.parametrize("name", SMALL)
def test_an_ensemble_has_its_own_levels_under_vmap(name: str) -> None:
    make, shape = SMALL[name]
    members = [mollifier.mollify(make(), level=level).eval() for level in (0.0, 0.3, 1.0)]
    x = torch.randn(shape)
    parameters, buffers = torch.func.stack_module_state(members)
    base = members[0].to("meta") if name == "mlp" else mollifier.mollify(make()).eval()

    def call(parameters: Any, buffers: Any) -> Tensor:
        return torch.func.functional_call(base, (parameters, buffers), (x,))

    alone = [
        torch.func.functional_call(
            base, ({k: v[i] for k, v in parameters.items()}, {k: v[i] for k, v in buffers.items()}), (x,)
        )
        for i in range(3)
    ]
    torch.testing.assert_close(torch.vmap(call)(parameters, buffers), torch.stack(alone), rtol=1e-4, atol=1e-5)
