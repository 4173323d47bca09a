"""Algorithm 1's push in torch's own operations, with its derivatives, and choices by masks of bits."""

from __future__ import annotations

import torch
from torch import Tensor

from mollifier.activations import Activation
from mollifier.kernels._eager_noise import INTEGERS

ENDLESS = 1e30  # added to the push where psi is the tangent itself


def pushed(
    x: Tensor, xi: Tensor, a: Tensor, act: Activation, strength: tuple[float, float], slopes: bool
) -> tuple[Tensor, ...]:
    """The value ψ = f + clip(u - f, -s, s) and, if asked, its derivatives by x and by |a|.

    s = k/4 tanh²(|a| Δ / 2) |ξ| with Δ = |u - f|. xi is overwritten.
    """
    x, a = x.to(xi.dtype), a.to(xi.dtype).abs()
    factor, extra = strength
    f, d = _value_and_slope(act, x, slopes)
    gap = (act.offset - f).add_(x, alpha=act.slope)
    distance = gap.abs()
    tanh = torch.mul(distance, 0.5 * a).tanh_()
    half = xi.mul_(tanh).mul_(0.25 * factor)
    s = torch.mul(half, tanh)
    if extra:
        s += extra
    if not slopes or d is None:
        return (f.add_(gap.clamp_(s.neg(), s)),)
    part = _sign_mask(distance.sub_(s)).bitwise_not_()  # where the push does not reach the tangent
    by_s = tanh.square_().neg_().add_(1.0).mul_(half)  # ds / d(|a| Δ)
    by_a = only_(part, torch.mul(by_s, gap))
    rest = only_(part, d.neg_().add_(act.slope).mul_(by_s.mul_(a).neg_().add_(1.0)))
    return f.add_(gap.clamp_(s.neg(), s)), rest.neg_().add_(act.slope), by_a


def relu_input(out: Tensor, xi: Tensor, a: Tensor, strength: tuple[float, float]) -> Tensor:
    """The x whose noisy ReLU is ``out``: out itself where it is positive or the push is whole, else by the inverse of s."""
    a = a.to(xi.dtype).abs()
    factor, extra = strength
    depth = out.neg().clamp_min_(0.0)
    tanh = torch.mul(depth, 0.5 * a).tanh_()
    s = torch.mul(tanh, xi).mul_(0.25 * factor).mul_(tanh).add_(extra)  # as above, to the last bit
    tanh = (
        torch.div(depth, xi, out=tanh)
        .mul_(4.0 / max(factor, 1e-30))
        .sqrt_()
        .clamp_max_(1.0 - torch.finfo(xi.dtype).eps)
    )
    return torch.where(s >= depth, out, tanh.atanh_().mul_(-2.0).div_(a))


def _value_and_slope(act: Activation, x: Tensor, slope: bool) -> tuple[Tensor, Tensor | None]:
    """The value f in memory of its own, and its derivative."""
    if act.name == "sigmoid":
        f = torch.sigmoid(x)
        return f, torch.addcmul(f, f, f, value=-1.0) if slope else None
    if act.name == "tanh":
        f = torch.mul(x, 2.0).sigmoid_().mul_(2.0).sub_(1.0)
        return f, f.square().neg_().add_(1.0) if slope else None
    if act.name == "relu":
        f = torch.relu(x)
        return f, f.sign() if slope else None
    if not slope:
        return act.f(x), None
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        y = act.f(leaf)
        (d,) = torch.autograd.grad(y, leaf, torch.ones_like(y))
    return y.detach(), d


def wide(x: Tensor) -> torch.dtype:
    """The type that is computed in."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _bits(x: Tensor) -> Tensor:
    return x.view(INTEGERS[x.element_size()])


def _sign_mask(x: Tensor) -> Tensor:
    """All bits set where x is negative; written over x."""
    return _bits(x).bitwise_right_shift_(8 * x.element_size() - 1)


def choose(mask: Tensor, one: Tensor, other: Tensor, out: Tensor) -> Tensor:
    """Of one where the mask is set, else of the other. What is not taken may be anything: it is not multiplied by 0."""
    differ = torch.bitwise_xor(_bits(one), _bits(other)).bitwise_and_(mask)
    torch.bitwise_xor(differ, _bits(other), out=_bits(out))
    return out


def only(mask: Tensor, x: Tensor) -> Tensor:
    """0 where the mask is not set."""
    return torch.bitwise_and(_bits(x), mask).view(x.dtype)


def only_(mask: Tensor, x: Tensor) -> Tensor:
    """The same, in place."""
    _bits(x).bitwise_and_(mask)
    return x


def without(mask: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
    """0 where the mask is set, in place."""
    rest = mask.bitwise_not()
    return tuple(only_(rest, each) for each in tensors)
