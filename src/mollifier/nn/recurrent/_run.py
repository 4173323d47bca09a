"""The reference implementation: a loop over the steps, readable first. The native kernels stand in for it where they serve."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mollifier import functional, kernels
from mollifier.activations import Activation, activation, hard_sigmoid
from mollifier.functional import Gate, Noise
from mollifier.nn.copy import Copy
from mollifier.nn.recurrent import _native
from mollifier.nn.recurrent._layer import LayerMollifier, RecurrentMollifier, kind_and_gate
from mollifier.nn.recurrent._sequence import Sequence, State


class PlainStep:
    """Gates and activations of a plain cell."""

    def __init__(self, gate: Gate, act: Activation) -> None:
        self.gate_function = torch.sigmoid if gate == "sigmoid" else hard_sigmoid
        self.function = act.f

    def gate(self, x: Tensor, number: int, target: str) -> Tensor:
        return self.gate_function(x)

    def act(self, x: Tensor, number: int) -> Tensor:
        return self.function(x)


@dataclass
class NoisyStep:
    """Gates and activations of a mollified cell at one step.

    Attributes:
        layer: Level, a and options.
        direction: 0 forward, 1 reversed.
        gate_kind: Of the plain cell.
        activation: Of the plain cell.
        inverse_t: 1 / t, a row each.
        gate_noise, act_noise: Modes, or the draws of these rows, (rows, directions, parts, hidden).
    """

    layer: LayerMollifier
    direction: int
    gate_kind: Gate
    activation: Activation
    inverse_t: Tensor
    gate_noise: Noise | Tensor
    act_noise: Noise | Tensor

    def gate(self, x: Tensor, number: int, target: str) -> Tensor:
        """Target: ``"one"``, ``"inverse"`` (1/t) or ``"rest"`` (1 - 1/t)."""
        options = self.layer.options
        if not options.gates:
            return torch.sigmoid(x) if self.gate_kind == "sigmoid" else hard_sigmoid(x)
        inverse = self.inverse_t
        gamma = {"one": torch.ones_like(inverse), "inverse": inverse, "rest": 1.0 - inverse}[target]
        unbiased = options.unbiased_gates
        noise = self._part(self.gate_noise, number, None if unbiased else x.dtype)
        return functional.noisy_gate(x, gamma, self.gate_kind, level=self.layer.level, noise=noise, unbiased=unbiased)

    def act(self, x: Tensor, number: int) -> Tensor:
        options = self.layer.options
        if self.layer.a is None:
            return self.activation.f(x)
        a = self.layer.a[self.direction, number]
        noise = self._part(self.act_noise, number, x.dtype)
        level = self.layer.level
        return functional.noisy_activation(
            x, self.activation, level=level, a=a, c=options.c, noise=noise, push=options.push
        )

    def _part(self, noise: Noise | Tensor, number: int, dtype: torch.dtype | None) -> Noise | Tensor:
        """Under autocast normal draws take the dtype that they meet, or the output would take theirs."""
        return noise[:, self.direction, number].to(dtype) if isinstance(noise, Tensor) else noise


Step = PlainStep | NoisyStep
Weights = list[Tensor | None]  # w_hh, b_hh, w_hr


def lstm_step(x: Tensor, state: State, weights: Weights, step: Step) -> State:
    """One step; x is W_ih x + b_ih. At level 1: c = (1 - 1/t) c + (1/t) (W x + U h + b), h = c."""
    h, c = state
    w_hh, b_hh, w_hr = weights
    assert w_hh is not None
    i, f, g, o = (x + F.linear(h, w_hh, b_hh)).chunk(4, -1)
    c = step.gate(f, 1, "rest") * c + step.gate(i, 0, "inverse") * step.act(g, 0)
    h = step.gate(o, 2, "one") * step.act(c, 1)
    return (h if w_hr is None else F.linear(h, w_hr)), c


def gru_step(x: Tensor, state: State, weights: Weights, step: Step) -> State:
    """One step, in torch's convention h = (1 - z) n + z h, so that z is held at 1 - 1/t."""
    (h,) = state
    w_hh, b_hh, _ = weights
    assert w_hh is not None
    x_r, x_z, x_n = x.chunk(3, -1)
    h_r, h_z, h_n = F.linear(h, w_hh, b_hh).chunk(3, -1)
    r = step.gate(x_r + h_r, 0, "one")
    z = step.gate(x_z + h_z, 1, "rest")
    n = step.act(x_n + r * h_n, 0)
    return ((1.0 - z) * n + z * h,)


def rnn_step(x: Tensor, state: State, weights: Weights, step: Step) -> State:
    """One step of the Elman cell."""
    (h,) = state
    w_hh, b_hh, _ = weights
    assert w_hh is not None
    return (step.act(x + F.linear(h, w_hh, b_hh), 0),)


STEPS: dict[str, Callable[[Tensor, State, Weights, Step], State]] = {
    "LSTM": lstm_step,
    "GRU": gru_step,
    "RNN": rnn_step,
}


