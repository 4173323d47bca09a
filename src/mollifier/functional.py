"""The method as pure functions of tensors: Algorithm 1, the copy mix, the gates. All other implementations are tested against these.

    >>> import torch
    >>> from mollifier.functional import copy_mix, noisy_activation
    >>> below, x = torch.randn(8, 5), torch.randn(8, 5)
    >>> above = noisy_activation(x, "sigmoid", level=0.5, a=torch.ones(5))
    >>> copy_mix(below, above, level=0.5).shape
    torch.Size([8, 5])

Every function takes its randomness in the argument ``noise``:

- ``"sample"``: new draws, from ``generator`` or torch's own;
- ``"expected"``: the noise is replaced by its mean, E|ξ| = sqrt(2/π) and E[π] = p, as in the paper's inference;
- ``"exact"``: the expectation of the result itself, in closed form (for sigmoid gates, by quadrature);
- a tensor: these draws (standard normal for the activation, uniform on [0, 1) for the copy), e.g. frozen ones.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from mollifier.activations import Activation, activation as find, hard_sigmoid

Noise = Literal["sample", "expected", "exact"]
Push = Literal["paper", "odds"]
Gate = Literal["sigmoid", "hard_sigmoid"]
HALF_NORMAL_MEAN = math.sqrt(2.0 / math.pi)


def normal_like(x: Tensor, generator: Generator | None = None) -> Tensor:
    """Draw ξ ~ N(0, 1), one per element of x."""
    return torch.randn(x.shape, dtype=x.dtype, device=x.device, **_from(generator))


def uniform_like(x: Tensor, generator: Generator | None = None) -> Tensor:
    """Draw from U[0, 1), once per element of x, in at least float32: half precision has too few values near 1 for ``U < p``."""
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    return torch.rand(x.shape, dtype=dtype, device=x.device, **_from(generator))


def _from(generator: Generator | None) -> dict[str, Any]:
    # Not generator=None: torch 2.8 cannot compile that for a batch size that changes.
    return {} if generator is None else {"generator": generator}


def refuse_nested(x: Tensor) -> None:
    """Refuse a nested tensor, whose rows have different lengths: torch has neither noise of its shape nor most of what a copy needs."""
    if x.is_nested:
        raise ValueError(
            "a nested tensor cannot be mollified: pad it before this layer (x.to_padded_tensor(0.0)), or leave the layer out with mollify(model, exclude=…)"
        )


def noise_scale(saturation: Tensor, a: Tensor | float) -> Tensor:
    """Compute σ(x) = (sigmoid(a Δ) - 1/2)² (Alg. 1, line 3), written as tanh²(a Δ / 2) / 4, which loses no digits near 0.

    >>> noise_scale(torch.tensor([0.0, 2.0]), 1.0)
    tensor([0.0000, 0.1450])
    """
    return 0.25 * torch.tanh(0.5 * a * saturation).square()


def noisy_activation(
    x: Tensor,
    activation: str | nn.Module | Activation = "sigmoid",
    *,
    level: Tensor | float,
    a: Tensor | float,
    c: Tensor | float = 20.0,
    noise: Noise | Tensor = "sample",
    push: Push = "paper",
    generator: Generator | None = None,
) -> Tensor:
    """Compute ψ(x, ξ), Algorithm 1: the activation f, pushed toward its tangent u by noise that grows with its saturation.

        >>> import torch
        >>> x = torch.tensor([-6.0, 0.0, 6.0])
        >>> noisy_activation(x, "tanh", level=0.0, a=1.0)                                    # f itself
        tensor([-1.0000,  0.0000,  1.0000])
        >>> noisy_activation(x, "tanh", level=1.0, a=1.0, c=1e6, noise="expected")           # its tangent
        tensor([-6.,  0.,  6.])

    Lines 1 to 5 are the paper's. Line 6, ``sgn(u*) min(|u*|, |f* + sgn(u*) |s||) + u(0)``, is written as the equal
    ``f + clip(u - f, -s, s)``. It is f to the last bit at s = 0, it contains the ReLU form of the appendix, and it
    also works where f lies outside its tangent (softplus, SiLU, GELU, Mish, SELU). The printed line would
    jump to u there without any noise.

    Args:
        x: The pre-activations.
        activation: A name of the table, a module or an `Activation`.
        level: p in [0, 1].
        a: Scale of the saturation, one per unit, broadcast against x.
        c: Constant factor on the noise.
        noise: See the top of this file; a tensor is ξ, of x's shape.
        push: ``"paper"``: s = c p σ |ξ|; ``"odds"``: s = c p / (1 - p) σ |ξ|, which is exactly u at p = 1.
        generator: The generator of the samples.
    """
    if x.is_complex():
        raise ValueError(
            f"noisy_activation: the input is {x.dtype}, and the push toward the tangent is defined for real numbers. "
            "Leave this activation plain: mollify(model, exclude=…)"
        )
    act = find(activation)
    level = _as_tensor(level, x.device)
    a = a.to(x.dtype) if isinstance(a, Tensor) else a
    f, u = act.f(x), act.u(x)
    saturation = u - f  # line 2
    size = c * noise_scale(saturation, a) * _strength(level, push).to(x.dtype)  # lines 3 and 5, without |ξ|
    if isinstance(noise, Tensor):
        s = size * noise.abs()
    elif noise == "sample":
        s = size * normal_like(x, generator).abs()  # lines 4 and 5
    elif noise == "expected":
        s = size * HALF_NORMAL_MEAN
    elif noise == "exact":
        s = _mean_clipped_push(saturation.abs(), size)
    else:
        raise ValueError(f"noise={noise!r}: expected 'sample', 'expected', 'exact' or a tensor of normal draws")
    # clip(saturation, -s, s), so that at s = 0 the gradient is also f's to the last bit
    psi = f + torch.where(saturation.abs() < s, saturation, torch.where(saturation < 0, -s, s))
    return torch.where(level >= 1.0, u, psi) if push == "odds" else psi


def _as_tensor(level: Tensor | float, device: torch.device) -> Tensor:
    if isinstance(level, Tensor):
        return level.to(device)
    # a Python number keeps its digits, whatever torch's default dtype is
    return torch.tensor(level, device=device, dtype=torch.float32 if device.type == "mps" else torch.float64)


def _strength(level: Tensor, push: Push) -> Tensor:
    if push == "paper":
        return level
    if push == "odds":
        # The limit p = 1 is taken by the caller; the floor keeps its gradient free of inf * 0.
        return level / (1.0 - level).clamp_min(1e-6)
    raise ValueError(f"push={push!r}: expected 'paper' or 'odds'")


def _mean_clipped_push(distance: Tensor, size: Tensor) -> Tensor:
    """Compute E[min(d, κ|ξ|)] = κ sqrt(2/π) (1 - exp(-d²/2κ²)) + d erfc(d / κ sqrt 2), for the exact mean of ψ."""
    pushed = size > 0
    kappa = torch.where(pushed, size, torch.ones_like(size))
    ratio = distance / kappa
    mean = kappa * HALF_NORMAL_MEAN * -torch.expm1(-0.5 * ratio.square())
    mean = mean + distance * torch.erfc(ratio / math.sqrt(2.0))
    return torch.where(pushed, mean, torch.zeros_like(mean))


def copy_mix(
    below: Tensor,
    above: Tensor,
    *,
    level: Tensor | float,
    noise: Noise | Tensor = "sample",
    generator: Generator | None = None,
) -> Tensor:
    """Compute φ = π ⊙ below + (1 - π) ⊙ above with π ~ Bin(p) for every unit and example (Alg. 1, lines 7 to 9).

        >>> import torch
        >>> copy_mix(torch.zeros(3), torch.ones(3), level=0.25, noise="expected")
        tensor([0.7500, 0.7500, 0.7500])

    Args:
        below: The units that are copied, with the shape of ``above``.
        above: The output of the layer.
        level: p in [0, 1]: the probability of the copy.
        noise: See the top of this file; a tensor holds uniform draws, and a unit is copied where they are below p.
        generator: The generator of the samples.
    """
    if below.shape != above.shape:
        raise ValueError(
            f"copy_mix: below has shape {tuple(below.shape)}, above {tuple(above.shape)}; expected the same. "
            "mollifier.nn.Copy pads, projects or pools where they differ."
        )
    below = below.to(above.dtype)
    level = _as_tensor(level, above.device)
    if isinstance(noise, Tensor) or noise == "sample":
        draws = noise if isinstance(noise, Tensor) else uniform_like(above, generator)
        return torch.where(draws < level, below, above)
    if noise in ("expected", "exact"):
        p = level.to(above.dtype)
        return p * below + (1.0 - p) * above  # this order is exact at both ends
    raise ValueError(f"noise={noise!r}: expected 'sample', 'expected', 'exact' or a tensor of uniform draws")


def signed_sums(below: Tensor, weight: Tensor, units: int, unit_dim: int = -1) -> Tensor:
    """Sum every ``units``-th unit of a wider layer, each multiplied by its weight: the fixed projection, for a layer that narrows.

    y_j = w_j h_j + w_{j + m} h_{j + m} + …, where m is ``units``. It is linear in h and needs no matrix product.

    >>> signed_sums(torch.arange(5.0), torch.tensor([1.0, 1.0, -1.0, 1.0, 1.0]), units=2)
    tensor([2., 4.])
    """
    wide, behind = weight.shape[0], (1,) * (-unit_dim - 1)
    whole = wide - wide % units
    weighted = below * weight.view(-1, *behind)
    sums = torch.unflatten(weighted.narrow(unit_dim, 0, whole), unit_dim, (-1, units)).sum(unit_dim - 1)
    if whole == wide:
        return sums
    rest = weighted.narrow(unit_dim, whole, wide - whole)  # the last part has fewer
    return sums + F.pad(rest, (0, 0) * len(behind) + (0, units - (wide - whole)))


def noisy_gate(
    x: Tensor,
    target: Tensor | float,
    gate: Gate = "sigmoid",
    *,
    level: Tensor | float,
    noise: Noise | Tensor = "sample",
    unbiased: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Compute a recurrent gate that noise holds at its target γ: f(x + p σ(x) |ξ|), σ(x) = (f⁻¹(γ) - x) / E|ξ| (eq. 13).

        >>> import torch
        >>> noisy_gate(torch.tensor([-3.0, 3.0]), 0.25, level=1.0, noise="expected")
        tensor([0.2500, 0.2500])

    At level 1 the pre-activation is f⁻¹(γ) in expectation; expected values give γ itself. Samples do not average to γ, since f
    clips them, and their gradient has the factor 1 - p|ξ|/E|ξ|, of the wrong sign for 42 % of the samples at p = 1. With
    ``unbiased`` the gate is γ with probability p and f(x) otherwise: its mean is exact, and its gradient never changes sign.

    Args:
        x: The gate's pre-activation.
        target: γ in [0, 1], broadcast against x.
        gate: ``"sigmoid"`` (inverse: the logit, with γ kept 1e-4 away from 0 and 1) or ``"hard_sigmoid"`` (inverse: 4 (γ - 1/2)).
        level: p in [0, 1].
        noise: See the top of this file; a tensor holds normal draws, or uniform ones if unbiased.
        unbiased: See above.
        generator: The generator of the samples.
    """
    if gate not in ("sigmoid", "hard_sigmoid"):
        raise ValueError(f"gate={gate!r}: expected 'sigmoid' or 'hard_sigmoid'")
    f = torch.sigmoid if gate == "sigmoid" else hard_sigmoid
    target = torch.as_tensor(target, dtype=x.dtype, device=x.device)
    level = _as_tensor(level, x.device)
    if unbiased:
        return copy_mix(target.expand_as(x), f(x), level=level, noise=noise, generator=generator)
    aim = inverse_sigmoid(target) if gate == "sigmoid" else 4.0 * (target - 0.5)
    pull = level.to(x.dtype) * (aim - x)
    if isinstance(noise, Tensor) or noise == "sample":
        xi = noise if isinstance(noise, Tensor) else normal_like(x, generator)
        return f(x + pull * xi.abs() / HALF_NORMAL_MEAN)
    if noise == "expected":
        return torch.where(level >= 1.0, target, f(x + pull))
    if noise == "exact":
        return _mean_sigmoid(x, pull) if gate == "sigmoid" else _mean_hard_sigmoid(x, pull)
    raise ValueError(f"noise={noise!r}: expected 'sample', 'expected', 'exact' or a tensor of normal draws")


