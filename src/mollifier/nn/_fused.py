"""Where the native kernels stand in for the reference: sampled noise on tensors that they serve, and nothing in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.modules import module as _modules

from mollifier import kernels
from mollifier.kernels import Link, Spec
from mollifier.nn._levelled import tie, transformed
from mollifier.nn.copy import Copy
from mollifier.nn.noisy import NoisyActivation


class Block(NamedTuple):
    """A run of modules that ends in a noisy activation, and the copy around it."""

    modules: Sequence[nn.Module]
    noise: NoisyActivation | None
    copy: Copy


def any_global_hook() -> bool:
    """Is there a hook on all modules?"""
    return bool(
        _modules._global_forward_hooks
        or _modules._global_forward_pre_hooks
        or _modules._global_backward_hooks
        or _modules._global_backward_pre_hooks
    )


def hooked(module: nn.Module) -> bool:
    """Would somebody miss the call of this module?"""
    return own_hooks(module) or any_global_hook()


def own_hooks(module: nn.Module) -> bool:
    """Would somebody miss the call, but for hooks on all modules?"""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or "forward" in module.__dict__
    )


def run(blocks: Sequence[Block], x: Tensor) -> Tensor:
    """Blocks that follow one another; as many as possible in one pass where the kernels serve, else module by module."""
    index, unheard = 0, not (transformed() or torch.distributed.is_initialized() or any_global_hook())
    while index < len(blocks):
        modules, noise, copy = blocks[index]
        if unheard and _plain(noise, copy):  # without a detour
            for module in modules:
                x = module(x) if own_hooks(module) else plain_class(module).forward(module, x)
            index += 1
            continue
        level = copy.known_level()
        links = _chain(blocks, index, x) if level else []
        if links:
            x = kernels.fused_chain(x, links)
        elif level == 1.0 and noise is not None and _only_copied(modules, noise, copy, x):
            x = _copied(cast(nn.Linear, modules[0]), noise, copy, x)
        else:  # the modules bring their copy along
            for module in modules:
                x = module(x)
        index += max(1, len(links))
    return x


def _plain(noise: NoisyActivation | None, copy: Copy) -> bool:
    """Are both at level 0, where the host can see it at once?"""
    return not copy.residual and copy.at_zero() and (noise is None or noise.at_zero())


def _chain(blocks: Sequence[Block], index: int, x: Tensor) -> list[Link]:
    """The blocks from this one on that are torch's own linear layers, of one type throughout, with nothing in between."""
    links: list[Link] = []
    dtype, width = x.dtype, x.shape[-1] if x.dim() else 0
    blocked = not kernels.serves(x) or kernels.product(dtype) is None or torch.is_autocast_enabled("cpu")
    if blocked or any_global_hook():
        return links
    while index < len(blocks) and (link := _link(*blocks[index], dtype, width)) is not None:
        links.append(link)
        width, index = link.weight.shape[0], index + 1
    return links


def _link(
    modules: Sequence[nn.Module], noise: NoisyActivation | None, copy: Copy, dtype: torch.dtype, width: int
) -> Link | None:
    if len(modules) != 2 or plain_class(modules[0]) is not nn.Linear or noise is None or noise.unit_dim != -1:
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
    if not (_simple(weight, dtype) and _simple(a, dtype) and (bias is None or _simple(bias, dtype))):
        return None
    return Link(weight, bias, a, act, level, *kernels.strength(level, noise.c, noise.push), copy.residual)


def _simple(tensor: Tensor, dtype: torch.dtype) -> bool:
    return tensor.dtype == dtype and tensor.is_cpu and type(tensor) in (nn.Parameter, Tensor) and tensor.is_contiguous()


def plain_class(module: nn.Module) -> type[nn.Module]:
    """The class that a module has, or had before mollify swapped it."""
    return getattr(type(module), "_plain_class", type(module))


def close(
    noise: NoisyActivation | None, copy: Copy, below: Tensor, x: Tensor, plain: Callable[[Tensor], Tensor]
) -> Tensor:
    """The end of a block: the noisy activation of x, mixed with the copy of below, in one pass where the kernels serve."""
    if noise is None:
        return cast(Tensor, copy(below, plain(x)))
    if _fusible(noise, copy) and noise.fits(x):
        level = copy.known_level()
        unit_dim = noise.unit_dim if noise.units > 1 else copy.unit_dim
        if level is None:
            if kernels.compiled_serves(x):
                short, levels = copy.unpadded(below, x)[0], (noise.level, copy.level)
                return kernels.compiled_unit(
                    x, short, noise.a, noise.activation, levels, noise.c, noise.push, unit_dim, copy.residual
                )
        elif level > 0.0 and level == noise.known_level():  # an ablation may have set them apart
            if kernels.serves(x):
                act = kernels.struct(noise.activation)
                spec = Spec(act, level, noise.c, noise.push, unit_dim, residual=copy.residual)
                short, spec.in_units = copy.unpadded(below, x)
                return kernels.fused_unit(x, short, noise.a, spec)
            if kernels.eager_serves(x):
                eager = kernels.EagerSpec(noise.activation, level, noise.c, noise.push, copy.residual)
                return kernels.eager_unit(x, copy.shortcut(below, x), noise.a_for(x), eager)
    return cast(Tensor, copy(below, noise(x) if noise.active else noise.idle(plain(x))))


def _fusible(noise: NoisyActivation, copy: Copy) -> bool:
    """Is all noise drawn, of an activation that the kernels know, and would nobody miss the calls?"""
    if not (noise.sampled() and copy.sampled() and kernels.knows(noise.activation)):
        return False
    return not (hooked(noise) or hooked(copy))


def _only_copied(modules: Sequence[nn.Module], noise: NoisyActivation, copy: Copy, below: Tensor) -> bool:
    """At level 1: is the copy all that comes out of torch's own linear layer and its activation, so that nobody would miss their calls?"""
    if len(modules) != 2 or plain_class(modules[0]) is not nn.Linear or not kernels.eager_serves(below):
        return False
    if noise.known_level() != 1.0 or not _fusible(noise, copy) or torch.is_autocast_enabled("cpu"):
        return False
    layer: nn.Linear = modules[0]  # type: ignore[assignment]
    fits = below.shape[-1] == layer.in_features and noise.unit_dim == -1 and noise.units in (1, layer.out_features)
    same = all(each.dtype == below.dtype for each in (layer.weight, noise.a))
    return fits and same and not any(map(hooked, modules))


def _copied(layer: nn.Linear, noise: NoisyActivation, copy: Copy, below: Tensor) -> Tensor:
    """The copy itself, at level 1; what is not used has a gradient of zero, as it has where it is computed for nothing."""
    shape = (*below.shape[:-1], layer.out_features)
    short = copy.shortcut(below, below.new_empty(1).expand(shape))
    return tie(short, [*layer.parameters(), noise.a])
