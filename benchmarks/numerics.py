"""Before anything is timed: do the kernels compute what the reference computes with the same noise?"""

from __future__ import annotations

import torch

from mollifier import functional, kernels
from mollifier.activations import activation
from mollifier.kernels._library import draw_seed


def error() -> float:
    """The largest relative error of the unit's output and gradients, in float32 against float64."""
    x, below = torch.randn(128, 200, requires_grad=True), torch.randn(128, 200, requires_grad=True)
    a, grad = torch.empty(200).uniform_(-2, 2).requires_grad_(), torch.randn(128, 200)
    act = kernels.struct(activation("sigmoid"))
    torch.manual_seed(1)
    out = kernels.fused_unit(x, below, a, kernels.Spec(act, 0.5, 20.0, in_units=200))
    torch.manual_seed(1)
    normal, uniform = (each.double().view(128, 200) for each in kernels.noise(draw_seed(), 128 * 200))
    doubles = [each.detach().double().requires_grad_() for each in (x, below, a)]
    above = functional.noisy_activation(doubles[0], "sigmoid", level=0.5, a=doubles[2], noise=normal)
    wanted = functional.copy_mix(doubles[1], above, level=0.5, noise=uniform)
    pairs = [(out, wanted)]
    pairs += list(
        zip(
            torch.autograd.grad(out, (x, below, a), grad),
            torch.autograd.grad(wanted, doubles, grad.double()),
            strict=True,
        )
    )
    return max(((one - two).abs().max() / two.abs().max()).item() for one, two in pairs)
