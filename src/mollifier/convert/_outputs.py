"""Find what a forward returns: an activation remains the output if its result is only reshaped or rescaled."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterator

from torch import fx, nn

from mollifier.convert._structure import SHAPING

_SHAPING = (
    *("view", "reshape", "squeeze", "unsqueeze", "flatten", "unflatten", "contiguous", "permute", "transpose"),
    *("movedim", "clone"),
    *("view_as", "reshape_as", "expand", "narrow", "select", "float", "double", "half", "type_as", "to"),
    *("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"),
)
# Functions and methods that only scale, shift, bound or average their argument, if everything else is constant.
_ARITHMETIC = {
    *(f"{prefix}{name}" for name in ("add", "sub", "mul", "div", "truediv") for prefix in ("", "r", "i")),
    *("neg", "clamp", "clamp_min", "clamp_max", "clip", "mean", "amax", "amin"),
}
JOINING = ("cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack")


def is_arithmetic(function: object) -> bool:
    """Return whether a function, or a method by its name, only scales, shifts, bounds or averages a tensor, in place or not.

    >>> import torch
    >>> is_arithmetic(torch.add), is_arithmetic("clamp_"), is_arithmetic(torch.exp)
    (True, True, False)
    """
    return str(getattr(function, "__name__", function)).strip("_") in _ARITHMETIC


def returned_nodes(graph: fx.Graph, module: nn.Module) -> Iterator[fx.Node]:
    """Yield the nodes whose results a forward returns, alone or in a tuple (named or not), dict or dataclass, possibly reshaped or rescaled."""
    (output,) = [node for node in graph.nodes if node.op == "output"]
    pending = list(output.all_input_nodes)
    while pending:
        node = pending.pop()
        yield node
        shaping = node.op == "call_method" and node.target in _SHAPING
        shaping |= node.op == "call_function" and getattr(node.target, "__name__", "") in _SHAPING
        shaping |= node.op == "call_module" and isinstance(module.get_submodule(str(node.target)), SHAPING)
        if shaping:
            pending += node.all_input_nodes[:1]
        elif node.op in ("call_method", "call_function") and is_arithmetic(node.target):
            changing = [each for each in node.all_input_nodes if each.op != "get_attr"]
            pending += changing if len(changing) == 1 else []
        elif getattr(node.target, "__name__", "") in JOINING or _is_record(node.target):
            pending += node.all_input_nodes
        elif node.target is operator.getitem and not _from_a_tuple(node):
            pending += node.all_input_nodes[:1]


def _is_record(target: object) -> bool:
    """Return whether a call makes a named tuple or a dataclass: torch.fx records both as calls of their class."""
    return isinstance(target, type) and (dataclasses.is_dataclass(target) or issubclass(target, tuple))


def _from_a_tuple(node: fx.Node) -> bool:
    """Return whether an index selects one of several results of a child; what is done with the others is not known."""
    return node.all_input_nodes[0].op == "call_module" and isinstance(node.args[1], int)
