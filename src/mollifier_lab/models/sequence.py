"""A recurrent layer with one output at the end of the sequence."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from mollifier_lab.models.language import lstm_class

KINDS: dict[str, type[nn.RNNBase]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}


class SequenceSum(nn.Module):
    """One number from the last state of a sequence.

        >>> import torch
        >>> SequenceSum("gru", width=8)(torch.rand(4, 20, 2)).shape
        torch.Size([4, 1])

    Args:
        cell: ``"rnn"`` (tanh), ``"gru"`` or ``"lstm"``.
        width: Units.
        gates: Of the LSTM.
        orthogonal: Are the recurrent weights orthogonal matrices, one for each gate?
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
        kind = lstm_class(gates) if cell == "lstm" else KINDS[cell]
        self.layer = kind(2, width, batch_first=True)
        self.output = nn.Linear(width, 1)
        if orthogonal:
            for weight in self.layer.weight_hh_l0.split(width):  # type: ignore[operator]
                nn.init.orthogonal_(weight)

    def forward(self, inputs: Tensor) -> Tensor:
        """Inputs (batch, steps, 2)."""
        out: Tensor = self.output(self.layer(inputs)[0][:, -1])
        return out
