"""Find layers that one operator can run: a unit with its copy, or a run of linear layers, where skipping the module calls goes unnoticed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from mollifier import ops
from mollifier.functional import Noise
from mollifier.nn._annealed import any_global_hook, on_cpu, own_hooks, transformed
from mollifier.nn.copy import Copy
from mollifier.nn.noisy import NoisyActivation

TORCHS_OWN = (nn.Parameter, Tensor)


class Block(NamedTuple):
    """A run of modules that ends in a noisy activation, and the copy around it."""

    modules: Sequence[nn.Module]
    noise: NoisyActivation | None
    copy: Copy


def run(blocks: Sequence[Block], x: Tensor) -> Tensor:
    """Run consecutive blocks, as many as possible in one pass where the kernels support it, and the others module by module."""
    index, unheard = 0, not (transformed() or torch.distributed.is_initialized() or any_global_hook())
    while index < len(blocks):
        modules, noise, copy = blocks[index]
        if unheard and _plain(noise, copy):  # call the plain forward directly
            for module in modules:
                x = module(x) if own_hooks(module) else plain_class(module).forward(module, x)
            index += 1
            continue
        links = _chain(blocks, index, x)
        if links:
            x = ops.chain(x, links, expected=copy.expected())
        else:  # the modules apply the copy themselves
            for module in modules:
                x = module(x)
        index += max(1, len(links))
    return x


def _plain(noise: NoisyActivation | None, copy: Copy) -> bool:
    """Return whether the host can see at once that both are at level 0 and the copy is not residual."""
    return not copy.residual and copy.at_zero() and (noise is None or noise.at_zero())


def _chain(blocks: Sequence[Block], index: int, x: Tensor) -> list[ops.Link]:
    """Return the run of blocks, starting at this one, that are torch's own linear layers, all of one dtype, with nothing in between."""
    links: list[ops.Link] = []
    first = plain_class(blocks[index].modules[0])
    mode = blocks[index].copy.operator_mode()
    if first is not nn.Linear or mode is None or any_global_hook() or not x.dim() or not ops.chain_serves(x):
        return links
    dtype, width = x.dtype, x.shape[-1]
    while index < len(blocks) and (link := _link(*blocks[index], mode, dtype, width)) is not None:
        links.append(link)
        width, index = link.weight.shape[0], index + 1
    return links


def _link(
    modules: Sequence[nn.Module],
    noise: NoisyActivation | None,
    copy: Copy,
    mode: Noise,
    dtype: torch.dtype,
    width: int,
) -> ops.Link | None:
    if len(modules) != 2 or plain_class(modules[0]) is not nn.Linear or noise is None or noise.unit_dim != -1:
        return None
    of_noise, of_copy = cast("tuple[Tensor, Tensor]", (noise._buffers["level"], copy._buffers["level"]))
    if not (on_cpu(of_noise) and on_cpu(of_copy)):
        return None
    # at level 0 torch's own operations run, bit for bit; an ablation may have set the two levels differently
    level = of_noise.item()
    if not level or level != of_copy.item() or noise.operator_mode() != mode or copy.operator_mode() != mode:
        return None
    if own_hooks(modules[0]) or own_hooks(modules[1]) or own_hooks(noise) or own_hooks(copy):
        return None
    # read from the dictionaries, since nn.Module.__getattr__ would take longer than everything else here
    given, act = modules[0]._parameters, noise.activation
    weight, bias, a = given.get("weight"), given.get("bias"), noise._parameters["a"]
    if weight is None or a is None or not ops.knows(act) or weight.shape != (units := copy.out_units or width, width):
        return None
    signs = copy.projection.weight if copy.rule == "fixed" and copy.projection is not None else None
    if noise.units not in (1, units) or copy.rule == "project" or (width > units) != (signs is not None):
        return None
    if signs is not None and not (isinstance(signs, Tensor) and _simple(signs, dtype)):
        return None
    if not (_simple(weight, dtype) and _simple(a, dtype) and (bias is None or _simple(bias, dtype))):
        return None
    return ops.Link(weight, bias, a, act, of_noise, of_copy, noise.c, noise.push, copy.residual, signs)


def _simple(tensor: Tensor, dtype: torch.dtype) -> bool:
    return tensor.dtype is dtype and tensor.is_cpu and type(tensor) in TORCHS_OWN and tensor.is_contiguous()


def plain_class(module: nn.Module) -> type[nn.Module]:
    """Return the class of a module, or the class it had before mollify replaced it."""
    return getattr(type(module), "_plain_class", type(module))


def close(
    noise: NoisyActivation | None, copy: Copy, below: Tensor, x: Tensor, plain: Callable[[Tensor], Tensor]
) -> Tensor:
    """Run the end of a block: the noisy activation of x, mixed with the copy of below, in one operator if neither has hooks."""
    if noise is None:
        return cast(Tensor, copy(below, plain(x)))
    noisy = noise.active
    if not (noisy and copy.active and noise.fits(x)) or own_hooks(noise) or own_hooks(copy) or any_global_hook():
        return cast(Tensor, copy(below, noise(x) if noisy else noise.pass_through(plain(x))))
    return ops.unit(
        x,
        copy.unpadded(below, x),
        noise.a,
        noise.activation,
        level=noise._buffers["level"],  # type: ignore[arg-type]
        copy_level=copy._buffers["level"],
        c=noise.c,
        push=noise.push,
        unit_dim=noise.unit_dim if noise.units > 1 else copy.unit_dim,
        residual=copy.residual,
        normal=noise.normal(x),
        uniform=copy.uniform(x),
    )
