"""Classify modules: their kind, their width, and which classes are residual blocks."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import ParametrizationList

from mollifier.activations import of_module
from mollifier.nn import HardSigmoidGRU, HardSigmoidLSTM

_RECURRENT_FORWARDS = {
    kind.forward
    for kind in (nn.LSTM, nn.GRU, nn.RNN, HardSigmoidLSTM, HardSigmoidGRU, nn.LSTMCell, nn.GRUCell, nn.RNNCell)
}
NORMS = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.LocalResponseNorm)
BETWEEN = (*NORMS, _DropoutNd, nn.Identity)
SHAPING = (
    nn.Flatten,
    nn.Unflatten,
    nn.Identity,
    _DropoutNd,
)  # modules that may come between the output and the layer that computes it
RECURRENT = (nn.RNNBase, nn.RNNCellBase)
# Elementwise modules of torch that cannot be in the table, and the reasons.
NO_TANGENT = {
    nn.PReLU: "its slope is learned; register a function of your own, or use nn.LeakyReLU",
    nn.RReLU: "it is random itself; use nn.LeakyReLU",
    nn.GLU: "it is a product of two halves, not a function of one unit",
    nn.Hardshrink: "it is flat at 0",
    nn.Softshrink: "it is flat at 0",
    nn.Tanhshrink: "it is flat at 0",
    nn.Threshold: "it has no tangent at 0",
    nn.CELU: "it is not in the table: register it, or use nn.ELU",
    nn.LogSigmoid: "it is not in the table: register it",
    nn.Hardswish: "it is not in the table: register it, or use nn.SiLU",
}
_RESIDUAL_NAME = re.compile(r"(Basic_?Block|Bottleneck|Res(idual|Net)?_?(Block|Unit))", re.IGNORECASE)
_RESIDUAL_TYPES: set[type[nn.Module]] = set()


@dataclass(frozen=True)
class Width:
    """Units of a layer's input and output, and the dimension that they are on."""

    in_units: int | None
    out_units: int | None
    unit_dim: int = -1

    def __str__(self) -> str:
        return f"{self.in_units} → {self.out_units}" if self.in_units is not None else "unknown"


def is_torchs(kind: type) -> bool:
    """Return whether a class is defined in torch.

    >>> is_torchs(nn.Linear), is_torchs(Width)
    (True, False)
    """
    return kind.__module__.split(".")[0] == "torch"


def is_users(module: nn.Module) -> bool:
    """Return whether a user wrote the class of a module, or the class that torch derived its class from, as parametrizations do."""
    return any(issubclass(base, nn.Module) and not is_torchs(base) for base in type(module).__mro__)


def is_leaf(module: nn.Module) -> bool:
    """Return whether a module has no children except for its parametrizations, which compute weights."""
    return all(_computes_weights(child) for child in module.children())


def _computes_weights(child: nn.Module) -> bool:
    return isinstance(child, nn.ModuleDict) and any(isinstance(part, ParametrizationList) for part in child.values())


def affine_width(module: nn.Module) -> Width | None:
    """Return the width of a linear or convolutional layer, or None for anything else (and for a lazy layer, or one with a mask of its own)."""
    if any(is_lazy(parameter) for parameter in module.parameters(recurse=False)) or masks_weights(module):
        return None
    if isinstance(module, nn.Linear):
        return Width(module.in_features, module.out_features)
    if isinstance(module, _ConvNd):
        return Width(module.in_channels, module.out_channels, -len(module.kernel_size) - 1)
    return None


def works_in_place(module: nn.Module) -> bool:
    """Return whether calling a module changes its input: an activation with ``inplace=True``, or a Sequential that begins with one."""
    while is_plain_sequential(module) and len(module):  # type: ignore[arg-type]
        module = module[0]  # type: ignore[index]
    return getattr(module, "inplace", False) is True and has_tangent(module)


