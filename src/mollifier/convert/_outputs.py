"""Find what a forward returns: the result of an activation remains the output, whatever is computed from it without a layer in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter

from torch import Tensor, fx, nn

from mollifier.convert._structure import SHAPING, affine_width, passes_on

_SUMS = {f"{prefix}{name}" for name in ("add", "sub") for prefix in ("", "r", "i")}
# Functions that are layers if one of their arguments is a weight.
_PRODUCTS = {
    *("linear", "bilinear", "matmul", "rmatmul", "imatmul", "mm", "bmm", "mv", "dot", "inner", "vdot", "chain_matmul"),
    *("multi_dot", "addmm", "addmv", "addbmm", "baddbmm", "einsum", "tensordot"),
    *(f"conv{transposed}{dim}d" for transposed in ("", "_transpose") for dim in (1, 2, 3)),
}


def is_sum(function: object) -> bool:
    """Return whether a function, or a method by its name, adds or subtracts two tensors, in place or not.

    >>> import torch
    >>> is_sum(torch.add), is_sum("sub_"), is_sum(torch.sum)
    (True, True, False)
    """
    return _name(function) in _SUMS


def is_product(function: object) -> bool:
    """Return whether a function, or a method by its name, is a layer if one of its arguments is a weight.

    >>> import torch
    >>> is_product(torch.einsum), is_product("__matmul__"), is_product(torch.mul)
    (True, True, False)
    """
    return _name(function) in _PRODUCTS


def returned_nodes(graph: fx.Graph, module: nn.Module, is_activation: Callable[[fx.Node], bool]) -> Iterator[fx.Node]:
    """Yield the nodes that what a forward returns is computed from, back to its activations and to its children with parameters.

    Whatever comes before a layer is hidden. A product with a weight is a layer as well. A sum with the result of a layer takes all values
    anyway, and hides its terms. What a skip connection adds is hidden by the layers that it goes past.
    """
    (output,) = [node for node in graph.nodes if node.op == "output"]
    pending, seen = list(output.all_input_nodes), set[fx.Node]()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        if is_activation(node):
            continue
        if node.op == "call_module":
            pending += node.all_input_nodes if passes_on(module.get_submodule(str(node.target))) else []
        elif is_sum(node.target):
            pending += [] if _adds_to_a_layer(node, module) else _without_skips(node.all_input_nodes, module)
        elif not _multiplies(node, module):
            pending += node.all_input_nodes


def _multiplies(node: fx.Node, module: nn.Module) -> bool:
    """Return whether a node is a layer that is written as a function."""
    return is_product(node.target) and any(_is_weight(each, module) for each in node.all_input_nodes)


def _is_weight(node: fx.Node, module: nn.Module) -> bool:
    """Return whether a node is a parameter, or is computed from parameters and other constants alone."""
    pending, weight = [node], False
    for here in pending:  # grows while it is walked
        if here.op == "get_attr":
            value = attrgetter(str(here.target))(module)
            weight |= isinstance(value, nn.Parameter) or (isinstance(value, Tensor) and value.requires_grad)
        elif here.op not in ("call_function", "call_method"):
            return False
        pending += [each for each in here.all_input_nodes if each not in pending]
    return weight


def _adds_to_a_layer(node: fx.Node, module: nn.Module) -> bool:
    """Return whether one of the terms of a sum is the result of a layer."""
    pending = list(node.all_input_nodes)
    for here in pending:  # grows while it is walked
        child = module.get_submodule(str(here.target)) if here.op == "call_module" else None
        if child is not None and affine_width(child) is not None:
            return True
        if is_sum(here.target) or isinstance(child, SHAPING):
            pending += [each for each in here.all_input_nodes if each not in pending]
    return False


def _without_skips(terms: list[fx.Node], module: nn.Module) -> list[fx.Node]:
    """Return the terms of a sum from which no other term is computed through a layer."""
    return [term for term in terms if not any(_is_below(term, other, module) for other in terms if other is not term)]


def _is_below(low: fx.Node, high: fx.Node, module: nn.Module) -> bool:
    """Return whether one node is computed from another through a layer."""
    pending, seen = [(high, False)], set[tuple[fx.Node, bool]]()
    while pending:
        node, layer = pending.pop()
        if node is low and layer:
            return True
        if (node, layer) in seen:
            continue
        seen.add((node, layer))
        if node.op == "call_module":
            layer |= next(module.get_submodule(str(node.target)).parameters(), None) is not None
        else:
            layer |= _multiplies(node, module)
        pending += [(each, layer) for each in node.all_input_nodes]
    return False


def _name(function: object) -> str:
    return str(getattr(function, "__name__", function)).strip("_")