def inverse_sigmoid(target: Tensor) -> Tensor:
    """Return the logit of a target that is kept 1e-4 away from 0 and 1, in at least float32: half precision rounds 1 - 1e-4 to 1.

    >>> inverse_sigmoid(torch.tensor([0.0, 0.5, 1.0], dtype=torch.bfloat16))
    tensor([-9.1875,  0.0000,  9.1875], dtype=torch.bfloat16)
    """
    wide = target if target.dtype in (torch.float32, torch.float64) else target.float()
    return wide.clamp(1e-4, 1.0 - 1e-4).logit().to(target.dtype)


def _mean_hard_sigmoid(x: Tensor, pull: Tensor) -> Tensor:
    """Compute E clip(α + β|ξ|, 0, 1), with α = 1/2 + x/4 and β = pull / (4 E|ξ|): linear between two crossings, otherwise 0 or 1."""
    alpha, beta = 0.25 * x + 0.5, 0.25 / HALF_NORMAL_MEAN * pull
    still = beta.abs() < 1e-12
    slope = torch.where(still, torch.ones_like(beta), beta)
    ends = torch.stack([-alpha / slope, (1.0 - alpha) / slope]).clamp(0.0, 12.0)
    low, high = ends.amin(0), ends.amax(0)
    below, above = torch.erf(low / math.sqrt(2.0)), torch.erf(high / math.sqrt(2.0))  # P(|ξ| < …)
    bells = torch.exp(-0.5 * low.square()) - torch.exp(-0.5 * high.square())
    line = alpha * (above - below) + slope * HALF_NORMAL_MEAN * bells
    return torch.where(still, alpha.clamp(0.0, 1.0), line + torch.where(slope > 0, 1.0 - above, below))


def _mean_sigmoid(x: Tensor, pull: Tensor) -> Tensor:
    """Compute E sigmoid(x + pull |ξ| / E|ξ|) by quadrature; the error is about 1e-6 at |x| = 8, 1e-3 at 30, and less below."""
    nodes, weights = _half_normal_rule()
    means = [w * torch.sigmoid(x + pull * (r / HALF_NORMAL_MEAN)) for r, w in zip(nodes, weights, strict=True)]
    return torch.stack(means).sum(0)


@cache
def _half_normal_rule(count: int = 64, end: float = 7.0) -> tuple[list[float], list[float]]:
    """Return Gauss-Legendre nodes on [0, end] and their weights under the half-normal density (Golub and Welsch)."""
    k = torch.arange(1, count, dtype=torch.float64)
    beta = k / (4.0 * k.square() - 1.0).sqrt()
    roots, vectors = torch.linalg.eigh(torch.diag(beta, 1) + torch.diag(beta, -1))
    nodes = 0.5 * end * (roots + 1.0)
    weights = end * vectors[0].square() * math.sqrt(2.0 / math.pi) * torch.exp(-0.5 * nodes.square())
    return nodes.tolist(), (weights / weights.sum()).tolist()
