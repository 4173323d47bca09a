"""One layer and direction by the native kernels, where they serve: sampled noise, or none, on the CPU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mollifier import kernels
from mollifier.nn.recurrent._layer import LayerMollifier, kind_and_gate
from mollifier.nn.recurrent._sequence import State


def serves(module: nn.RNNBase, layer: LayerMollifier | None, rows: Tensor) -> bool:
    """Can the kernels run this layer (None: a plain one) on these rows, here and now?"""
    return (
        kernels.serves(rows)
        and module.mode in ("LSTM", "GRU")
        and not module.proj_size
        and (layer is None or (layer.sampled() and not (layer.options.gates and layer.options.unbiased_gates)))
        and not torch.is_autocast_enabled("cpu")
        and rows.dtype == next(module.parameters()).dtype
        and kernels.has_product(rows.dtype)
    )


def one_direction(
    module: nn.RNNBase,
    layer: LayerMollifier | None,
    index: int,
    rows: Tensor,
    sizes: list[int],
    state: State,
    inverse_t: Tensor | None,
) -> tuple[Tensor, State]:
    """The output rows and the final state, as the reference loop gives them but for the draws."""
    kind, gate = kind_and_gate(module)
    reverse = module.bidirectional and index % 2 == 1
    w_ih, w_hh, *biases = (getattr(module, name) for name in module._all_weights[index])
    b_ih, b_hh = biases if module.bias else (None, None)
    cell = kernels.Cell(gate == "hard_sigmoid", sizes=sizes, reverse=reverse)
    a = None
    if layer is not None:
        cell.mollify(float(layer.level), layer.options.c, layer.options.push, layer.options.gates, layer.a is not None)
        a = None if layer.a is None else layer.a[int(reverse)]
    if kind == "LSTM":
        x = F.linear(rows, w_ih, None if b_ih is None else b_ih + b_hh)
        out, *final = kernels.lstm_layer(x, state, w_hh, a, inverse_t, cell)
    else:
        x = F.linear(rows, w_ih, b_ih)
        out, *final = kernels.gru_layer(x, state, w_hh, b_hh, a, inverse_t, cell)
    return out, tuple(final)
