"""Compute the unit, noisy activation and copy of the unit below, in one pass over the data; its noise is hashed from a seed, never stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from mollifier import functional
from mollifier.activations import Activation
from mollifier.functional import Noise, Push
from mollifier.ops import _operator
from mollifier.ops._operator import RELU, RELU_OUTPUT, below_autograd, define, draw_seed, knows, native, numbers

# Up to this number of elements, psi's derivatives for features are kept for the backward pass (8 bytes per element in float32). For larger
# inputs, and for channels, whose convolutions cost much more than a unit, they are computed again (4 bytes).
KEEP = 1 << 20
HEAD = 64  # bytes stored before the derivatives

# level is that of the noise. act: see `numbers`; empty for a copy without noise. below has x's shape, except that it may have fewer units:
# they are padded with zeros. a is float64 if x is, else float32. keep: whether psi's derivatives are kept for a backward pass. Returns the
# output and what is kept: the levels and the seed as they were, and the derivatives.
_forward = define(
    "unit(Tensor x, Tensor? below, Tensor? a, Tensor level, Tensor copy_level, Tensor seed, float[] act, float c, bool odds, "
    "int unit_dim, bool residual, bool expected, bool keep) -> (Tensor, Tensor)"
)
# x: the input, or the output of a ReLU (kind `RELU_OUTPUT`), or None if the derivatives were kept. last: whether the channels are last in
# memory. Returns the gradients with respect to x, below and a; a gradient that does not exist has no elements.
_backward = define(
    "unit_backward(Tensor grad, Tensor? x, Tensor kept, Tensor? a, float[] act, float c, bool odds, int unit_dim, "
    "int in_units, bool residual, bool expected, bool last, bool by_below) -> (Tensor, Tensor, Tensor)"
)
Two = tuple[Tensor, Tensor]


def unit(
    x: Tensor,
    below: Tensor | None,
    a: Tensor | None,
    act: Activation | None,
    *,
    level: Tensor,
    copy_level: Tensor | None = None,
    c: float = 20.0,
    push: Push = "paper",
    unit_dim: int = -1,
    residual: bool = False,
    normal: Noise | Tensor = "sample",
    uniform: Noise | Tensor | None = None,
) -> Tensor:
    """Compute φ of Algorithm 1 for x, copying from ``below`` (None: no copy), with the learned a (one for all units, or one per unit).

        >>> import torch
        >>> from mollifier.activations import activation
        >>> x, level = torch.randn(8, 5), torch.tensor(0.5)
        >>> unit(x, torch.randn(8, 3), torch.ones(5), activation("tanh"), level=level).shape
        torch.Size([8, 5])

    Args:
        x: The pre-activations.
        below: The values to copy; if there are fewer units than in x, they are padded with zeros.
        a: Scale of the saturation; None for a copy without noise.
        act: The activation; None for a copy without noise.
        level: p of the noise.
        copy_level: p of the copy; the same as level if it is not given.
        c: Factor on the noise.
        push: ``"paper"`` or ``"odds"``.
        unit_dim: The dimension of the units, counted from the end.
        residual: Whether below is added to the units that are not copied.
        normal: Noise of the activation, see `mollifier.functional`.
        uniform: Noise of the copy; of the same kind as normal if it is not given.
    """
    if x.dim() < -unit_dim:
        return _without_units(x, below, a, act, level=level, copy_level=copy_level, c=c, push=push, residual=residual, normal=normal, uniform=uniform)  # fmt: skip
    copy_level, uniform = level if copy_level is None else copy_level, normal if uniform is None else uniform
    kind = normal if act is not None else uniform
    known = isinstance(kind, str) and kind != "exact" and (below is None or uniform is kind or uniform == kind)
    if not (known and (act is None or knows(act)) and native(x)):
        return reference(x, below, a, act, level, copy_level, c, push, unit_dim, residual, normal, uniform)
    if below is not None and below.dtype != x.dtype:
        below = below.to(x.dtype)
    if a is not None and a.dtype != (wide := torch.float64 if x.dtype == torch.float64 else torch.float32):
        a = a.to(wide)
    expected = kind == "expected"
    keep = unit_dim == -1 and act is not None and not expected and x.numel() <= KEEP and torch.is_grad_enabled()
    settings = numbers(act), c, push == "odds", unit_dim, residual, expected
    if torch.compiler.is_compiling():
        seed = _operator.draw_seeds(0 if expected else 1)
        return cast(Tensor, _forward(x, below, a, level, copy_level, seed, *settings, False)[0])
    seed = _operator.NO_SEED if expected else draw_seed()
    return cast(Tensor, _run(False, x, below, a, level, copy_level, seed, *settings, keep))


def _without_units(
    x: Tensor, below: Tensor | None, a: Tensor | None, act: Activation | None, **settings: Any
) -> Tensor:
    """Compute the unit for a tensor that has no dimension for units, such as a single number: one a for all, and a copy of the same shape."""
    if (a is not None and a.numel() != 1) or (below is not None and below.shape != x.shape):
        shapes = ", ".join(str(tuple(each.shape)) for each in (below, a) if each is not None)
        raise ValueError(f"a tensor of shape {tuple(x.shape)} has no dimension for units; with it were given {shapes}")
    flat = [each if each is None or each.layout is not torch.strided else each.reshape(-1) for each in (x, below)]
    noises = {name: settings.pop(name) for name in ("normal", "uniform")}
    noises = {name: each.reshape(-1) if isinstance(each, Tensor) else each for name, each in noises.items()}
    return unit(cast(Tensor, flat[0]), flat[1], a, act, **settings, **noises).view(x.shape)


def reference(
    x: Tensor,
    below: Tensor | None,
    a: Tensor | None,
    act: Activation | None,
    level: Tensor,
    copy_level: Tensor,
    c: float,
    push: Push,
    unit_dim: int,
    residual: bool,
    normal: Noise | Tensor,
    uniform: Noise | Tensor,
) -> Tensor:
    """Compute the same with `mollifier.functional`; used where the library cannot be, and for second derivatives."""
    functional.refuse_nested(x)
    above = x
    if act is not None and a is not None:
        shaped = a if a.numel() == 1 else a.view(-1, *(1,) * (-unit_dim - 1))
        above = functional.noisy_activation(x, act, level=level, a=shaped, c=c, noise=normal, push=push)
    if below is None:
        return above
    short = F.pad(below, (0, 0) * (-unit_dim - 1) + (0, x.shape[unit_dim] - below.shape[unit_dim])).to(above.dtype)
    return functional.copy_mix(short, above + short if residual else above, level=copy_level, noise=uniform)


class _Unit(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, below: Tensor | None, a: Tensor | None, rest: tuple[Any, ...], whole: bool
    ) -> Tensor | Two:
        """Run the operator; ``rest`` holds its other arguments, and ``whole`` asks for all its results instead of the output alone."""
        with below_autograd():
            out, kept = _forward(x, below, a, *rest)
        _, _, _, act, c, odds, unit_dim, residual, expected, keep = rest
        if keep or not act:
            saved = None
        elif _by_output(act, residual, expected and below is not None, x):
            saved, act = out, [RELU_OUTPUT, *act[1:]]
        else:
            saved = x
        ctx.save_for_backward(saved, kept, a)
        last = unit_dim == -3 and _channels_last(out)
        ctx.rest = (act, c, odds, unit_dim, residual, expected), last, None if below is None else below.shape
        if not whole:
            return cast(Tensor, out)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(kept)
        return out, kept

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 5
        x, kept, a = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _again(ctx, grad, x, kept, a)
        (act, c, odds, unit_dim, residual, expected), last, below = ctx.rest
        in_units, by_below = (0, False) if below is None else (below[unit_dim], ctx.needs_input_grad[1])
        settings = act, c, odds, unit_dim, in_units, residual, expected, last, by_below
        grad_x, grad_below, grad_a = _backward(grad, x, kept, a, *settings)
        return grad_x, grad_below if by_below else None, None if a is None else grad_a, None, None


# This skips what Function.apply does for functorch, because the operator has its own rule for vmap.
_apply: Callable[..., Tensor | Two] = super(torch.autograd.Function, _Unit).apply


def _run(whole: bool, x: Tensor, below: Tensor | None, a: Tensor | None, *rest: Any) -> Tensor | Two:
    """Run the operator, in a node of the graph if a derivative may be wanted; return all its results, or the output alone."""
    if torch.is_grad_enabled() and (
        x.requires_grad or (below is not None and below.requires_grad) or (a is not None and a.requires_grad)
    ):
        return _apply(x, below, a, rest, whole)
    with below_autograd():
        found: Two = _forward(x, below, a, *rest)
    return found if whole else found[0]


def _again(ctx: Any, grad: Tensor, x: Tensor | None, kept: Tensor, a: Tensor | None) -> tuple[Tensor | None, ...]:
    """Compute the gradients with the reference and the same noise, so that they can be differentiated again."""
    (act, *rest), last, shape = ctx.rest
    if act and (x is None or act[0] == RELU_OUTPUT):  # the input was not kept
        _operator.refuse_second()
    first, second = 16 // kept.element_size(), 24 // kept.element_size()
    levels, seed = kept[:first].view(torch.float64).unbind(), kept[first:second].view(torch.int64)
    below = None if shape is None else grad.new_zeros(shape).requires_grad_()  # the result is linear in it
    x = grad.detach() if x is None else x  # a copy without noise is also linear in x
    x = x if x.requires_grad else x.detach().requires_grad_()
    with torch.enable_grad():
        given: Any = *levels, seed, act, *rest
        out = _by_reference(last, x, below, a, *given)
        found: tuple[Tensor | None, ...] = _operator.gradients_again(ctx, [out], [grad], [x, below, a, None, None])
    return found


def _by_reference(
    last: bool, x: Tensor, below: Tensor | None, a: Tensor | None, level: Tensor, copy_level: Tensor, seed: Tensor, act: list[float], c: float, odds: bool,
    unit_dim: int, residual: bool, expected: bool
) -> Tensor:  # fmt: skip
    """Compute the reference with the kernels' noise; elements are numbered in memory order, in which channels may come last."""
    shape = x.movedim(1, -1).shape if last else x.shape
    noises = _operator.noise_for(x, shape, seed, expected)
    if last and not expected:
        noises = noises[0].movedim(-1, 1), noises[1].movedim(-1, 1)
    push: Push = "odds" if odds else "paper"
    settings = level, copy_level, c, push, unit_dim, residual
    return reference(x, below, a, _operator.of_numbers(act), *settings, *noises)


