"""Where the native kernels stand in for the reference: sampled noise on tensors that they serve, and nothing in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from mollifier import kernels
from mollifier.kernels import Link, Spec
from mollifier.nn._levelled import tie
from mollifier.nn.copy import Copy
from mollifier.nn.noisy import NoisyActivation


class Block(NamedTuple):
    """A run of modules that ends in a noisy activation, and the copy around it."""

    modules: Sequence[nn.Module]
    noise: NoisyActivation | None
    copy: Copy


def hooked(module: nn.Module) -> bool:
    """Would somebody miss the call of this module?"""
    return own_hooks(module) or _has_any_global_hook()  # type: ignore[no-untyped-call]


def own_hooks(module: nn.Module) -> bool:
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or "forward" in module.__dict__
    )


def idle(*copies: Copy) -> bool:
    """Do the copies do nothing, so that nobody would miss their calls?"""
    if torch.distributed.is_initialized() or _has_any_global_hook():  # type: ignore[no-untyped-call]
        return False
    return all(copy.known_level() == 0.0 and not copy.residual and not own_hooks(copy) for copy in copies)


def run(blocks: Sequence[Block], x: Tensor) -> Tensor:
    """Blocks that follow one another; as many as possible in one pass where the kernels serve."""
    index = 0
    while index < len(blocks):
        links = _chain(blocks, index, x)
        x = kernels.fused_chain(x, links) if links else _one(*blocks[index], x)
        index += max(1, len(links))
    return x


def _chain(blocks: Sequence[Block], index: int, x: Tensor) -> list[Link]:
    """The blocks from this one on that are torch's own linear layers, of one type throughout, with nothing in between."""
    links: list[Link] = []
    dtype, width = x.dtype, x.shape[-1] if x.dim() else 0
    blocked = not kernels.serves(x) or kernels.product(dtype) is None or torch.is_autocast_enabled("cpu")
    if blocked or _has_any_global_hook():  # type: ignore[no-untyped-call]
        return links
    while index < len(blocks) and (link := _link(*blocks[index], dtype, width)) is not None:
        links.append(link)
        width, index = link.weight.shape[0], index + 1
    return links


def _link(
    modules: Sequence[nn.Module], noise: NoisyActivation | None, copy: Copy, dtype: torch.dtype, width: int
) -> Link | None:
    if len(modules) != 2 or type(modules[0]) is not nn.Linear or noise is None or noise.unit_dim != -1:
        return None
    level = noise.known_level()
    # at 0 torch's own operations run, bit for bit; an ablation may have set the two apart
    if not level or level != copy.known_level() or not (noise.sampled() and copy.sampled()):
        return None
    for module in (*modules, noise, copy):
        if own_hooks(module):
            return None
    # straight from the dictionaries: a look through nn.Module.__getattr__ takes longer than all else here
    given, act = modules[0]._parameters, kernels.struct(noise.activation)
    weight, bias, a = given.get("weight"), given.get("bias"), noise._parameters["a"]
    if act is None or weight is None or a is None or weight.shape != (units := copy.out_units or width, width):
        return None
    if noise.units not in (1, units) or copy.rule == "project" or width > units:
        return None
    if not (_plain(weight, dtype) and _plain(a, dtype) and (bias is None or _plain(bias, dtype))):
        return None
    return Link(weight, bias, a, act, level, *kernels.strength(level, noise.c, noise.push), copy.residual)


def _plain(tensor: Tensor, dtype: torch.dtype) -> bool:
    return tensor.dtype == dtype and tensor.is_cpu and type(tensor) in (nn.Parameter, Tensor) and tensor.is_contiguous()


def _one(modules: Sequence[nn.Module], noise: NoisyActivation | None, copy: Copy, below: Tensor) -> Tensor:
    """One block, its noisy activation and its copy in one pass where the kernels serve."""
    if idle(copy):
        for module in modules:
            below = module(below)
        return below
    *first, last = modules
    if noise is not None and _fusible(last, noise, copy):
        level = copy.known_level()
        if level is None:
            if kernels.compiled_serves(below):
                return _compiled(first, last, noise, copy, below)
        elif level and level == noise.known_level():  # an ablation may have set them apart
            if kernels.serves(below):
                return _native(first, last, noise, copy, below, level)
            if kernels.eager_serves(below):
                return _eager(first, last, noise, copy, below, level)
    x = below
    for module in modules:
        x = module(x)
    return cast(Tensor, copy(below, x))


def _fusible(last: nn.Module, noise: NoisyActivation, copy: Copy) -> bool:
    """Is all noise drawn, of an activation that the kernels know, and would nobody miss the calls?"""
    if not (noise.sampled() and copy.sampled() and kernels.knows(noise.activation)):
        return False
    return not (own_hooks(noise) or own_hooks(copy) or hooked(last))


def _native(
    first: Sequence[nn.Module], last: nn.Module, noise: NoisyActivation, copy: Copy, below: Tensor, level: float
) -> Tensor:
    """The run with its unit in one pass of the native kernels, where these can take what meets it."""
    act = kernels.struct(noise.activation)
    unit_dim = noise.unit_dim if noise.units > 1 else copy.unit_dim
    spec = Spec(act, level, noise.c, noise.push, unit_dim, residual=copy.residual)
    if level >= 1.0 and len(first) == 1 and _plain_linear(first[0], noise, below):
        return _copied(cast(nn.Linear, first[0]), noise, copy, below)
    x = below
    for module in first:
        x = module(x)
    if not kernels.serves(x) or not noise.fits(x):
        return cast(Tensor, copy(below, last(x)))
    short, spec.in_units = copy.unpadded(below, x)
    return kernels.fused_unit(x, short, noise.a, spec)


def _compiled(first: Sequence[nn.Module], last: nn.Module, noise: NoisyActivation, copy: Copy, below: Tensor) -> Tensor:
    """The block as torch.compile sees it, its unit one node of the graph."""
    x = below
    for module in first:
        x = module(x)
    if not noise.fits(x) or not kernels.compiled_serves(x):
        return cast(Tensor, copy(below, last(x)))
    unit_dim = noise.unit_dim if noise.units > 1 else copy.unit_dim
    short, levels = copy.unpadded(below, x)[0], (noise.level, copy.level)
    return kernels.compiled_unit(
        x, short, noise.a, noise.activation, levels, noise.c, noise.push, unit_dim, copy.residual
    )


def _eager(
    first: Sequence[nn.Module], last: nn.Module, noise: NoisyActivation, copy: Copy, below: Tensor, level: float
) -> Tensor:
    """The run with its unit as one eager function, where that can take what meets it."""
    x = below
    if level >= 1.0 and len(first) == 1 and _plain_linear(first[0], noise, below):
        return _copied(cast(nn.Linear, first[0]), noise, copy, below)
    for module in first:
        x = module(x)
    if not noise.fits(x) or not kernels.eager_serves(x):
        return cast(Tensor, copy(below, last(x)))
    spec = kernels.EagerSpec(noise.activation, level, noise.c, noise.push, copy.residual)
    return kernels.eager_unit(x, copy.shortcut(below, x), noise.a_for(x), spec)


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
