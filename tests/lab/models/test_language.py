from __future__ import annotations

import pytest
import torch
from torch import nn

from mollifier.nn import HardSigmoidLSTM
from mollifier_lab.errors import LabError
from mollifier_lab.models import LanguageModel

WORDS = torch.randint(12, (3, 8), generator=torch.Generator().manual_seed(0))


def small(**changes: object) -> LanguageModel:
    return LanguageModel(12, **{"width": 6, "layers": 2, "init": 0.5} | changes)


@pytest.mark.parametrize("gates", ["hard-sigmoid", "sigmoid"])
@pytest.mark.parametrize("architecture", ["plain", "residual", "stochastic-depth"])
def test_two_windows_are_one_long_one(gates: str, architecture: str) -> None:
    model = small(gates=gates, architecture=architecture).eval()
    assert {type(part) for part in model.modules() if isinstance(part, nn.LSTM)} == {
        HardSigmoidLSTM if gates == "hard-sigmoid" else nn.LSTM
    }
    whole, end = model(WORDS)
    first, state = model(WORDS[:, :5])
    second, last = model(WORDS[:, 5:], state)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)
    torch.testing.assert_close(last, end)
    assert not state[0].requires_grad
    assert not state[1].requires_grad
    assert state[0].shape == (2, 3, 6)


def test_architectures_by_hand() -> None:
    for architecture, chances in (("plain", None), ("residual", (1.0, 1.0)), ("stochastic-depth", (0.7, 0.4))):
        model = small(architecture=architecture, survival=0.4, gates="sigmoid").eval()
        h = model.embedding(WORDS)
        for number, layer in enumerate(model.layers):
            lstm = layer if chances is None else layer.body
            out = lstm(h)[0]
            h = out if chances is None else h + chances[number] * out
        torch.testing.assert_close(model(WORDS)[0], model.output(h))


def test_dropout_is_on_the_ways_between_the_layers_and_not_in_time() -> None:
    model = small(architecture="dropout", dropout=0.5)
    assert not torch.equal(model(WORDS)[0], model(WORDS)[0])
    plain = small()
    plain.load_state_dict(model.state_dict())
    assert torch.equal(model.eval()(WORDS)[0], plain(WORDS)[0])
    seen = []
    model.train().dropout.register_forward_hook(lambda _, args, out: seen.append(float((out == 0).double().mean())))
    model(WORDS.repeat(30, 1))
    assert len(seen) == 3  # embedding, between, before the output
    assert all(abs(part - 0.5) < 0.05 for part in seen)


def test_all_parameters_are_uniform() -> None:
    model = LanguageModel(200, width=40, init=0.1)
    for parameter in model.parameters():
        assert 0.09 < parameter.abs().max() <= 0.1
        assert abs(parameter.mean()) < 0.02


@pytest.mark.parametrize("per_sample", [False, True])
def test_every_parameter_has_a_gradient_where_all_layers_are_dropped(per_sample: bool) -> None:
    model = small(architecture="stochastic-depth", survival=1e-9, layers=1, per_sample=per_sample)
    logits, _ = model(WORDS)
    assert torch.equal(logits, model.output(model.embedding(WORDS)))
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_what_cannot_be_built() -> None:
    with pytest.raises(LabError, match="architecture='highway': expected one of plain, residual"):
        small(architecture="highway")
