"""Where the native kernels stand in for the reference: sampled noise on tensors that they serve, and nothing in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from mollifier import kernels
from mollifier.kernels import Spec
from mollifier.nn._levelled import tie
from mollifier.nn.copy import Copy
from mollifier.nn.noisy import NoisyActivation


def hooked(module: nn.Module) -> bool:
    """Would somebody miss the call of this module?"""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or "forward" in module.__dict__
        or _has_any_global_hook()  # type: ignore[no-untyped-call]
    )


def run(modules: Sequence[nn.Module], noise: NoisyActivation | None, copy: Copy, below: Tensor) -> Tensor:
    """A run of modules that ends in a noisy activation, with the copy around it; one pass where the kernels serve."""
    *first, last = modules
    fused = noise is not None and noise.sampled() and copy.sampled() and not hooked(last)
    # an ablation may have set their levels apart
    if not fused or not kernels.serves(below) or float(copy.level) != float(noise.level):  # type: ignore[union-attr]
        x = below
        for module in modules:
            x = module(x)
        return cast(Tensor, copy(below, x))
    assert noise is not None
    level, act = float(copy.level), kernels.struct(noise.activation)
    unit_dim = noise.unit_dim if noise.units > 1 else copy.unit_dim
    spec = Spec(act, level, noise.c, noise.push, unit_dim, residual=copy.residual)
    if len(first) == 1 and act is not None and _plain_linear(first[0], noise, below):
        layer = cast(nn.Linear, first[0])
        if level >= 1.0:
            return _copied(layer, noise, copy, below)
        if copy.rule in ("copy", "pad"):
            return kernels.fused_linear(below, layer.weight, layer.bias, noise.a, spec)
    x = below
    for module in first:
        x = module(x)
    if act is None or not kernels.serves(x) or not noise.fits(x):
        return cast(Tensor, copy(below, last(x)))
    short, spec.in_units = copy.unpadded(below, x)
    return kernels.fused_unit(x, short, noise.a, spec)


def _plain_linear(layer: nn.Module, noise: NoisyActivation, below: Tensor) -> bool:
    """Is it torch's own linear layer, of the right shape and of one type throughout?"""
    if type(layer) is not nn.Linear or hooked(layer) or torch.is_autocast_enabled("cpu"):
        return False
    fits = below.shape[-1] == layer.in_features and noise.unit_dim == -1 and noise.units in (1, layer.out_features)
    return fits and all(each.dtype == below.dtype for each in (layer.weight, noise.a))


def _copied(layer: nn.Linear, noise: NoisyActivation, copy: Copy, below: Tensor) -> Tensor:
    """The copy itself, at level 1; what is not used has a gradient of zero, as it has where it is computed for nothing."""
    shape = (*below.shape[:-1], layer.out_features)
    short = copy.shortcut(below, below.new_empty(1).expand(shape))
    return tie(short, [*layer.parameters(), noise.a])
