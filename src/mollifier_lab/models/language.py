"""A word-level language model: embedding, LSTM layers, softmax over the vocabulary (Zaremba et al. 2014)."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from mollifier.nn import HardSigmoidLSTM
from mollifier_lab.errors import LabError
from mollifier_lab.methods import Architecture
from mollifier_lab.models.branches import ResidualRecurrent, survivals

State = tuple[Tensor, Tensor]
BUILT = ("plain", "residual", "stochastic-depth", "dropout")


class LanguageModel(nn.Module):
    """Return the logits of the next word at every step of a window, and the state for the next window.

        >>> model = LanguageModel(50, width=8, layers=2)
        >>> logits, state = model(torch.randint(50, (4, 5)))
        >>> logits.shape, state[0].shape
        (torch.Size([4, 5, 50]), torch.Size([2, 4, 8]))

    Args:
        words: The size of the vocabulary.
        width: The width of the embedding and of every layer.
        layers: The number of recurrent layers.
        gates: The gates of the LSTM.
        architecture: ``"residual"`` puts a connection around each recurrent layer, ``"stochastic-depth"`` drops these layers;
            ``"dropout"`` drops units of the embedding, between the layers and before the output, never in the recurrence.
        init: All parameters are drawn from U(-init, init).
        survival: The survival probability of the last layer, for stochastic depth.
        per_sample: Whether stochastic depth draws for each sample.
        dropout: The probability of dropout.
    """

    def __init__(
        self,
        words: int,
        *,
        width: int = 200,
        layers: int = 2,
        gates: Literal["hard-sigmoid", "sigmoid"] = "hard-sigmoid",
        architecture: Architecture = "plain",
        init: float = 0.1,
        survival: float = 0.5,
        per_sample: bool = False,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        if architecture not in BUILT:
            raise LabError(f"language model: architecture={architecture!r}: expected one of {', '.join(BUILT)}")
        self.embedding = nn.Embedding(words, width)
        kind = lstm_class(gates)
        stack: list[nn.Module] = [kind(width, width, batch_first=True) for _ in range(layers)]
        if architecture == "residual":
            stack = [ResidualRecurrent(layer) for layer in stack]
        elif architecture == "stochastic-depth":
            chances = survivals(layers, survival, per_sample=per_sample)
            stack = [ResidualRecurrent(*pair) for pair in zip(stack, chances, strict=True)]
        self.layers = nn.ModuleList(stack)
        self.output = nn.Linear(width, words)
        self.dropout = nn.Dropout(dropout) if architecture == "dropout" else nn.Identity()
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -init, init)

    def forward(self, words: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Predict from words (batch, steps) and the state of the previous window, each part (layers, batch, width), or None at the start."""
        h = self.embedding(words)
        after: list[State] = []
        for number, layer in enumerate(self.layers):
            own: Any = None if state is None else tuple(part[number : number + 1] for part in state)
            h, own = layer(self.dropout(h), own)
            after.append(own)
        logits: Tensor = self.output(self.dropout(h))
        return logits, (torch.cat([h.detach() for h, _ in after]), torch.cat([c.detach() for _, c in after]))


def lstm_class(gates: Literal["hard-sigmoid", "sigmoid"]) -> type[nn.LSTM]:
    """Return the paper's LSTM, or torch's."""
    return HardSigmoidLSTM if gates == "hard-sigmoid" else nn.LSTM
