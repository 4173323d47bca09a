"""Mollified recurrent modules that replace torch's, and the paper's plain ones with hard-sigmoid gates."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from mollifier import ops
from mollifier.functional import Gate
from mollifier.nn.recurrent._layer import Built, LayerMollifier, RecurrentMollifier, cell_of
from mollifier.nn.recurrent._sequence import Packed, Sequence, State, as_plain, read, write


def run(module: nn.RNNBase, added: RecurrentMollifier | None, sequence: Sequence) -> tuple[Tensor, State]:
    """Run all layers and return the rows of the last layer's output and the final states."""
    directions = 2 if module.bidirectional else 1
    rows, finals = sequence.rows, []
    one_mask = added is not None and added.options.copy_mask == "sequence"
    batch, examples = sequence.sizes[0], sequence.examples() if one_mask else None
    initial: list[State] = list(zip(*(part.unbind() for part in sequence.state), strict=True))
    carried = added is not None and added.options.carry_time
    before = added.before(sequence.given, module.training) if added is not None and carried else None
    for number in range(module.num_layers):
        layer = added.layer(number) if added is not None else None
        noisy = layer if layer is not None and layer.active else None
        indices = range(number * directions, (number + 1) * directions)
        states = initial[indices[0] : indices[-1] + 1]
        weights = [weights_of(module, index) for index in indices]
        copies = None if noisy is None else noisy.fused_copies()
        settings = {} if noisy is None else noisy.settings(rows, before)
        kind = cell_of(module, noisy, sequence.sizes)
        found = ops.recurrent(rows, states, weights, kind, copy_levels=copies or (), **settings)
        outputs = []
        for direction, (out, *final) in enumerate(found):
            if noisy is not None and copies is None:
                out = noisy.copy_below(direction, rows, out, examples, batch)
            elif noisy is None and layer is not None:
                out = layer.pass_through(out)
            outputs.append(out)
            finals.append(final)
        rows = torch.cat(outputs, -1) if directions == 2 else outputs[0]
        if module.dropout and module.training and number < module.num_layers - 1:
            rows = F.dropout(rows, module.dropout)
    if added is not None and before is not None:
        added.tick(before, len(sequence.sizes), module.training)
    return rows, tuple(torch.stack(parts) for parts in zip(*finals, strict=True))


def weights_of(module: nn.RNNBase, index: int) -> list[Tensor | None]:
    """Return w_ih, w_hh, b_ih, b_hh and w_hr of one direction of a layer."""
    names = module._all_weights[index]
    w_ih, w_hh = getattr(module, names[0]), getattr(module, names[1])
    b_ih, b_hh = (getattr(module, names[2]), getattr(module, names[3])) if module.bias else (None, None)
    return [w_ih, w_hh, b_ih, b_hh, getattr(module, names[-1]) if module.proj_size else None]


class PlainGates(nn.RNNBase):
    """The forward of a module with gates that torch does not have, computed by the reference loop."""

    gate: Gate

    def forward(self, input: Any, hx: Any = None) -> Any:
        sequence = read(self, input, hx, super().forward)
        return write(self, sequence, *run(self, None, sequence))


class RecurrentForward(nn.RNNBase):
    """The forward of a mollified module: the plain forward at level 0, and the reference loop above it."""

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
    """A plain `nn.LSTM` with the paper's hard-sigmoid gates, ``clip(0.25 x + 0.5, 0, 1)``: the paper's baseline on PTB.

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
        *args: Positional arguments of `nn.LSTM`.
        level: The initial level, the same for all layers.
        options: Which parts are mollified, and how.
        train_noise: The noise mode in train(): ``"sample"``, ``"expected"`` or ``"exact"``.
        eval_noise: The noise mode in eval().
        **kwargs: Keyword arguments of `nn.LSTM`.
    """


class MollifiedGRU(Built, RecurrentForward, nn.GRU):
    """An `nn.GRU` mollified layer by layer, with the arguments of `MollifiedLSTM`.

    >>> import torch, mollifier
    >>> mollifier.nn.MollifiedGRU(8, 16, bidirectional=True)(torch.randn(5, 3, 8))[0].shape
    torch.Size([5, 3, 32])
    """


class MollifiedRNN(Built, RecurrentForward, nn.RNN):
    """An `nn.RNN` (tanh or ReLU) mollified layer by layer, with the arguments of `MollifiedLSTM`.

    >>> import torch, mollifier
    >>> mollifier.nn.MollifiedRNN(8, 16, nonlinearity="relu")(torch.randn(5, 3, 8))[0].shape
    torch.Size([5, 3, 16])
    """