def _composite(x: Tensor, *rest: Any) -> Two:
    """Compute the operator where there is no kernel: by the reference, with the kernels' noise, differentiated by torch."""
    return _by_reference(False, x, *rest[:-1]), x.new_empty(0)


def _by_output(act: list[float], residual: bool, mixed: bool, x: Tensor) -> bool:
    """Return whether the derivatives follow from the output, as a ReLU's do; for a plain ReLU, too, torch keeps only the output."""
    return act[0] == RELU and not residual and not mixed and x.dtype != torch.bfloat16


def _channels_last(x: Tensor) -> bool:
    return x.dim() == 4 and not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last)


def _room(x: Tensor, unit_dim: int, units: int | None = None, last: bool | None = None) -> Tensor:
    """Return an empty tensor laid out like the kernels' results, with the given number of units."""
    shape = list(x.shape)
    shape[unit_dim] = shape[unit_dim] if units is None else units
    last = (unit_dim == -3 and _channels_last(x)) if last is None else last
    return x.new_empty(shape).contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)


def _fake(x: Tensor, *rest: Any) -> Two:
    unit_dim, keep = rest[8], rest[11]
    return _room(x, unit_dim), x.new_empty(HEAD // x.element_size() + (2 * x.numel() if keep else 0))


def _fake_backward(grad: Tensor, x: Any, kept: Any, a: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    unit_dim, in_units, last, by_below = rest[3], rest[4], rest[7], rest[8]
    below = _room(grad, unit_dim, in_units if by_below else 0, last)
    return _room(grad, unit_dim, last=last), below, grad.new_empty(0) if a is None else torch.empty_like(a)


_operator.register("unit", fake=_fake, autograd=lambda *given: _run(True, *given), reference=_composite)
_operator.register("unit_backward", fake=_fake_backward)
