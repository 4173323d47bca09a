"""Before anything is timed: do the kernels compute what the reference computes with the same noise?"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mollifier import functional, ops
from mollifier.activations import activation
from mollifier.nn import RecurrentOptions
from mollifier.nn.recurrent import RecurrentMollifier, modules
from mollifier.nn.recurrent._layer import cell_of
from mollifier.ops import _loop

# Over twenty steps of an LSTM the reference itself is that far from float64 when it runs in float32.
LIMITS = {"unit": 1e-5, "LSTM": 3e-5, "GRU": 3e-5}


def errors() -> dict[str, float]:
    """The largest relative errors of outputs and gradients, in float32 against the reference in float64."""
    return {"unit": unit(), "LSTM": recurrent("LSTM"), "GRU": recurrent("GRU")}


def worst(mine: list[Tensor], wanted: list[Tensor]) -> float:
    return max(((one - two).abs().max() / two.abs().max()).item() for one, two in zip(mine, wanted, strict=True))


def unit() -> float:
    """Noisy sigmoid and copy."""
    x, below = torch.randn(128, 200, requires_grad=True), torch.randn(128, 200, requires_grad=True)
    a, grad = torch.empty(200).uniform_(-2, 2).requires_grad_(), torch.randn(128, 200)
    torch.manual_seed(1)
    out = ops.unit(x, below, a, activation("sigmoid"), level=torch.tensor(0.5))
    torch.manual_seed(1)
    normal, uniform = (each.double().view(128, 200) for each in ops.noise(ops.draw_seeds(1), 128 * 200))
    doubles = [each.detach().double().requires_grad_() for each in (x, below, a)]
    above = functional.noisy_activation(doubles[0], "sigmoid", level=0.5, a=doubles[2], noise=normal)
    wanted = functional.copy_mix(doubles[1], above, level=0.5, noise=uniform)
    mine = torch.autograd.grad(out, (x, below, a), grad)
    return worst([out, *mine], [wanted, *torch.autograd.grad(wanted, doubles, grad.double())])


def recurrent(kind: str, steps: int = 20, batch: int = 20, size: int = 200) -> float:
    """A layer without its copy, against the loop over the steps."""
    plain = getattr(nn, kind)(size, size)
    gates, acts = (3, 2) if kind == "LSTM" else (2, 1)
    rows, grad = torch.randn(steps * batch, size), torch.randn(steps * batch, size)
    added = RecurrentMollifier(plain, RecurrentOptions(copy=False), level=0.5)
    sizes, results = [batch] * steps, []
    for dtype in (torch.float32, torch.float64):
        module, layer = plain.to(dtype), added.to(dtype).layer(0)
        x = rows.to(dtype).requires_grad_()
        state = tuple(torch.zeros(batch, size, dtype=dtype) for _ in range(acts))
        given = x, [state], [modules.weights_of(module, 0)], cell_of(module, layer, sizes)
        torch.manual_seed(1)
        if dtype == torch.float32:
            ((out, *_),) = ops.recurrent(*given, **layer.settings(x, None))
        else:
            noise, _ = ops.noise(ops.draw_seeds(1), len(x) * (gates + acts) * size)
            noise = noise.to(dtype).view(len(x), 1, gates + acts, size)
            parts = noise[:, :, :gates], noise[:, :, gates:]
            ((out, *_),) = _loop.loop(*given, layer.a, layer.level, None, *parts)
        assert layer.a is not None
        results.append([out, *torch.autograd.grad(out, [x, *module.parameters(), layer.a], grad.to(dtype))])
    return worst(*results)
