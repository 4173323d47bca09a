"""Compute recurrent layers in a readable loop over their steps: the reference for the operator, used wherever the operator cannot be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from mollifier import functional
from mollifier.activations import Activation, activation, hard_sigmoid
from mollifier.functional import Gate, Noise, Push, normal_like, uniform_like

State = tuple[Tensor, ...]
Weights = Sequence[Tensor | None]  # w_ih, w_hh, b_ih, b_hh, w_hr
# The number of noisy activations and of gates in each kind of cell.
PARTS = {"LSTM": (2, 3), "GRU": (1, 2), "RNN": (1, 0)}
TANH = activation("tanh")


@dataclass
class Layer:
    """Hold all settings of a layer except its tensors.

    Attributes:
        kind: ``"LSTM"``, ``"GRU"`` or ``"RNN"``.
        sizes: The number of rows in each step; never more than in the step before.
        gate: The gate function of the plain cell.
        activation: The activation of the plain cell; None for tanh.
        reverse: Whether the first direction is the one that reads backward.
        gates: Whether the gates are held at their targets.
        unbiased: Whether the gates are mixed with their targets instead of being pushed towards them.
        c: Factor on the noise of the activations.
        push: ``"paper"`` or ``"odds"``.
        fixed_time: Whether t in the gates' 1/t is the same for all rows. Otherwise it is the row's position in its own sequence, plus the number
            of steps before that sequence.
        time_cap: The largest value that t takes; None for no cap.
    """

    kind: str
    sizes: list[int]
    gate: Gate = "sigmoid"
    activation: Activation | None = None
    reverse: bool = False
    gates: bool = False
    unbiased: bool = False
    c: float = 20.0
    push: Push = "paper"
    fixed_time: bool = False
    time_cap: int | None = None


@dataclass
class Step:
    """Compute the gates and activations of a cell at one step.

    Attributes:
        layer: The settings of the layer.
        level: p; None for a plain cell.
        a: The learned scales, (activations, hidden), if the activations are noisy.
        inverse_t: 1 / t for each row.
        gate_noise, act_noise: Modes, or the draws for these rows, (rows, parts, hidden).
    """

    layer: Layer
    level: Tensor | None = None
    a: Tensor | None = None
    inverse_t: Tensor | None = None
    gate_noise: Noise | Tensor = "sample"
    act_noise: Noise | Tensor = "sample"

    def gate(self, x: Tensor, number: int, target: str) -> Tensor:
        """Return a gate whose target is ``"one"``, ``"inverse"`` (1/t) or ``"rest"`` (1 - 1/t)."""
        layer, inverse = self.layer, self.inverse_t
        if not layer.gates or self.level is None or inverse is None:
            return torch.sigmoid(x) if layer.gate == "sigmoid" else hard_sigmoid(x)
        gamma = {"one": torch.ones_like(inverse), "inverse": inverse, "rest": 1.0 - inverse}[target]
        noise = _part(self.gate_noise, number, None if layer.unbiased else x.dtype)
        return functional.noisy_gate(x, gamma, layer.gate, level=self.level, noise=noise, unbiased=layer.unbiased)

    def act(self, x: Tensor, number: int) -> Tensor:
        layer = self.layer
        act = layer.activation or TANH
        if self.a is None or self.level is None:
            return act.f(x)
        noise, a = _part(self.act_noise, number, x.dtype), self.a[number]
        return functional.noisy_activation(x, act, level=self.level, a=a, c=layer.c, noise=noise, push=layer.push)


def _part(noise: Noise | Tensor, number: int, dtype: torch.dtype | None) -> Noise | Tensor:
    """Return one part of the noise; draws are converted to the given dtype, because under autocast the output would otherwise take theirs."""
    return noise[:, number].to(dtype) if isinstance(noise, Tensor) else noise


def lstm_step(x: Tensor, state: State, weights: Weights, step: Step) -> State:
    """Compute one step; x is W_ih x + b_ih. At level 1: c = (1 - 1/t) c + (1/t) (W x + U h + b), h = c."""
    h, c = state
    _, w_hh, _, b_hh, w_hr = weights
    assert w_hh is not None
    i, f, g, o = (x + F.linear(h, w_hh, b_hh)).chunk(4, -1)
    c = step.gate(f, 1, "rest") * c + step.gate(i, 0, "inverse") * step.act(g, 0)
    h = step.gate(o, 2, "one") * step.act(c, 1)
    return (h if w_hr is None else F.linear(h, w_hr)), c


def gru_step(x: Tensor, state: State, weights: Weights, step: Step) -> State:
    """Compute one step, in torch's convention h = (1 - z) n + z h, so that z is held at 1 - 1/t."""
    (h,) = state
    _, w_hh, _, b_hh, _ = weights
    assert w_hh is not None
    x_r, x_z, x_n = x.chunk(3, -1)
    h_r, h_z, h_n = F.linear(h, w_hh, b_hh).chunk(3, -1)
    r = step.gate(x_r + h_r, 0, "one")
    z = step.gate(x_z + h_z, 1, "rest")
    n = step.act(x_n + r * h_n, 0)
    return ((1.0 - z) * n + z * h,)


