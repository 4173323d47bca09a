"""Run a whole sequence through a mollified LSTM or GRU layer in one call, both directions at once; a cell is a sequence of one step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from mollifier.functional import Noise
from mollifier.ops import _operator
from mollifier.ops._loop import Layer, State, Weights, loop
from mollifier.ops._operator import below_autograd, define, draw_seeds, native
from mollifier.ops._unit import unit

# For each direction, states holds h and, for an LSTM, c; weights holds w_ih, w_hh and, if there are biases, b_ih and b_hh; copy_levels holds
# the level of the copy of the layer below, or is empty. a is (directions, activations, hidden). time: the step that the stream had reached
# before, or one t for all rows (fixed_time). seeds: for each direction the seed of its noise, then that of its copy, as far as they are
# drawn. reverse: whether the first direction is the one that reads backward. Returns, for each direction, the output, the final states, two
# tensors for the backward pass and, if there is a copy, the output before it; the levels of the copies come last.
_forward = define(
    "recurrent(Tensor x, Tensor[] states, Tensor[] weights, Tensor? a, Tensor? level, Tensor[] copy_levels, Tensor? time, Tensor seeds, "
    "int[] sizes, bool lstm, bool hard, bool gates, bool expected, float c, bool odds, bool reverse, bool fixed_time, int time_cap, "
    "bool keep) -> Tensor[]"
)
# grads: the gradients of those outputs and final states that `which` marks. kept: for each direction, the two tensors and the output before
# the copy. Returns the gradient of x, if wanted; for each direction those of its states, if wanted, and of its weights; and that of a.
_backward = define(
    "recurrent_backward(Tensor[] grads, int[] which, Tensor x, Tensor[] states, Tensor[] weights, Tensor? a, Tensor[] kept, "
    "Tensor levels, Tensor seeds, int[] sizes, bool lstm, bool hard, bool gates, bool expected, bool reverse, bool by_x, "
    "bool by_states) -> Tensor[]"
)


def recurrent(
    x: Tensor,
    states: Sequence[State],
    weights: Sequence[Weights],
    layer: Layer,
    *,
    a: Tensor | None = None,
    level: Tensor | None = None,
    copy_levels: Sequence[Tensor] = (),
    time: Tensor | None = None,
    gate_noise: Noise | Tensor = "sample",
    act_noise: Noise | Tensor = "sample",
) -> list[State]:
    """Return, for each direction, the output rows, the final h and, for an LSTM, the final c.

        >>> import torch
        >>> x, state, weights = torch.randn(6, 3), (torch.zeros(2, 4),), [torch.randn(12, 3), torch.randn(12, 4), None, None, None]
        >>> ((out, final),) = recurrent(x, [state], [weights], Layer("GRU", sizes=[2, 2, 2]))
        >>> out.shape, final.shape
        (torch.Size([6, 4]), torch.Size([2, 4]))

    Args:
        x: The input, (rows, inputs): the rows of step 1, then those of step 2, …
        states: For each direction, (h, c) for an LSTM, else (h,), each (batch, hidden).
        weights: For each direction, w_ih, w_hh, b_ih, b_hh and w_hr; all but the first two may be None.
        layer: All other settings of the layer.
        a: The learned scales, (directions, activations, hidden), if the activations are noisy.
        level: p; None for a plain layer.
        copy_levels: p of the copy of the layer below into each direction's output, with the same kind of noise as the gates; empty for no copy.
        time: The step that a stream had reached before, or one t for all rows.
        gate_noise: A mode, or draws (rows, directions, gates, hidden), see `mollifier.functional`.
        act_noise: A mode, or draws (rows, directions, activations, hidden).
    """
    kind = gate_noise if layer.gates else act_noise
    if not _serves(x, states, weights, layer, kind, kind if a is None else act_noise):
        found = loop(x, states, weights, layer, a, level, time, gate_noise, act_noise)
        return _copied(found, x, copy_levels, gate_noise)
    lstm, expected = layer.kind == "LSTM", kind == "expected"
    noisy = level is not None and (layer.gates or a is not None) and not expected
    seeds = draw_seeds(len(states) * (noisy + (bool(copy_levels) and not expected)))
    every = [each for some in states for each in some], [each for some in weights for each in some if each is not None]
    options = lstm, layer.gate == "hard_sigmoid", layer.gates and level is not None, expected, layer.c
    more = layer.push == "odds", layer.reverse, layer.fixed_time, layer.time_cap or 0
    run: Any = _forward if torch.compiler.is_compiling() else _autograd
    keep = torch.is_grad_enabled()
    found = run(x, *every, a, level, list(copy_levels), time, seeds, layer.sizes, *options, *more, keep)
    each = len(found) // len(states)
    return [tuple(found[k * each : k * each + 2 + lstm]) for k in range(len(states))]


def _serves(
    x: Tensor, states: Sequence[State], weights: Sequence[Weights], layer: Layer, kind: Any, other: Any
) -> bool:
    """Return whether the operator supports such a layer with these types and one kind of noise, and the native library can process it now."""
    return (
        isinstance(kind, str)
        and kind != "exact"
        and (other is kind or other == kind)
        and layer.kind != "RNN"
        and layer.activation is None
        and not (layer.gates and layer.unbiased)
        and x.dtype in (torch.float32, torch.float64)
        and all(w_hr is None and w_ih is not None and w_ih.dtype == x.dtype for w_ih, *_, w_hr in weights)
        and all(part.dtype == x.dtype for state in states for part in state)
        and not torch.is_autocast_enabled("cpu")
        and x.numel() > 0
        and native(x)
    )


def _copied(found: list[State], x: Tensor, levels: Sequence[Tensor], noise: Noise | Tensor) -> list[State]:
    """Return the same results with the layer below copied into the output of each direction."""
    if not levels:
        return found
    return [
        (unit(out, x, None, None, level=level, uniform=noise), *final)
        for (out, *final), level in zip(found, levels, strict=True)
    ]


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, rest: tuple[Any, ...], count: int, x: Tensor, a: Tensor | None, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        states, weights = tensors[:count], tensors[count:]
        level, copies, time, seeds, sizes, lstm, hard, gates, expected, *_, reverse, _, _ = rest
        with below_autograd():
            found = _forward(x, states, weights, a, *rest, True)
        directions, parts = count // (1 + lstm), 2 + lstm
        each = len(found) // directions
        aside, kept = [found[-1]], []
        for k in range(0, directions * each, each):
            aside += found[k + parts : k + each]
            kept += [*found[k + parts : k + parts + 2], found[k + parts + 2] if copies else found[k]]
        ctx.save_for_backward(x, a, seeds, found[-1], *tensors, *kept)
        ctx.rest = count, len(tensors), sizes, lstm, hard, gates, expected, reverse
        # A pass without random draws can be differentiated again; level and time are cloned because they may have changed by then.
        ctx.again = None
        if expected or level is None:
            ctx.again = rest, *(None if each is None else each.clone() for each in (level, time))
        ctx.mark_non_differentiable(*aside)
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        x, a, seeds, levels, *saved = ctx.saved_tensors
        count, all_, sizes, lstm, hard, gates, expected, reverse = ctx.rest
        if torch.is_grad_enabled():
            if ctx.again is None:
                _operator.refuse_second()
            return _again(ctx, grads, x, a, levels, saved)
        states, weights, kept = saved[:count], saved[count:all_], saved[all_:]
        directions = count // (1 + lstm)
        each, parts = len(grads) // directions, 2 + lstm
        above = [grad for k in range(directions) for grad in grads[k * each : k * each + parts]]
        given = [grad for grad in above if grad is not None]
        by_x, by_states = ctx.needs_input_grad[2], any(ctx.needs_input_grad[4 : 4 + count])
        which, settings = [grad is not None for grad in above], (lstm, hard, gates, expected, reverse, by_x, by_states)
        found = iter(_backward(given, which, x, states, weights, a, kept, levels, seeds, sizes, *settings))
        grad_x = next(found) if by_x else None
        of_states: list[Tensor | None] = []
        of_weights: list[Tensor] = []
        for _ in range(directions):
            of_states += [next(found) if by_states else None for _ in range(1 + lstm)]
            of_weights += [next(found) for _ in range(len(weights) // directions)]
        return None, None, grad_x, None if a is None else next(found), *of_states, *of_weights


# This skips what Function.apply does for functorch, because the operator has its own rule for vmap.
_apply: Callable[..., Any] = super(torch.autograd.Function, _Layer).apply


def _again(
    ctx: Any, grads: Sequence[Tensor | None], x: Tensor, a: Tensor | None, levels: Tensor, saved: list[Tensor]
) -> tuple[Tensor | None, ...]:
    """The gradients of expected values as functions that can be differentiated again, by the loop."""
    (_, _, _, _, sizes, lstm, hard, gates, _, c, odds, reverse, fixed, cap), level, time = ctx.again
    count, all_ = ctx.rest[:2]
    directions, states, weights = count // (1 + lstm), saved[:count], saved[count:all_]
    mine, own, each = (len(some) // directions for some in (states, weights, grads))
    layer = Layer("LSTM" if lstm else "GRU", sizes, "hard_sigmoid" if hard else "sigmoid", None, reverse, gates)
    layer.c, layer.push, layer.fixed_time, layer.time_cap = c, "odds" if odds else "paper", fixed, cap or None
    with torch.enable_grad():
        of_each = [tuple(states[k * mine : (k + 1) * mine]) for k in range(directions)]
        by = [[*weights[k * own : (k + 1) * own], *[None] * (5 - own)] for k in range(directions)]
        found = loop(x, of_each, by, layer, a, level, time, "expected", "expected")
        found = _copied(found, x, levels.unbind(), "expected")
        outs = [out for final in found for out in final]
        above = [grad for k in range(directions) for grad in grads[k * each : k * each + 2 + lstm]]
        pairs = [(out, grad) for out, grad in zip(outs, above, strict=True) if grad is not None]
        given = [out for out, _ in pairs], [grad for _, grad in pairs], [None, None, x, a, *states, *weights]
        result: tuple[Tensor | None, ...] = _operator.gradients_again(ctx, *given)
    return result


def _fake(
    x: Tensor, states: list[Tensor], weights: list[Tensor], a: Any, level: Any, copies: list[Tensor], *rest: Any
) -> list[Tensor]:
    sizes, lstm, keep = rest[2], rest[3], rest[-1]
    batch, hidden = states[0].shape
    found = []
    for _ in range(len(states) // (1 + lstm)):
        wide = hidden * (4 if lstm else 3)
        found += [x.new_empty(len(x), hidden), *(x.new_empty(batch, hidden) for _ in range(1 + lstm))]
        found += [x.new_empty(len(x), wide), x.new_empty(len(x) if keep else sizes[0], wide)]
        found += [x.new_empty(len(x), hidden)] if copies else []
    return [*found, x.new_empty(len(copies), dtype=torch.float64)]


def _fake_backward(
    grads: Any, which: Any, x: Tensor, states: list[Tensor], weights: list[Tensor], a: Tensor | None, *rest: Any
) -> list[Tensor]:
    lstm, (by_x, by_states) = rest[4], rest[-2:]
    found = [torch.empty_like(x, memory_format=torch.contiguous_format)] if by_x else []
    directions = len(states) // (1 + lstm)
    for k in range(directions):
        mine = states[k * (1 + lstm) : (k + 1) * (1 + lstm)] if by_states else []
        own = weights[k * len(weights) // directions : (k + 1) * len(weights) // directions]
        found += [torch.empty_like(each, memory_format=torch.contiguous_format) for each in (*mine, *own)]
    return found if a is None else [*found, torch.empty_like(a, memory_format=torch.contiguous_format)]


def _autograd(x: Tensor, states: list[Tensor], weights: list[Tensor], a: Tensor | None, *rest: Any) -> list[Tensor]:
    tensors = x, a, *states, *weights
    if torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in tensors):
        return list(_apply(rest[:-1], len(states), *tensors))
    with below_autograd():
        return cast("list[Tensor]", _forward(x, states, weights, a, *rest))


_operator.register("recurrent", fake=_fake, autograd=_autograd)
_operator.register("recurrent_backward", fake=_fake_backward)
torch.library.register_autocast("mollifier::recurrent", "cpu", torch.float32)
