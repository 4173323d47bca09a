"""A recurrent layer with one output at the end of the sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

from mollifier.nn import HardSigmoidGRU, HardSigmoidLSTM

KINDS: dict[tuple[str, str], Callable[..., nn.RNNBase]] = {
    ("rnn", "sigmoid"): nn.RNN,
    ("gru", "sigmoid"): nn.GRU,
    ("gru", "hard-sigmoid"): HardSigmoidGRU,
    ("lstm", "sigmoid"): nn.LSTM,
    ("lstm", "hard-sigmoid"): HardSigmoidLSTM,
}


class SequenceSum(nn.Module):
    """Return one number from the last state of a sequence.

        >>> import torch
        >>> SequenceSum("gru", width=8)(torch.rand(4, 20, 2)).shape
        torch.Size([4, 1])

    Args:
        cell: ``"rnn"`` (tanh), ``"gru"`` or ``"lstm"``.
        width: The number of units.
        gates: The gates of the GRU or the LSTM.
        orthogonal: Whether the recurrent weights are orthogonal matrices, one per gate.
    """

    def __init__(
        self,
        cell: Literal["rnn", "gru", "lstm"],
        width: int,
        *,
        gates: Literal["hard-sigmoid", "sigmoid"] = "sigmoid",
        orthogonal: bool = False,
    ) -> None:
        super().__init__()
        self.layer = KINDS[cell, gates](2, width, batch_first=True)
        self.output = nn.Linear(width, 1)
        if orthogonal:
            for weight in self.layer.weight_hh_l0.split(width):  # type: ignore[operator]
                nn.init.orthogonal_(weight)

    def forward(self, inputs: Tensor) -> Tensor:
        """Predict from inputs (batch, steps, 2)."""
        out: Tensor = self.output(self.layer(inputs)[0][:, -1])
        return out