def masks_weights(module: nn.Module) -> bool:
    """Return whether a layer is of a user's class with a forward and a mask of its own, as in an autoregressive network.

    The masks of torch's pruning, which stay in the place of a parameter, are no such masks.
    """
    kind = type(module)
    if not isinstance(module, (nn.Linear, _ConvNd)) or kind.forward.__module__.split(".")[0] == "torch":
        return False
    tensors = {**vars(module), **module._buffers, **module._parameters}
    pruned = {f"{name.removesuffix('_orig')}_mask" for name in module._parameters}
    return any(
        "mask" in name.lower() and isinstance(each, Tensor) and name not in pruned for name, each in tensors.items()
    )


def is_plain_sequential(module: nn.Module) -> bool:
    """An nn.Sequential, or a subclass that calls its modules one after the other like it."""
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward


def runs(modules: Sequence[nn.Module]) -> dict[int, int]:
    """Return the first and last index of every [affine, (norm), (dropout), activation] in a list.

    >>> runs([nn.Linear(2, 2), nn.BatchNorm1d(2), nn.ReLU(), nn.Linear(2, 1)])
    {0: 2}
    """
    found: dict[int, int] = {}
    start: int | None = None
    for index, module in enumerate(modules):
        if affine_width(module) is not None:
            start = index
        elif start is not None and has_tangent(module):
            found[start], start = index, None
        elif not isinstance(module, BETWEEN):
            start = None
    return found


def last_place(modules: Sequence[nn.Module]) -> int:
    """Return the index of the last module that does more than pass on what it is given, or 0.

    >>> last_place([nn.Linear(2, 2), nn.Sigmoid(), nn.Flatten(), nn.AvgPool1d(2)])
    1
    """
    return max((index for index, module in enumerate(modules) if not passes_on(module)), default=0)


def passes_on(module: nn.Module) -> bool:
    """Return whether a module has neither parameters nor activations: it may change shapes, pool, normalize or compare, but it is no layer.

    >>> passes_on(nn.PixelShuffle(2)), passes_on(nn.Sigmoid()), passes_on(nn.Linear(2, 2))
    (True, False, False)
    """
    return next(module.parameters(), None) is None and not any(map(has_tangent, module.modules()))


def may_call_activations(module: nn.Module) -> bool:
    """Return whether calling this module may compute activations, which torch's own layers do not."""
    layer = not is_users(module) and next(module.children(), None) is None
    return not layer or isinstance(module, RECURRENT) or has_tangent(module)


def has_tangent(module: nn.Module) -> bool:
    """Return whether a module is an activation that can be mollified."""
    try:
        return of_module(module) is not None
    except ValueError:  # in the table, but flat at 0 with these options
        return False


def register_residual(kind: type[nn.Module]) -> None:
    """Treat a class as a residual block, whatever its name; its structure must still be that of one."""
    _RESIDUAL_TYPES.add(kind)


def residual_width(module: nn.Module) -> Width | None:
    """Return the width of a residual block, or None if the module is not one.

    A block is recognised by its type, if it was registered, or by its name; and by its structure: affine layers in a chain, each with its norm (or none at all), and a
    shortcut parallel to them. A block that normalises before its first convolution (pre-activation) does not end in an activation, and
    is left alone unless it is named.
    """
    registered = type(module) in _RESIDUAL_TYPES
    if not registered and not _RESIDUAL_NAME.search(type(module).__name__):
        return None
    children = [(name, child) for name, child in module.named_children() if not is_shortcut(name)]
    chain = [width for _, child in children if (width := affine_width(child)) is not None]
    norms = [child for _, child in children if isinstance(child, NORMS)]
    if len(chain) < 2 or any(one.out_units != two.in_units for one, two in pairwise(chain)):
        return None
    first_norm = next((i for i, (_, child) in enumerate(children) if isinstance(child, NORMS)), len(children))
    first_affine = next(i for i, (_, child) in enumerate(children) if affine_width(child) is not None)
    if not registered and (len(norms) != len(chain) or first_norm < first_affine):
        return None
    return Width(chain[0].in_units, chain[-1].out_units, chain[0].unit_dim)


