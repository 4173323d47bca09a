"""Functional activations made visible by torch.fx: one module's own forward, with its children as black boxes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import fx, nn

from mollifier.activations import Activation, of_function, of_module, python_functions
from mollifier.convert._spots import KEY, Holder
from mollifier.convert._structure import BETWEEN, Width, affine_width


class _OwnForward(fx.Tracer):
    """Traces a module's own forward only, and looks into no activation that is written in Python."""

    def __init__(self) -> None:
        super().__init__(autowrap_functions=python_functions())

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True


@dataclass
class Site:
    """A place in a forward where an activation is computed.

    Attributes:
        index: Its number in the graph: its noise is called ``act_<index>``, its copy ``copy_<index>``.
        node: The node of the graph.
        function: The activation, if it is called as a function or method; None if it is a module.
        layer: The node of the affine layer whose output it takes, if that is all that stands before it.
        width: Of that layer.
    """

    index: int
    node: fx.Node
    function: Activation | None
    layer: fx.Node | None
    width: Width | None

    def label(self) -> str:
        """The layer and the activation, for the report."""
        layer = "" if self.layer is None else f"{self.layer.target}, "
        return f"{layer}{self.function or self.node.target}"


def trace(module: nn.Module, plain: type[nn.Module] | None = None) -> tuple[fx.Graph, list[Site]]:
    """The graph of a module's own forward, and the activations in it.

    Raises:
        Exception: Whatever torch.fx raises where the forward depends on its data.
    """
    swapped = type(module)
    try:
        module.__class__ = plain or swapped
        graph = _OwnForward().trace(module)
    finally:
        module.__class__ = swapped
    sites: list[Site] = []
    for node in graph.nodes:
        function = _function(node)
        if function is None and not (node.op == "call_module" and of_module(module.get_submodule(node.target))):
            continue
        layer = _layer_before(node, module)
        width = affine_width(module.get_submodule(str(layer.target))) if layer is not None else None
        sites.append(Site(len(sites), node, function, layer, width))
    return graph, sites


def _function(node: fx.Node) -> Activation | None:
    if node.op not in ("call_function", "call_method") or not node.args or not isinstance(node.args[0], fx.Node):
        return None
    further = (*node.args[1:], *node.kwargs.values())
    if any(isinstance(arg, fx.Node) for arg in further):
        return None
    try:
        found = of_function(node.target, tuple(node.args[1:]), node.kwargs)
    except ValueError:
        return None
    return None if found is not None and _changes_what_others_read(node) else found


def _changes_what_others_read(node: fx.Node) -> bool:
    in_place = node.kwargs.get("inplace") or str(getattr(node.target, "__name__", node.target)).endswith("_")
    return bool(in_place) and len(node.all_input_nodes[0].users) > 1


def refused(graph: fx.Graph) -> list[tuple[str, str]]:
    """The activations of a graph that cannot be made noisy, each with the reason."""
    found: list[tuple[str, str]] = []
    for node in graph.nodes:
        if node.op not in ("call_function", "call_method") or _function(node) is not None:
            continue
        try:
            known = of_function(node.target) is not None
        except ValueError:
            known = True
        if not known:
            continue
        name = str(getattr(node.target, "__name__", node.target))
        if any(isinstance(arg, fx.Node) for arg in (*node.args[1:], *node.kwargs.values())):
            found.append((name, "its options are computed in forward: it is not a function of one unit"))
        elif node.args and isinstance(node.args[0], fx.Node) and _changes_what_others_read(node):
            found.append((name, "it changes its input in place, and the input is read again: make it out of place"))
        else:
            found.append((name, "with these options it has no tangent at 0"))
    return found


def _layer_before(node: fx.Node, module: nn.Module) -> fx.Node | None:
    before: Any = node.args[0] if node.args else None
    while isinstance(before, fx.Node) and before.op == "call_module" and len(before.users) == 1:
        child = module.get_submodule(str(before.target))
        if affine_width(child) is not None:
            return before if before.args and isinstance(before.args[0], fx.Node) else None
        if not isinstance(child, BETWEEN):
            return None
        before = before.args[0] if before.args else None
    return None


def traced_forward(module: nn.Module, plain: type[nn.Module], holder: Holder) -> Callable[..., Any]:
    """The forward of a traced module with the holder's noise and copies in their places.

    It is made from the plain class and the names in the holder alone, so that a pickled model makes it anew.
    """
    graph, sites = trace(module, plain)
    inner = holder.inner or nn.ModuleDict()
    for site in sites:
        noise, copy = f"act_{site.index}", f"copy_{site.index}"
        out = site.node
        if noise in inner:
            with graph.inserting_after(out):
                new = graph.call_module(f"{KEY}.inner.{noise}", (out.args[0],))
            out.replace_all_uses_with(new)
            graph.erase_node(out)
            out = new
        if copy in inner:
            assert site.layer is not None
            with graph.inserting_after(out):
                mixed = graph.call_module(f"{KEY}.inner.{copy}", (site.layer.args[0], out))
            out.replace_all_uses_with(mixed, delete_user_cb=partial(operator.is_not, mixed))
    code = graph.python_code("self")
    space: dict[str, Any] = dict(code.globals)
    exec(compile(code.src, f"<{plain.__name__}.forward, traced and mollified>", "exec"), space)
    forward: Callable[..., Any] = space["forward"]
    return forward