def run(module: nn.RNNBase, added: RecurrentMollifier | None, sequence: Sequence) -> tuple[Tensor, State]:
    """All layers and directions: the rows of the last layer's output, and the final states."""
    directions = 2 if module.bidirectional else 1
    rows, finals = sequence.rows, []
    one_mask = added is not None and added.options.copy_mask == "sequence"
    batch, examples = sequence.sizes[0], sequence.examples() if one_mask else None
    initial: list[State] = list(zip(*(part.unbind() for part in sequence.state), strict=True))
    native = _native.serves(module, rows)
    carried = added is not None and added.options.carry_time
    before = added.before(sequence.given, module.training) if added is not None and carried else None
    for number in range(module.num_layers):
        layer = added.layer(number) if added is not None else None
        noisy = layer if layer is not None and layer.active else None
        indices = list(range(number * directions, (number + 1) * directions))
        states = initial[indices[0] : indices[-1] + 1]
        copies: list[Copy | None] = [None] * directions
        if native and _native.takes(noisy):
            copies, clocks = _native.copies(noisy, rows, directions), [kernels.PLACES] * directions
            if added is not None and noisy is not None:
                clocks = [_native.clock(added, noisy, before, direction) for direction in range(directions)]
            found = _native.directions(module, noisy, indices, rows, sequence.sizes, states, clocks, copies)
        else:
            inverses: list[Tensor | None] = [None] * directions
            if added is not None and noisy is not None:
                inverses = [
                    inverse_time(added, noisy, sequence.positions(direction), before, direction)
                    for direction in range(directions)
                ]
            found = reference(module, noisy, indices, rows, sequence.sizes, states, inverses)
        outputs = []
        for direction, (out, final) in enumerate(found):
            if noisy is not None and copies[direction] is None:
                out = noisy.copy_below(direction, rows, out, examples, batch)
            elif noisy is None and layer is not None:
                out = layer.idle(out)
            outputs.append(out)
            finals.append(final)
        rows = torch.cat(outputs, -1) if directions == 2 else outputs[0]
        if module.dropout and module.training and number < module.num_layers - 1:
            rows = F.dropout(rows, module.dropout)
    if added is not None and before is not None:
        added.tick(before, len(sequence.sizes), module.training)
    return rows, tuple(torch.stack(parts) for parts in zip(*finals, strict=True))


def reference(
    module: nn.RNNBase,
    layer: LayerMollifier | None,
    indices: list[int],
    rows: Tensor,
    sizes: list[int],
    states: list[State],
    inverses: list[Tensor | None],
) -> list[tuple[Tensor, State]]:
    """Of each direction of a layer the output rows and the final state, by the loop below."""
    noise = layer.draw(rows) if layer is not None else None
    found = []
    for direction, (index, state, inverse) in enumerate(zip(indices, states, inverses, strict=True)):
        steps = plain_steps(module, len(sizes))
        if layer is not None and noise is not None and inverse is not None:
            steps = noisy_steps(module, layer, direction, inverse, noise, sizes)
        found.append(one_direction(module, index, rows, sizes, state, steps))
    return found


def one_direction(
    module: nn.RNNBase, index: int, rows: Tensor, sizes: list[int], state: State, steps: list[Step]
) -> tuple[Tensor, State]:
    """The loop over the steps of one layer and direction: its output rows, and its final state."""
    kind, reverse = kind_and_gate(module)[0], module.bidirectional and index % 2 == 1
    names = module._all_weights[index]
    w_ih, w_hh = getattr(module, names[0]), getattr(module, names[1])
    b_ih, b_hh = (getattr(module, names[2]), getattr(module, names[3])) if module.bias else (None, None)
    w_hr = getattr(module, names[-1]) if module.proj_size else None
    xs = torch.split(F.linear(rows, w_ih, b_ih), sizes)
    outputs: list[Tensor] = [rows] * len(sizes)
    done: list[State] = []
    initial, order = state, range(len(sizes))
    state = tuple(part[: sizes[-1] if reverse else sizes[0]] for part in initial)
    for t in reversed(order) if reverse else order:
        have, want = len(state[0]), sizes[t]
        if want > have:  # going back, shorter sequences begin
            state = tuple(torch.cat([part, start[have:want]]) for part, start in zip(state, initial, strict=True))
        elif want < have:  # going on, shorter sequences have ended
            done.append(tuple(part[want:] for part in state))
            state = tuple(part[:want] for part in state)
        state = STEPS[kind](xs[t], state, [w_hh, b_hh, w_hr], steps[t])
        outputs[t] = state[0]
    final = tuple(torch.cat([part, *ended]) for part, *ended in zip(state, *reversed(done), strict=True))
    return torch.cat(outputs), final


def activation_of(module: nn.Module) -> Activation:
    """Tanh, or the ReLU of an Elman network."""
    if isinstance(module, nn.RNNBase):
        return activation("relu" if module.mode == "RNN_RELU" else "tanh")
    return activation("relu" if isinstance(module, nn.RNNCell) and module.nonlinearity == "relu" else "tanh")


def plain_steps(module: nn.RNNBase, count: int) -> list[Step]:
    """A plain cell, step after step the same."""
    return [PlainStep(kind_and_gate(module)[1], activation_of(module))] * count


def noisy_steps(
    module: nn.RNNBase,
    layer: LayerMollifier,
    direction: int,
    inverse_t: Tensor,
    noise: tuple[Noise | Tensor, Noise | Tensor],
    sizes: list[int],
) -> list[Step]:
    """A mollified cell for every step, with its own t and noise."""
    gate, act = kind_and_gate(module)[1], activation_of(module)
    gates, acts = (torch.split(n, sizes) if isinstance(n, Tensor) else [n] * len(sizes) for n in noise)
    parts = zip(torch.split(inverse_t, sizes), gates, acts, strict=True)
    return [NoisyStep(layer, direction, gate, act, inverse, g, a) for inverse, g, a in parts]


def inverse_time(
    added: RecurrentMollifier,
    layer: LayerMollifier,
    positions: Tensor,
    before: Tensor | None,
    direction: int,
) -> Tensor:
    """1 / t for every row."""
    t = layer.clock.clamp_min(1).expand_as(positions) if added.options.time == "annealing" else positions
    if added.options.time == "position" and before is not None and direction == 0:
        t = t + before  # a stream is read forward: going back, every window starts at its end
    return added.inverse(t)[:, None]