def is_shortcut(name: str) -> bool:
    """Return whether a module of this name is the shortcut of a residual block."""
    return any(word in name.lower() for word in ("shortcut", "downsample", "skip", "identity", "project"))


def residual_units(block: nn.Module, child: str) -> int:
    """Return the units of an activation of a residual block: those of the layer before it, or 1 if it follows layers of several widths."""
    widths = [affine_width(part) for name, part in block.named_children() if not is_shortcut(name)]
    sizes = [width.out_units for width in widths if width is not None and width.out_units is not None]
    own = [name for name, part in block.named_children() if has_tangent(part)]
    if child in own and len(own) == len(sizes):
        return sizes[own.index(child)]
    return sizes[0] if child in own and len(set(sizes)) == 1 else 1


def chain_width(module: nn.Module) -> Width | None:
    """Return the width of an affine layer, or of a Sequential that contains only layers, norms and activations."""
    if not is_plain_sequential(module):
        return affine_width(module)
    widths = [affine_width(child) for child in module.children()]
    known = [width for width in widths if width is not None]
    simple = all(
        w is not None or isinstance(c, BETWEEN) or has_tangent(c)
        for w, c in zip(widths, module.children(), strict=True)
    )
    return Width(known[0].in_units, known[-1].out_units, known[0].unit_dim) if known and simple else None


def has_own_forward(module: nn.Module) -> bool:
    """Return whether a module is of a user's class and has children."""
    return is_users(module) and not isinstance(module, (nn.ModuleList, nn.ModuleDict)) and not is_leaf(module)


def has_weights_only(module: nn.Module) -> bool:
    """Return whether a module is a layer: it has parameters and no children, and is neither a norm nor an embedding."""
    leaf = is_leaf(module) and next(module.parameters(), None) is not None
    return leaf and not isinstance(module, (*NORMS, nn.Embedding, nn.EmbeddingBag)) and type(module) not in NO_TANGENT


def is_unknown(module: nn.Module) -> bool:
    """Return whether a module is of a user's class without children: perhaps an activation that was not registered."""
    empty = is_leaf(module) and next(module.parameters(), None) is None
    return is_users(module) and empty and next(module.buffers(), None) is None


def argument_names(kind: type[nn.Module]) -> tuple[str, ...]:
    """Return the names of the arguments of a class's forward.

    >>> argument_names(nn.Linear)
    ('self', 'input')
    """
    try:
        return tuple(inspect.signature(kind.forward).parameters)
    except (TypeError, ValueError):  # a builtin without a signature
        return ()


def first_tensors(names: Sequence[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """Return the tensors of a call, in the order of the forward's arguments, which have these names, and not of the call.

    >>> import torch
    >>> [tuple(each.shape) for each in first_tensors(("self", "x", "mask"), (), {"mask": torch.ones(1), "x": torch.ones(2)})]
    [(2,), (1,)]
    """
    ordered = [kwargs[name] for name in names if name in kwargs] + [
        kwargs[name] for name in kwargs if name not in names
    ]
    return [each for each in (*args, *ordered) if isinstance(each, Tensor)]


def is_recurrent(module: nn.Module) -> bool:
    """Return whether a module is one of torch's or our recurrent modules, with its original forward."""
    return isinstance(module, RECURRENT) and type(module).forward in _RECURRENT_FORWARDS


def recurrent_widths(module: nn.Module) -> list[Width]:
    """Return the units in and out of each layer of a recurrent module, per direction."""
    directions = 2 if getattr(module, "bidirectional", False) else 1
    first, hidden = (int(getattr(module, name)) for name in ("input_size", "hidden_size"))
    out = int(getattr(module, "proj_size", 0)) or hidden
    layers = range(int(getattr(module, "num_layers", 1)))
    return [Width(first if number == 0 else directions * out, out) for number in layers]


def unit_dim_of(module: nn.Module) -> int:
    """Return the dimension of a block's units: that of the first layer inside it."""
    widths = (affine_width(part) for part in module.modules())
    return next((width.unit_dim for width in widths if width is not None), -1)
