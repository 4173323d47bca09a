"""Recurrent kinds for the contract's table: torch's modules and cells, the paper's, packed, inside models, and by hand."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from mollifier.nn import HardSigmoidGRU, HardSigmoidLSTM, MollifiedLSTM, RecurrentOptions

from .limits import matrix, pad
from .zoo import LEARNED, Kind

SHAPE = (4, 5, 6)


class Encoder(nn.Module):
    """A bidirectional encoder of sequences of several lengths, in no order."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(6, 8, batch_first=True, bidirectional=True)
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, torch.tensor([3, 5, 1, 4]), batch_first=True, enforce_sorted=False)
        return self.head(pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0])


class LanguageModel(nn.Module):
    """Embedding, two layers, and a decoder with the embedding's weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.rnn = nn.Embedding(11, 8), nn.LSTM(8, 8, 2, batch_first=True)
        self.decoder = nn.Linear(8, 11)
        self.decoder.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.decoder(self.rnn(self.embedding(tokens))[0])


class Unrolled(nn.Module):
    """A cell, step by step."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell, self.head = cell, nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        state, outputs = None, []
        for step in x.unbind(1):
            state = self.cell(step, state)
            outputs.append(state[0] if isinstance(state, tuple) else state)
        return self.head(torch.stack(outputs, 1))


class Translator(nn.Module):
    """An encoder cell that reads, and a decoder cell that begins with what it has read."""

    def __init__(self, cell: Any) -> None:
        super().__init__()
        self.encoder, self.decoder, self.head = cell(6, 8), cell(6, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        state, outputs = None, []
        for step in x.unbind(1):
            state = self.encoder(step, state)
        for step in x.flip(1).unbind(1):
            state = self.decoder(step, state)
            outputs.append(state[0] if isinstance(state, tuple) else state)
        return self.head(torch.stack(outputs, 1))


def projections(model: Any, layer: int, path: str = "_mollifier") -> list[Tensor]:
    """The matrices of a layer's projections, one a direction."""
    copies = model.get_submodule(f"{path}.layers.{layer}.copies")
    return [matrix(copy.projection) for copy in copies]


def _bidirectional_limit(model: Any, x: Tensor) -> Tensor:
    both = torch.cat([pad(x, 8, 2), pad(x, 8, 2)], -1)
    return torch.cat([both @ weight.T for weight in projections(model, 1)], -1)


def _packed_limit(model: Any, x: Tensor) -> Tensor:
    valid = torch.arange(5)[None, :, None] < torch.tensor([3, 5, 1, 4])[:, None, None]
    once = pad(x, 8, 2) * valid
    return model.head(torch.cat([once, once], -1))


def _projected_limit(model: Any, x: Tensor) -> Tensor:
    for layer in range(model.num_layers):
        x = x @ projections(model, layer)[0].T if layer == 0 else x
    return x


def _bag_of_words(model: Any, x: Tensor) -> Tensor:
    """c = (1 - 1/t) c + (W x + U h + b) / t and h = c, step by step."""
    for layer in range(model.num_layers):
        w, u, b, b2 = (getattr(model, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
        cell, c, outputs = slice(2 * model.hidden_size, 3 * model.hidden_size), x.new_zeros(len(x), 8), []
        for t, step in enumerate(x.unbind(1), 1):
            c = (1 - 1 / t) * c + (step @ w[cell].T + c @ u[cell].T + b[cell] + b2[cell]) / t
            outputs.append(c)
        x = torch.stack(outputs, 1)
    return x


def _by_hand(model: nn.Module) -> nn.Module:
    assert isinstance(model, nn.LSTM)
    mollified = MollifiedLSTM(6, 6, 2, batch_first=True).to(next(model.parameters()).dtype)
    for name, parameter in model.named_parameters():
        setattr(mollified, name, parameter)
    return mollified


def _first(out: Any) -> Tensor:
    return out[0]


def _module(name: str, build: Any, limit: Any, **more: Any) -> Kind:
    return Kind(name, build, SHAPE, limit=limit, pick=_first, **more)


def _same(model: Any, x: Tensor) -> Tensor:
    return x


def _cell(name: str, cell: Any) -> Kind:
    return Kind(name, lambda: Unrolled(cell(6, 8)), SHAPE, limit=lambda m, x: m.head(pad(x, 8, 2)))


def _translator(name: str, cell: Any) -> Kind:
    return Kind(name, lambda: Translator(cell), SHAPE, limit=lambda m, x: m.head(pad(x.flip(1), 8, 2)))


BAG = {"recurrent": RecurrentOptions(copy=False, push="odds")}
OTHER = {"recurrent": RecurrentOptions(copy_mask="sequence", unbiased_gates=True)}
BY_HAND = _module("lstm-by-hand", lambda: nn.LSTM(6, 6, 2, batch_first=True), _same, by_hand=_by_hand)
RECURRENT = [
    _module("lstm", lambda: nn.LSTM(6, 6, 2, batch_first=True), _same),
    _module("lstm-projected", lambda: nn.LSTM(6, 8, 2, proj_size=4, batch_first=True), _projected_limit),
    _module("lstm-bag-of-words", lambda: nn.LSTM(6, 8, 2, batch_first=True), _bag_of_words, options=BAG),
    _module("gru-bidirectional", lambda: nn.GRU(6, 8, 2, batch_first=True, bidirectional=True), _bidirectional_limit),
    _module(
        "gru-bidirectional-learned",
        lambda: nn.GRU(6, 8, 2, batch_first=True, bidirectional=True),
        _bidirectional_limit,
        options=LEARNED,
    ),
    _module(
        "lstm-projected-learned",
        lambda: nn.LSTM(6, 8, 2, proj_size=4, batch_first=True),
        _projected_limit,
        options=LEARNED,
    ),
    _module("gru-sequence-mask-unbiased", lambda: nn.GRU(6, 6, batch_first=True), _same, options=OTHER),
    _module("rnn-tanh", lambda: nn.RNN(6, 6, 2, batch_first=True), _same),
    _module("rnn-relu", lambda: nn.RNN(6, 6, 2, batch_first=True, nonlinearity="relu"), _same),
    _module("hard-sigmoid-lstm", lambda: HardSigmoidLSTM(6, 6, 2, batch_first=True), _same),
    _module("hard-sigmoid-gru", lambda: HardSigmoidGRU(6, 6, 2, batch_first=True), _same),
    Kind("packed-encoder", Encoder, SHAPE, limit=_packed_limit),
    Kind(
        "language-model",
        LanguageModel,
        (4, 5),
        limit=lambda m, tokens: m.decoder(m.embedding(tokens)),
        vocabulary=11,
        affine=False,
    ),
    _cell("lstm-cell", nn.LSTMCell),
    _cell("gru-cell", nn.GRUCell),
    _cell("rnn-cell", lambda i, o: nn.RNNCell(i, o, nonlinearity="relu")),
    _translator("lstm-encoder-decoder", nn.LSTMCell),
    _translator("gru-encoder-decoder", nn.GRUCell),
    BY_HAND,
]


def has_torch_lstm(kind: Kind) -> bool:
    """Torch's own LSTM under bf16 autocast on a CPU: some have no kernel for it, and its dtypes differ between them."""
    return any(type(part) is nn.LSTM for part in kind.plain().modules())


def layers(model: nn.Module) -> list[Any]:
    """The recurrent layers' parts, in order."""
    return [part for part in model.modules() if type(part).__name__ == "LayerMollifier"]
