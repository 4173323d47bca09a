"""Single steps: mollified LSTMCell, GRUCell and RNNCell."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from mollifier import ops
from mollifier.nn.recurrent._layer import Built, RecurrentMollifier, cell_of, kind_and_gate
from mollifier.nn.recurrent._sequence import State, as_plain, autocasts
from mollifier.nn.recurrent._time import leave


class CellForward(nn.RNNCellBase):
    """The forward of a mollified cell, which is the plain forward at level 0.

    A cell does not see the sequence. Its t continues as long as it is given the very state that it returned, and starts at 1
    with any other: None, zeros, the state of another cell (an encoder, or the cell that this one is a copy of), or a detached
    state, as at the start of a window. With ``carry_time`` it continues with any given state. Steps that checkpointing recomputes
    keep their t. A cell's output is its state, so copied units enter the recurrence.
    """

    _mollifier: RecurrentMollifier

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        added = self._mollifier
        layer = added.layer(0)
        lstm = isinstance(self, nn.LSTMCell)
        if not layer.active:
            plain = super().forward(input, hx)
            return (layer.pass_through(plain[0]), plain[1]) if lstm else layer.pass_through(plain)
        if not self._fits(input, hx, lstm):
            super().forward(input, hx)  # torch raises the error
            raise RuntimeError(
                f"{kind_and_gate(self)[0]}Cell: a form of input or state that mollified cells do not take"
            )
        batched = input.dim() == 2
        rows = input if batched else input.unsqueeze(0)
        state: State
        if hx is None:
            state = (rows.new_zeros(len(rows), self.hidden_size),) * (2 if lstm else 1)
        else:
            state = tuple(part if batched else part.unsqueeze(0) for part in (hx if lstm else (hx,)))
        before = added.before(None if hx is None else hx[0] if lstm else hx, self.training)
        added.tick(before, 1, self.training)
        t = layer.clock.clamp_min(1) if added.options.time == "annealing" else before + 1
        weights = [self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh, None]
        cell, settings, copies = cell_of(self, layer, [len(rows)]), layer.settings(rows, before), layer.fused_copies()
        ((h, _, *rest),) = ops.recurrent(rows, [state], [weights], cell, copy_levels=copies or (), **settings)
        if copies is None:
            h = layer.copy_below(0, rows, h, torch.arange(len(rows), device=rows.device), len(rows))
        new: State = h, *rest
        new = tuple(part if batched else part.squeeze(0) for part in as_plain(self, rows, hx, new))
        if torch.compiler.is_compiling():
            new = new[0].clone(), *new[1:]  # the compiler cannot set attributes on one of several results
        leave(new[0], added.token, t)
        return new if lstm else new[0]

    def _fits(self, input: Tensor, hx: Any, lstm: bool) -> bool:
        """Return whether shapes and dtypes are those that torch requires."""
        kind, mixed = self.weight_ih.dtype, autocasts(input.device)
        parts = () if hx is None else tuple(hx) if lstm else (hx,)
        good = input.dim() in (1, 2) and input.shape[-1] == self.input_size and (hx is None or len(parts) == 1 + lstm)
        shape = (*input.shape[:-1], self.hidden_size)
        return (
            good
            and all(part.shape == shape for part in parts)
            and (mixed or {kind} >= {p.dtype for p in (input, *parts)})
        )


class MollifiedLSTMCell(Built, CellForward, nn.LSTMCell):
    """A mollified `nn.LSTMCell` that takes the further arguments of `MollifiedLSTM`.

    >>> import torch, mollifier
    >>> h, c = mollifier.nn.MollifiedLSTMCell(8, 16)(torch.randn(3, 8))
    >>> h.shape
    torch.Size([3, 16])
    """


class MollifiedGRUCell(Built, CellForward, nn.GRUCell):
    """A mollified `nn.GRUCell` that takes the further arguments of `MollifiedLSTM`.

    >>> import torch, mollifier
    >>> mollifier.nn.MollifiedGRUCell(8, 16)(torch.randn(3, 8)).shape
    torch.Size([3, 16])
    """


class MollifiedRNNCell(Built, CellForward, nn.RNNCell):
    """A mollified `nn.RNNCell` that takes the further arguments of `MollifiedLSTM`.

    >>> import torch, mollifier
    >>> mollifier.nn.MollifiedRNNCell(8, 16)(torch.randn(3, 8)).shape
    torch.Size([3, 16])
    """