def rnn_step(x: Tensor, state: State, weights: Weights, step: Step) -> State:
    """Compute one step of the Elman cell."""
    (h,) = state
    _, w_hh, _, b_hh, _ = weights
    assert w_hh is not None
    return (step.act(x + F.linear(h, w_hh, b_hh), 0),)


STEPS: dict[str, Callable[[Tensor, State, Weights, Step], State]] = {
    "LSTM": lstm_step,
    "GRU": gru_step,
    "RNN": rnn_step,
}


def loop(
    x: Tensor,
    states: Sequence[State],
    weights: Sequence[Weights],
    layer: Layer,
    a: Tensor | None,
    level: Tensor | None,
    time: Tensor | None,
    gate_noise: Noise | Tensor,
    act_noise: Noise | Tensor,
) -> list[State]:
    """Return the output rows and the final states of each direction; the arguments are those of `mollifier.ops.recurrent`."""
    if level is not None:
        activations, gates = PARTS[layer.kind]
        rooms = gates if layer.gates else 0, activations if a is not None else 0
        gate_noise, act_noise = _drawn(x, states, rooms, layer.unbiased, gate_noise, act_noise)
    found = []
    for number, (state, own) in enumerate(zip(states, weights, strict=True)):
        reverse = layer.reverse or number == 1
        steps = [Step(layer)] * len(layer.sizes)
        if level is not None:
            inverse = inverse_time(layer, reverse, x.device, time)
            noises = [
                torch.split(each[:, number], layer.sizes) if isinstance(each, Tensor) else [each] * len(layer.sizes)
                for each in (gate_noise, act_noise)
            ]
            mine = None if a is None else a[number]
            parts = zip(torch.split(inverse, layer.sizes), *noises, strict=True)
            steps = [Step(layer, level, mine, *each) for each in parts]
        found.append(one_direction(x, state, own, layer, reverse, steps))
    return found


def _drawn(
    x: Tensor,
    states: Sequence[State],
    rooms: tuple[int, int],
    unbiased: bool,
    gate_noise: Noise | Tensor,
    act_noise: Noise | Tensor,
) -> tuple[Noise | Tensor, Noise | Tensor]:
    """Draw the samples for all rows at once, (rows, directions, parts, hidden); other noise is returned as it is."""
    hidden = states[0][-1].shape[1]

    def like(count: int) -> Tensor:
        return x.new_empty(len(x), len(states), count, hidden)

    if isinstance(gate_noise, str) and gate_noise == "sample":
        gate_noise = uniform_like(like(rooms[0])) if unbiased else normal_like(like(rooms[0]))
    if isinstance(act_noise, str) and act_noise == "sample":
        act_noise = normal_like(like(rooms[1]))
    return gate_noise, act_noise


def one_direction(x: Tensor, state: State, weights: Weights, layer: Layer, reverse: bool, steps: list[Step]) -> State:
    """Loop over the steps of one direction and return the output rows and the final states."""
    sizes = layer.sizes
    w_ih, _, b_ih, _, _ = weights
    assert w_ih is not None
    xs = torch.split(F.linear(x, w_ih, b_ih), sizes)
    outputs: list[Tensor] = [x] * len(sizes)
    done: list[State] = []
    initial, order = state, range(len(sizes))
    state = tuple(part[: sizes[-1] if reverse else sizes[0]] for part in initial)
    for t in reversed(order) if reverse else order:
        have, want = len(state[0]), sizes[t]
        if want > have:  # reading backward, shorter sequences begin here
            state = tuple(torch.cat([part, start[have:want]]) for part, start in zip(state, initial, strict=True))
        elif want < have:  # reading forward, shorter sequences have ended
            done.append(tuple(part[want:] for part in state))
            state = tuple(part[:want] for part in state)
        state = STEPS[layer.kind](xs[t], state, weights, steps[t])
        outputs[t] = state[0]
    final = tuple(torch.cat([part, *ended]) for part, *ended in zip(state, *reversed(done), strict=True))
    return torch.cat(outputs), *final


def inverse_time(layer: Layer, reverse: bool, device: torch.device, time: Tensor | None) -> Tensor:
    """Return 1 / t for every row, in double precision where the device has it; half precision cannot represent large t well."""
    t = positions(layer.sizes, reverse, device)
    if layer.fixed_time and time is not None:
        t = time.clamp_min(1).expand_as(t)
    elif time is not None and not reverse:
        t = t + time  # only forward reading continues a stream; backward, each window starts at its own end
    t = t if layer.time_cap is None else t.clamp_max(layer.time_cap)
    return (1.0 / t.to(torch.float32 if device.type == "mps" else torch.float64))[:, None]


def positions(sizes: list[int], reverse: bool, device: torch.device) -> Tensor:
    """Return the step number of each row, counted from 1 within its own sequence in the direction of reading."""
    count = len(sizes)
    if sizes[-1] == sizes[0]:
        order = torch.arange(count, device=device)
        order = count - order if reverse else order + 1
        return order.repeat_interleave(sizes[0])
    steps = [torch.full((size,), number, device=device) for number, size in enumerate(sizes, 1)]
    if not reverse:
        return torch.cat(steps)
    each = torch.tensor(sizes, device=device)
    lengths = (each[None, :] > torch.arange(sizes[0], device=device)[:, None]).sum(1)
    return torch.cat([lengths[: len(step)] - step + 1 for step in steps])
