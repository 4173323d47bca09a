"""All layers and directions of a recurrent module, one operator after the other."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mollifier import ops
from mollifier.activations import Activation, activation
from mollifier.nn.recurrent._layer import LayerMollifier, RecurrentMollifier, kind_and_gate
from mollifier.nn.recurrent._sequence import Sequence, State


def run(module: nn.RNNBase, added: RecurrentMollifier | None, sequence: Sequence) -> tuple[Tensor, State]:
    """The rows of the last layer's output, and the final states."""
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


def cell_of(module: nn.Module, layer: LayerMollifier | None, sizes: list[int]) -> ops.Layer:
    """What an operator has to know of a layer beside its tensors; None is a plain one."""
    kind, gate = kind_and_gate(module)
    found = ops.Layer(kind, sizes, gate, activation_of(module))
    if layer is not None:
        options = layer.options
        found.gates, found.unbiased = options.gates, options.unbiased_gates
        found.c, found.push = options.c, options.push
        found.fixed_time, found.time_cap = options.time == "annealing", options.time_cap
    return found


def weights_of(module: nn.RNNBase, index: int) -> list[Tensor | None]:
    """w_ih, w_hh, b_ih, b_hh and w_hr of one direction of a layer."""
    names = module._all_weights[index]
    w_ih, w_hh = getattr(module, names[0]), getattr(module, names[1])
    b_ih, b_hh = (getattr(module, names[2]), getattr(module, names[3])) if module.bias else (None, None)
    return [w_ih, w_hh, b_ih, b_hh, getattr(module, names[-1]) if module.proj_size else None]


def activation_of(module: nn.Module) -> Activation | None:
    """The ReLU of an Elman network; None for tanh."""
    mode = module.mode if isinstance(module, nn.RNNBase) else getattr(module, "nonlinearity", "")
    return activation("relu") if mode in ("RNN_RELU", "relu") else None
