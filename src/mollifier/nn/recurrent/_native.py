"""One layer by the kernels, where they serve: sampled noise, or none, on the CPU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mollifier import kernels
from mollifier.kernels import PLACES, Clock
from mollifier.nn.copy import Copy
from mollifier.nn.recurrent._layer import LayerMollifier, RecurrentMollifier, kind_and_gate
from mollifier.nn.recurrent._sequence import State, positions


def serves(module: nn.RNNBase, rows: Tensor) -> bool:
    """Can the kernels run layers of this module on these rows, here and now?"""
    return (
        module.mode in ("LSTM", "GRU")
        and not module.proj_size
        and kernels.eager_serves(rows)  # where these may run, so may the native ones
        and rows.dtype in (torch.float32, torch.float64)
        and rows.dtype == module.weight_ih_l0.dtype
        and not torch.is_autocast_enabled("cpu")
    )


def takes(layer: LayerMollifier | None) -> bool:
    """Do they know this layer's noise? None is a plain one.

    Expected values they know below level 1, where a gate is its target itself, and where nobody takes a derivative: who does
    may want the second, too, which they do not have.
    """
    if layer is None:
        return True
    if layer.options.gates and layer.options.unbiased_gates:
        return False
    level = layer.known_level()
    if level is None:
        return False
    return layer.sampled() or (layer.expected() and not torch.is_grad_enabled() and level < 1.0)


def clock(added: RecurrentMollifier, layer: LayerMollifier, before: Tensor | None, direction: int) -> Clock:
    """What t is, as `inverse_time` has it for the reference."""
    options, cap = added.options, added.options.time_cap or 0
    if options.time == "annealing":
        return Clock(max(1, int(layer.clock)), 0, cap)
    return Clock(0, int(before) if before is not None and direction == 0 else 0, cap)


def copies(layer: LayerMollifier | None, rows: Tensor, directions: int) -> list[Copy | None]:
    """The copies that the kernels make along with the layer."""
    if layer is None or not kernels.has_product(rows.dtype):
        return [None] * directions
    return [layer.fused_copy(direction) for direction in range(directions)]


def directions(
    module: nn.RNNBase,
    layer: LayerMollifier | None,
    indices: list[int],
    rows: Tensor,
    sizes: list[int],
    states: list[State],
    clocks: list[Clock],
    copies: list[Copy | None],
) -> list[tuple[Tensor, State]]:
    """Of these directions of a layer the output rows and the final state, as the reference loop gives them but for the draws.

    Where one of its copies is given, the output is what that makes of it.
    """
    parts = [_part(module, layer, *each) for each in zip(indices, [sizes] * len(indices), states, clocks, strict=True)]
    if not kernels.has_product(rows.dtype):
        return [_eager(module, rows, part) for part in parts]
    for part, copy in zip(parts, copies, strict=True):
        part.cell.copied = None if copy is None else copy.known_level()
    return [(out, tuple(final)) for out, *final in kernels.recurrent_layer(rows, parts)]


def one_direction(
    module: nn.RNNBase,
    layer: LayerMollifier | None,
    index: int,
    rows: Tensor,
    sizes: list[int],
    state: State,
    clock: Clock = PLACES,
) -> tuple[Tensor, State]:
    """One of them."""
    return directions(module, layer, [index], rows, sizes, [state], [clock], [None])[0]


def _part(
    module: nn.RNNBase,
    layer: LayerMollifier | None,
    index: int,
    sizes: list[int],
    state: State,
    clock: Clock,
) -> kernels.Part:
    reverse = module.bidirectional and index % 2 == 1
    w_ih, w_hh, *biases = (getattr(module, name) for name in module._all_weights[index])
    cell = kernels.Cell(kind_and_gate(module)[1] == "hard_sigmoid", sizes=sizes, reverse=reverse, clock=clock)
    a = None
    if layer is not None:
        level = layer.known_level()
        assert level is not None  # see `takes`
        cell.mollify(level, layer.options.c, layer.options.push, layer.options.gates, layer.a is not None)
        cell.expected = layer.expected()
        if layer.a is not None:
            a = layer.a[int(reverse)] if module.bidirectional else layer.a.squeeze(0)
    b_ih, b_hh = biases if module.bias else (None, None)
    return kernels.Part(cell, state, (w_ih, w_hh, b_ih, b_hh), a)


def _eager(module: nn.RNNBase, rows: Tensor, part: kernels.Part) -> tuple[Tensor, State]:
    w_ih, w_hh, b_ih, b_hh = part.weights
    cell, time = part.cell, None
    if cell.gates:
        time = cell.clock.inverse(positions(cell.sizes, int(cell.reverse), rows.device))[:, None]
    if module.mode == "LSTM":
        x = F.linear(rows, w_ih, None if b_ih is None or b_hh is None else b_ih + b_hh)
        out, *final = kernels.eager_lstm_layer(x, part.state, w_hh, part.a, time, cell)
    else:
        x = F.linear(rows, w_ih, b_ih)
        out, *final = kernels.eager_gru_layer(x, part.state, w_hh, b_hh, part.a, time, cell)
    return out, tuple(final)
