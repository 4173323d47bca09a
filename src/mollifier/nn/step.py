"""Binary units: the step and the sign, mollified into functions that have a derivative."""

from __future__ import annotations

import math
from typing import Any, Literal, cast

import torch
from torch import Tensor

from mollifier.functional import Noise, copy_mix, normal_like, uniform_like
from mollifier.nn._annealed import Annealed

HardGradient = Literal["weak", "straight_through", "exact"]
TINY = 1e-12  # a kernel of width 0 would divide 0 by 0 at x = 0


class _Binary(Annealed):
    """The base of `Step` and `Sign`, which holds the low value (the high one is 1) and the kernel's width at level 1."""

    low = -1.0
    default_width = 1.0

    def __init__(
        self,
        *,
        level: float = 1.0,
        width: float | None = None,
        narrowing: float = 0.25,
        hard_gradient: HardGradient = "weak",
        train_noise: Noise = "sample",
        eval_noise: Noise = "expected",
    ) -> None:
        super().__init__(level, train_noise, eval_noise)
        width = self.default_width if width is None else float(width)
        if not 0.0 < width < math.inf or not 0.0 < narrowing < math.inf:
            raise ValueError(f"width={width}, narrowing={narrowing}: expected numbers above 0")
        if hard_gradient not in ("weak", "straight_through", "exact"):
            raise ValueError(f"hard_gradient={hard_gradient!r}: expected 'weak', 'straight_through' or 'exact'")
        self.width, self.narrowing, self.hard_gradient = width, float(narrowing), hard_gradient

    def forward(self, x: Tensor) -> Tensor:
        if not self.active:
            return self.pass_through(self.hard(x))
        if self.known_level() is not None:
            return self.mixed(x)
        return torch.where(
            self.level > 0.0, self.mixed(x), self.hard(x)
        )  # the level may be 0 without the host knowing it

    def mixed(self, x: Tensor) -> Tensor:
        """Return the tangent with probability p and otherwise the function of its noisy input, or the mean of this mixture."""
        pi, xi = self.uniform(x), self.normal(x)
        if isinstance(pi, Tensor) or pi == "sample":
            pi = uniform_like(x) if isinstance(pi, str) else pi
            xi = normal_like(x) if isinstance(xi, str) else xi
            return copy_mix(self.tangent(x), self.noisy(x, xi), level=self.level, noise=pi)
        return copy_mix(self.tangent(x), self.smooth(x), level=self.level, noise="expected")

    def tangent(self, x: Tensor) -> Tensor:
        """Return the line at level 1, which is the tangent at 0 of the smooth curve of that level."""
        return self.slope * x + 0.5 * (1.0 + self.low)

    @property
    def slope(self) -> float:
        """The slope of the tangent."""
        return float((1.0 - self.low) * _density(0.0, self.width))

    @property
    def sigma(self) -> Tensor:
        """The standard deviation of the kernel at this level."""
        return (self.width * self.level**self.narrowing).clamp_min(TINY)

    def smooth(self, x: Tensor) -> Tensor:
        """Return the hard function convolved with the kernel, E f(x - σ ξ) with ξ ~ N(0, 1), in closed form."""
        return self.low + (1.0 - self.low) * 0.5 * (1.0 + torch.erf(x / (self.sigma * math.sqrt(2.0))))

    def noisy(self, x: Tensor, xi: Tensor) -> Tensor:
        """Return the binary f(x - σ ξ) with the derivative of its mean, since a sample itself has none."""
        mean = self.smooth(x)
        return _hard(x - self.sigma.to(x.dtype) * xi, self.low).detach() + (mean - mean.detach())

    def hard(self, x: Tensor) -> Tensor:
        """Return the function itself, with the derivative that ``hard_gradient`` names."""
        if self.hard_gradient == "exact":
            return _hard(x, self.low)
        return cast(Tensor, _Hard.apply(x, self.low, self.width, self.hard_gradient))  # type: ignore[no-untyped-call]

    def extra_repr(self) -> str:
        return f"width={self.width:.3g}, hard_gradient={self.hard_gradient!r}, {super().extra_repr()}"


class Step(_Binary):
    """A unit that is 0 or 1: ``1 if x >= 0 else 0`` at level 0, the line ``x / 4 + 1/2`` at level 1.

        >>> import torch
        >>> from mollifier.nn import Step
        >>> unit, x = Step().eval(), torch.tensor([-2.0, 0.0, 2.0])
        >>> unit(x)
        tensor([0.0000, 0.5000, 1.0000])
        >>> unit.set_level(0)
        >>> unit(x)
        tensor([0., 1., 1.])

    A step has no tangent to be pushed toward, and Algorithm 1 would not remove its jump. It is therefore mollified by a kernel
    first (section 2 of the paper): with probability p a unit returns its tangent, otherwise the step of its noisy input,
    ``π u(x) + (1 - π) step(x - σ ξ)``. The mean, ``p u + (1 - p) Φ(x / σ)``, has a derivative at every level above 0; it is what eval()
    computes and what the samples pass gradients through. It is an `Annealed` module: `mollifier.set_level` and `Annealer` drive
    it without any conversion, and nothing has to be restored at level 0.

    Args:
        level: The level p, from 1 (mollified) to 0 (hard).
        width: σ at level 1. The default makes the slope of the tangent 1/4, like that of the sigmoid.
        narrowing: The exponent in σ = width · p ** narrowing. At 1, σ is proportional to the level, and gradients soon vanish or explode.
        hard_gradient: The derivative at level 0. ``"weak"``: the weak derivative, a Dirac, smoothed by the kernel of the given width.
            ``"straight_through"``: that of the tangent where it lies between low and high, and 0 elsewhere. ``"exact"``: 0.
        train_noise: The noise mode in train(): ``"sample"``, or ``"expected"`` (here the same as ``"exact"``).
        eval_noise: The noise mode in eval().
    """

    low = 0.0
    default_width = 4.0 / math.sqrt(2.0 * math.pi)


class Sign(_Binary):
    """A unit that is -1 or 1: ``1 if x >= 0 else -1`` at level 0, the line ``x`` at level 1. It takes the arguments of `Step`.

    >>> import torch
    >>> from mollifier.nn import Sign
    >>> Sign(level=0)(torch.tensor([-0.3, 0.0, 4.0]))
    tensor([-1.,  1.,  1.])
    """

    low = -1.0
    default_width = math.sqrt(2.0 / math.pi)


def _hard(x: Tensor, low: float) -> Tensor:
    return torch.where(x >= 0, 1.0, low).to(x.dtype)


def _density(x: Any, sigma: float) -> Any:
    square = -0.5 * (x / sigma) ** 2
    top = torch.exp(square) if isinstance(x, Tensor) else math.exp(square)
    return top / (sigma * math.sqrt(2.0 * math.pi))


class _Hard(torch.autograd.Function):
    """The hard function with a surrogate derivative."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, low: float, width: float, kind: str) -> Tensor:
        return _hard(x, low)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, *ctx.settings = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (x,), (low, width, kind) = ctx.saved_tensors, ctx.settings
        height = 1.0 - low
        if kind == "weak":
            slope = height * _density(x, width)
        else:
            line = height * _density(0.0, width)
            slope = line * (line * x.abs() <= 0.5 * height)
        return grads[0] * slope, None, None, None
