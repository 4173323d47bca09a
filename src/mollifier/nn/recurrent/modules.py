"""Mollified recurrent modules that stand in for torch's, and the paper's plain ones with hard-sigmoid gates."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.utils.rnn import PackedSequence

from mollifier.functional import Gate
from mollifier.nn.recurrent._autocast import Packed, as_plain
from mollifier.nn.recurrent._layer import Built, LayerMollifier, RecurrentMollifier
from mollifier.nn.recurrent._run import run
from mollifier.nn.recurrent._sequence import read, write


class PlainGates(nn.RNNBase):
    """The forward of a module whose gates torch does not have, by the reference loop."""

    gate: Gate

    def forward(self, input: Any, hx: Any = None) -> Any:
        sequence = read(self, input, hx, super().forward)
        return write(self, sequence, *run(self, None, sequence))


class RecurrentForward(nn.RNNBase):
    """The forward of a mollified module: the plain one's at level 0, the reference loop above it."""

    _mollifier: RecurrentMollifier

    def forward(self, input: Any, hx: Any = None) -> Any:
        added = self._mollifier
        if not added.active:
            output, state = super().forward(input, hx)
            first = output.data if isinstance(output, PackedSequence) else output
            for layer in added.layers:
                assert isinstance(layer, LayerMollifier)
                first = layer.pass_through(first)
            return (output._replace(data=first) if isinstance(output, PackedSequence) else first), state
        sequence = read(self, input, hx, super().forward)
        rows, state = run(self, added, sequence)
        packed: Packed = (
            "" if sequence.packed is None else "ragged" if sequence.sizes[-1] < sequence.sizes[0] else "even"
        )
        rows, *rest = as_plain(self, sequence.rows, hx, (rows, *state), packed)
        return write(self, sequence, rows, tuple(rest))


class HardSigmoidLSTM(PlainGates, nn.LSTM):
    """A plain `nn.LSTM` with the paper's hard-sigmoid gates, ``clip(0.25 x + 0.5, 0, 1)``: its baseline on PTB.

    >>> import torch, mollifier
    >>> output, (h, c) = mollifier.nn.HardSigmoidLSTM(8, 16, num_layers=2)(torch.randn(5, 3, 8))
    >>> output.shape
    torch.Size([5, 3, 16])
    """

    gate: Gate = "hard_sigmoid"


class HardSigmoidGRU(PlainGates, nn.GRU):
    """A plain `nn.GRU` with the paper's hard-sigmoid gates.

    >>> import torch, mollifier
    >>> mollifier.nn.HardSigmoidGRU(8, 16)(torch.randn(5, 3, 8))[0].shape
    torch.Size([5, 3, 16])
    """

    gate: Gate = "hard_sigmoid"


class MollifiedLSTM(Built, RecurrentForward, nn.LSTM):
    """An `nn.LSTM` with its arguments, parameter names and results, mollified layer by layer.

        >>> import torch, mollifier
        >>> lstm = mollifier.nn.MollifiedLSTM(8, 16, num_layers=2, batch_first=True, level=0.5)
        >>> output, (h, c) = lstm(torch.randn(3, 5, 8))
        >>> mollifier.levels(lstm)
        [0.5, 0.5]

    Args:
        *args: Of `nn.LSTM`.
        level: To start at, the same for all layers.
        options: What is mollified and how.
        train_noise: In train(): ``"sample"``, ``"expected"`` or ``"exact"``.
        eval_noise: In eval().
        **kwargs: Of `nn.LSTM`.
    """


class MollifiedGRU(Built, RecurrentForward, nn.GRU):
    """An `nn.GRU`, mollified layer by layer; arguments as `MollifiedLSTM`.

    >>> import torch, mollifier
    >>> mollifier.nn.MollifiedGRU(8, 16, bidirectional=True)(torch.randn(5, 3, 8))[0].shape
    torch.Size([5, 3, 32])
    """


class MollifiedRNN(Built, RecurrentForward, nn.RNN):
    """An `nn.RNN` (tanh or ReLU), mollified layer by layer; arguments as `MollifiedLSTM`.

    >>> import torch, mollifier
    >>> mollifier.nn.MollifiedRNN(8, 16, nonlinearity="relu")(torch.randn(5, 3, 8))[0].shape
    torch.Size([5, 3, 16])
    """
