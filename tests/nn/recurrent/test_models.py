"""Recurrent modules inside models: converted, annealed through training, restored with nothing left behind."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import mollifier
from mollifier.nn import MollifiedGRU, MollifiedLSTM, MollifiedLSTMCell, MollifiedRNN, RecurrentOptions
from tests.helpers import snapshot

from .helpers import packed


class LanguageModel(nn.Module):
    """Embedding, two LSTM layers, a decoder with weights of its own or the embedding's; the state goes on."""

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.embedding, self.drop = nn.Embedding(12, 16), nn.Dropout(0.1)
        self.rnn = nn.LSTM(16, 16, 2, dropout=0.1)
        self.decoder = nn.Linear(16, 12)
        if tied:
            self.decoder.weight = self.embedding.weight

    def forward(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        output, state = self.rnn(self.drop(self.embedding(tokens)), state)
        return self.decoder(output), state


class CharacterEncoder(nn.Module):
    """Words of several lengths to classes, from the last states of both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.rnn = nn.Embedding(10, 6), nn.GRU(6, 8, 2, bidirectional=True)
        self.classes = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 2))

    def forward(self, words: Tensor, lengths: list[int]) -> Tensor:
        _, h = self.rnn(packed(self.embedding(words), lengths))
        return self.classes(torch.cat([h[-2], h[-1]], -1))


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("carry", [False, True], ids=["window", "carried"])
def test_language_model(tied: bool, carry: bool) -> None:
    """Trained by truncated back-propagation on a text that goes round."""
    torch.manual_seed(0)
    model = LanguageModel(tied)
    before = snapshot(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    options = RecurrentOptions(carry_time=True, time_cap=10) if carry else None
    mollifier.mollify(model, recurrent=options)
    assert [row.name for row in mollifier.report(model).blocks] == ["rnn, layer 1", "rnn, layer 2"]
    assert (model.decoder.weight is model.embedding.weight) is tied
    optimizer.add_param_group({"params": mollifier.added_parameters(model)})
    annealer = mollifier.Annealer(model, horizon=25)
    text = (torch.arange(200)[:, None] + torch.arange(4)) % 12
    losses, levels, state = [], [], None
    for update in range(45):
        window = text[4 * update : 4 * update + 5]
        logits, state = model(window[:-1], state)
        state = tuple(part.detach() for part in state)
        loss = F.cross_entropy(logits.flatten(0, 1), window[1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        annealer.step(loss)
        losses.append(loss.item())
        levels.append(mollifier.levels(model))
    assert annealer.finished
    assert any(0.0 < low < high < 1.0 for low, high in levels), "lower layers anneal faster"
    assert losses[-1] < 0.5 * losses[0]
    mollifier.restore(model)
    after = snapshot(model)
    assert list(after) == list(before)
    for name in before:
        (kind, *rest), (kind_now, *rest_now) = before[name], after[name]
        assert kind is kind_now
        weights = 6  # position of the tensors' values, which training has changed
        assert [part for n, part in enumerate(rest) if n != weights] == [
            p for n, p in enumerate(rest_now) if n != weights
        ]
    fresh = LanguageModel(tied)
    fresh.load_state_dict(model.state_dict(), strict=True)
    tokens = text[:5]
    assert torch.equal(fresh.eval()(tokens)[0], model.eval()(tokens)[0])


def test_bidirectional_character_encoder() -> None:
    """Is the first letter a vowel? Words have several lengths, in no order."""
    torch.manual_seed(0)
    model = CharacterEncoder()
    plain_keys, types = list(model.state_dict()), [type(part) for part in model.modules()]
    mollifier.mollify(model)
    kinds = [(row.name, row.kind, row.copy) for row in mollifier.report(model).blocks]
    assert kinds == [
        ("rnn, layer 1", "recurrent", "pad"),
        ("rnn, layer 2", "recurrent", "fixed"),
        ("classes[0:1]", "run", "fixed"),
    ]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    annealer = mollifier.Annealer(model, horizon=30)
    losses = []
    for _ in range(50):
        words = torch.randint(10, (6, 16))
        lengths = torch.randint(1, 7, (16,)).tolist()
        loss = F.cross_entropy(model(words, lengths), (words[0] < 5).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        annealer.step(loss)
        losses.append(loss.item())
    assert annealer.finished
    assert sum(losses[-5:]) < 0.6 * sum(losses[:5])
    mollifier.restore(model)
    assert list(model.state_dict()) == plain_keys
    assert [type(part) for part in model.modules()] == types
    assert not mollifier.is_mollified(model)


def test_levels_are_per_layer_in_forward_order() -> None:
    model = nn.ModuleDict({"a": nn.LSTM(4, 4, 2), "b": nn.GRU(4, 4, bidirectional=True), "c": nn.RNNCell(8, 8)})
    mollifier.mollify(model)
    names = [row.name for row in mollifier.report(model).blocks]
    assert names == ["a, layer 1", "a, layer 2", "b, layer 1", "c, layer 1"]
    mollifier.set_level(model, [0.1, 0.2, 0.3, 0.4])
    assert mollifier.levels(model) == [0.1, 0.2, 0.3, 0.4]
    for path, number, level in (("a", 0, 0.1), ("a", 1, 0.2), ("b", 0, 0.3), ("c", 0, 0.4)):
        layer = model.get_submodule(f"{path}._mollifier.layers.{number}")
        assert {float(part.level) for part in (layer, *layer.copies)} == {level}
    with pytest.raises(ValueError, match="3 levels were given, the model has 4"):
        mollifier.set_level(model, [0.1, 0.2, 0.3])


def test_report_rows() -> None:
    """Shapes, copy rule, and the a: two activations for an LSTM, one for GRU and RNN, for each direction."""
    build: dict[str, nn.Module] = {
        "lstm": nn.LSTM(4, 8, proj_size=3),
        "gru": nn.GRU(4, 8, bidirectional=True),
        "rnn": nn.RNN(4, 4),
        "cell": nn.LSTMCell(4, 4),
    }
    model = mollifier.mollify(nn.ModuleDict(build))
    rows = {row.name: (row.units, row.copy, row.activations) for row in mollifier.report(model).blocks}
    assert rows == {
        "lstm, layer 1": ("4 → 3", "fixed", ["gates", "2 × 8 a"]),
        "gru, layer 1": ("4 → 8", "pad", ["gates", "2 × 8 a"]),
        "rnn, layer 1": ("4 → 4", "copy", ["1 × 4 a"]),
        "cell, layer 1": ("4 → 4", "copy", ["gates", "2 × 4 a"]),
    }
    alone = mollifier.mollify(nn.LSTM(4, 4), recurrent=RecurrentOptions(gates=False, copy=False))
    assert "(the model), layer 1  recurrent  4 → 4  none  2 × 4 a" in str(mollifier.report(alone))


class Reversed(nn.LSTM):
    """Somebody's LSTM with with its own forward."""

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        return super().forward(input.flip(0), hx)


class Renamed(nn.LSTM):
    """Somebody's LSTM with the forward it came with, and attributes that are none of our business."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.gate, self.nonlinearity = nn.Identity(), "relu"


def test_a_forward_of_its_own_is_left_alone_and_said_so() -> None:
    model = nn.ModuleDict({"mine": Reversed(4, 4), "theirs": Renamed(4, 4)})
    x = torch.randn(3, 2, 4)
    want = model["mine"](x)[0], model["theirs"](x)[0]
    mollifier.mollify(model)
    report = mollifier.report(model)
    assert [row.name for row in report.blocks] == ["theirs, layer 1"]
    assert [(skip.name, skip.what) for skip in report.skipped] == [("mine", "Reversed")]
    assert "with its own forward" in report.skipped[0].why
    assert torch.equal(model["mine"](x)[0], want[0])
    mollifier.set_level(model, 1e-12)
    torch.testing.assert_close(model["theirs"].eval()(x)[0], want[1])


@pytest.mark.parametrize("kind", [MollifiedLSTM, MollifiedGRU, MollifiedRNN, MollifiedLSTMCell])
def test_built_by_hand(kind: Any) -> None:
    """It keeps its own level, mollify says so, and restore does not take it apart."""
    part = kind(4, 4, level=0.5)
    model = nn.ModuleDict({"hand": part, "mlp": nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))})
    with pytest.raises(ValueError, match="was not mollified by mollify"):
        mollifier.restore(part)
    mollifier.mollify(model)
    assert ("hand", "it was built mollified by hand, and keeps its own level") in [
        (skip.name, skip.why) for skip in mollifier.report(model).skipped
    ]
    mollifier.set_level(model, 0.0)
    mollifier.restore(model)
    x = torch.randn(2, 4) if "Cell" in kind.__name__ else torch.randn(3, 2, 4)
    part.eval()
    twin = getattr(nn, kind.__name__.removeprefix("Mollified"))(4, 4)
    twin.load_state_dict(mollifier.plain_state_dict(part), strict=True)
    assert torch.equal(part(x)[0], twin(x)[0])
