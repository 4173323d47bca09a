"""The unit (noisy activation and copy) as one autograd function of torch's own operations, for where no native code serves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from mollifier.activations import Activation
from mollifier.functional import Push
from mollifier.kernels._eager_noise import INTEGERS, channels_last, copied, draw, normals
from mollifier.kernels._eager_push import ENDLESS, choose, only, pushed, relu_input, wide, without
from mollifier.kernels._library import draw_seed
from mollifier.kernels._unit import KEEP, once, strength


@dataclass(frozen=True)
class EagerSpec:
    """What a call needs beside its tensors.

    Attributes:
        act: The activation; None for a copy without noise.
        level: p.
        c: Factor on the noise.
        push: ``"paper"`` or ``"odds"``.
        residual: Add below to what is not copied.
    """

    act: Activation | None
    level: float
    c: float = 0.0
    push: Push = "paper"
    residual: bool = False

    @property
    def strength(self) -> tuple[float, float]:
        """The factor on the noise, and what is added to it."""
        factor, line = strength(self.level, self.c, self.push)
        return factor, ENDLESS if line else 0.0


def eager_unit(x: Tensor, below: Tensor | None, a: Tensor | None, spec: EagerSpec) -> Tensor:
    """φ of Algorithm 1 for x, with what is copied in ``below`` (of x's shape; None: no copy) and a, broadcast against x."""
    if below is not None:
        below = below.to(x.dtype)
    return cast(Tensor, _Unit.apply(x, below, a, spec, torch.is_grad_enabled()))  # type: ignore[no-untyped-call]


class _Unit(torch.autograd.Function):
    """Keeps psi's two derivatives and the copy's mask (9 bytes an element in float32), all zeros where a unit is copied.

    Channels, whose convolutions cost so much more than a unit, and half precision keep their input, and a ReLU only its output, as
    the plain one does; their noise is drawn again from its seed.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, below: Tensor | None, a: Tensor | None, spec: EagerSpec, train: bool) -> Tensor:
        train, dtype = train and any(ctx.needs_input_grad), wide(x)
        ctx.spec, ctx.copies, ctx.dtype = spec, below is not None, dtype
        ctx.noise = draw_seed(), x.shape, channels_last(x)
        ctx.a = None if a is None else (a.shape, a.dtype)
        ctx.kept = train and x.dim() < 4 and x.numel() <= KEEP and x.dtype == dtype
        bits, below = draw(*ctx.noise), None if below is None else below.to(dtype)
        mask = None if below is None else copied(bits, spec.level, dtype)
        if spec.act is None or a is None:
            assert below is not None
            assert mask is not None
            above = x.to(dtype) + below if spec.residual else x.to(dtype)
            ctx.save_for_backward(*([mask.bool()] if ctx.kept else []))
            return choose(mask, below, above, torch.empty_like(above)).to(x.dtype)
        xi = normals(bits, dtype)
        del bits  # memory is scarcer than names
        value, *slopes = pushed(x, xi, a, spec.act, spec.strength, ctx.kept)
        if below is not None and mask is not None:
            choose(mask, below, value.add_(below) if spec.residual else value, value)
        out = value.to(x.dtype)
        ctx.derived = train and not ctx.kept and from_output(spec, x)
        if ctx.kept:
            kept = slopes if mask is None else [*without(mask, *slopes), mask.bool()]
            ctx.save_for_backward(a.sign(), *kept)
        elif train:
            ctx.save_for_backward(out if ctx.derived else x, a)
        return out

    @staticmethod
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor | None, ...]:
        once()
        spec, grad, grad_x, grad_a = ctx.spec, given.to(ctx.dtype), None, None
        if spec.act is None:
            (mask,) = ctx.saved_tensors or (copied(draw(*ctx.noise), spec.level, ctx.dtype),)
        elif ctx.kept:
            sign, by_x, by_a, *rest = ctx.saved_tensors
            mask = rest[0] if rest else None
        else:
            x, a = ctx.saved_tensors
            bits = draw(*ctx.noise)
            mask, xi = copied(bits, spec.level, ctx.dtype) if ctx.copies else None, normals(bits, ctx.dtype)
            x = relu_input(x, xi, a, spec.strength) if ctx.derived else x
            _, by_x, by_a = pushed(x, xi, a, spec.act, spec.strength, True)
            sign = a.sign()
            if mask is not None:
                by_x, by_a = without(mask, by_x, by_a)
        if mask is not None and mask.dtype == torch.bool:
            mask = mask.to(INTEGERS[grad.element_size()]).neg_()
        grad_below = None
        if ctx.needs_input_grad[1]:
            grad_below = given if spec.residual else only(mask, grad).to(given.dtype)
        if ctx.needs_input_grad[0]:
            grad_x = (only(mask.bitwise_not(), grad) if spec.act is None else grad * by_x).to(given.dtype)
        if ctx.needs_input_grad[2]:
            shape, dtype = ctx.a
            grad_a = (grad * by_a).sum_to_size(shape).mul_(sign).to(dtype)
        return grad_x, grad_below, grad_a, None, None


def from_output(spec: EagerSpec, x: Tensor) -> bool:
    """Can x be told from the output? A ReLU's can, and plain torch, too, keeps nothing else of it."""
    act = spec.act
    return act is not None and act.name == "relu" and not spec.residual and x.dtype in (torch.float32, torch.float64)
