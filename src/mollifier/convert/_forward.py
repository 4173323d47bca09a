"""Find out what a module's own forward does with its children, by tracing a copy of the module with torch.fx.

torch.fx records a single execution, so the trace is never run. It only tells which activations follow which layers, in which order, and what
is returned. The user's own code runs instead, see `_live.py`.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from types import CodeType, FrameType
from typing import Any

import torch
from torch import fx, nn
from torch.overrides import TorchFunctionMode

from mollifier.activations import function_name, is_visible, of_function, of_module, python_functions
from mollifier.convert import _reasons as reasons
from mollifier.convert._callers import Place, calling_method
from mollifier.convert._calls import Call, ForwardSummary, merged
from mollifier.convert._live import PASSING, intercepted_methods
from mollifier.convert._outputs import returned_nodes
from mollifier.convert._structure import BETWEEN, NO_TANGENT, affine_width, is_unknown, works_in_place
from mollifier.convert._unchanged import copied, unchanged
from mollifier.convert._values import Value, refusal, values_of

_UNSEEN = "its calls cannot be seen: call what mollifier.register returned, or use it as a decorator"
# Called with a size that is not known yet, such as torch.randn(x.shape), these raise in torch 2.8 unless torch.fx wraps them.
_FACTORIES = (
    *(torch.empty, torch.full, torch.ones, torch.zeros, torch.rand, torch.randn, torch.randint, torch.randperm),
    *(torch.arange, torch.eye, torch.linspace),
)


def trace_forward(module: nn.Module) -> ForwardSummary:
    """Trace a module's own forward, in train and in eval mode.

    Raises:
        Exception: Whatever torch.fx raises if the forward depends on its data.
    """
    one = _look(module, module.training)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            two = _look(module, not module.training)
        except Exception:  # a forward that can be traced in only one mode is known only in that mode
            return one
    return merged(one, two) if module.training else merged(two, one)


def _look(module: nn.Module, training: bool) -> ForwardSummary:
    with unchanged(module), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tracer = _OwnForward(type(module))
        root = _copy_of(module, training)
        with _Known(tracer) as known:
            graph = tracer.trace(root)
    tracer.values = values_of(graph, module)
    found = ForwardSummary([*known.calls])
    calls = {node: call for node in graph.nodes if (call := _call(node, module, tracer)) is not None}
    returned = set(returned_nodes(graph, root, lambda node: node in calls and not calls[node].refused))
    for node in graph.nodes:
        call = calls.get(node)
        if call is not None:
            found.steps.append(replace(call, returned=node in returned))
            if call.place:
                found.places.setdefault(call.key, []).append(call.place)
        elif node.op == "call_module":
            found.steps.append(str(node.target))
            if any(len(each.users) > 1 for each in node.all_input_nodes[:1]):
                found.read_again.add(str(node.target))
            users = list(node.users)
            if node in returned and not _may_be_activated(node, module):
                found.returned.add(str(node.target))
            if users:
                found.followed[str(node.target)] = " and ".join(dict.fromkeys(_name(user, module) for user in users))
    return found


class _OwnForward(fx.Tracer):
    """Trace only a module's own forward, without entering activations written in Python, and record which method makes each call."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__(autowrap_functions=(*python_functions(), *_FACTORIES))
        self._autowrap_search.append(torch)  # where they are looked up; its other functions are left alone
        methods = {name: getattr(kind, name) for name in intercepted_methods(kind)}
        self.names = {_definition(method.__code__): name for name, method in methods.items()}
        self.counts: dict[FrameType, int] = {}
        self.places: dict[fx.Node, tuple[str, Place]] = {}
        self.refused: dict[fx.Node, str] = {}
        self.values: dict[fx.Node, Value] = {}

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True

    def create_node(self, kind: str, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        node = super().create_node(kind, target, *args, **kwargs)
        if _activation_name(node) is not None:
            key, place, self.refused[node] = self.place()
            if key:
                self.places[node] = key, place
        return node

    def place(self) -> tuple[str, Place, str]:
        """Return which call of an activation this is, or "", where it is, and why it cannot be mollified, or ""."""
        frame, place, refused = calling_method(lambda code: _definition(code) in self.names)
        if frame is None:
            return "", (), refused
        number = self.counts.get(frame, 0)
        self.counts[frame] = number + 1
        return f"{self.names[_definition(frame.f_code)]}_{number}", place, refused


class _Known(TorchFunctionMode):
    """Note the activations of what is known before forward runs, such as buffers: torch.fx computes them and does not record them."""

    def __init__(self, tracer: _OwnForward) -> None:
        super().__init__()
        self.tracer = tracer
        self.calls: list[Call] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = function_name(func)
        if name is not None and not any(isinstance(arg, fx.Proxy) for arg in (*args, *kwargs.values())):
            key, place, refused = self.tracer.place()
            if key:
                self.calls.append(Call(key=key, place=place, module=name, refused=refused or reasons.NO_DATA))
        return func(*args, **kwargs)


def _definition(code: CodeType) -> tuple[str, int, str]:
    """Return where a function is defined. torch.fx runs a copy of a forward that has ``*args``, ``**kwargs`` or keyword-only arguments, with a code of its own."""
    return code.co_filename, code.co_firstlineno, code.co_name


def _copy_of(module: nn.Module, training: bool) -> nn.Module:
    """Return a module of the same class with the same children, so that whatever its forward assigns is discarded."""
    double: nn.Module = object.__new__(type(module))
    double.__dict__.update(copied(vars(module)))
    double.__dict__["training"] = training
    return double


def _activation_name(node: fx.Node) -> str | None:
    """Return the name of the activation that is called as a function or method, with any options."""
    if node.op == "call_method":
        return function_name(getattr(torch.Tensor, str(node.target), None))
    try:
        return function_name(node.target) if node.op == "call_function" and is_visible(node.target) else None
    except TypeError:  # unhashable
        return None


def _call(node: fx.Node, module: nn.Module, tracer: _OwnForward) -> Call | None:
    if node.op == "call_module":
        child = module.get_submodule(str(node.target))
        try:
            if of_module(child) is None:
                return None
        except ValueError:
            return None
        # in place and called as a statement, its result is read under the name of its input
        shared = works_in_place(child) and any(len(each.users) > 1 for each in node.all_input_nodes[:1])
        return Call(
            module=str(node.target),
            refused=reasons.IN_PLACE if shared else refusal(tracer.values[node]),
            **_before(node, module),
        )
    name = _activation_name(node)
    if name is None and node.op == "call_function" and not is_visible(node.target):
        name = function_name(node.target)
        return None if name is None else Call(key="unseen", module=name, refused=_UNSEEN)
    if name is None:
        return None
    key, place = tracer.places.get(node, ("", ()))
    given = node.args[0] if node.args else node.kwargs.get("input")
    further = (*node.args[1:], *(value for word, value in node.kwargs.items() if word != "input"))
    options = {word: value for word, value in node.kwargs.items() if word != "input"}
    if not isinstance(given, fx.Node) or not key:
        return Call(
            key=key or "unseen",
            place=place,
            module=name,
            refused="it is called on something that is not known before forward runs",
        )
    if any(isinstance(arg, fx.Node) for arg in further):
        why = "its options are computed in forward: it is not a function of one unit"
        return Call(key=key, place=place, module=name, refused=why)
    try:
        target = getattr(torch.Tensor, str(node.target)) if node.op == "call_method" else node.target
        function = of_function(target, tuple(node.args[1:]), options)
    except ValueError:
        return Call(key=key, place=place, module=name, refused="with these options it has no tangent at 0")
    if _changes_what_others_read(node, given):
        return Call(key=key, place=place, module=name, refused=reasons.IN_PLACE)
    refused = tracer.refused[node] or refusal(tracer.values[node])
    return Call(function=function, key=key, place=place, refused=refused, **_before(node, module))


def _changes_what_others_read(node: fx.Node, given: fx.Node) -> bool:
    in_place = node.kwargs.get("inplace") or str(getattr(node.target, "__name__", node.target)).endswith("_")
    return bool(in_place) and len(given.users) > 1


def _before(node: fx.Node, module: nn.Module) -> dict[str, Any]:
    """Return the affine layer that an activation follows, and the modules in between."""
    between: list[str] = []
    before: Any = node.args[0] if node.args else node.kwargs.get("input")
    while isinstance(before, fx.Node) and len(before.users) == 1:
        if before.op == "call_function" and before.target in PASSING:
            pass
        elif before.op == "call_module":
            child = module.get_submodule(str(before.target))
            if affine_width(child) is not None:
                return {"layer": str(before.target), "between": tuple(reversed(between))}
            if not isinstance(child, BETWEEN):
                break
            between.append(str(before.target))
        else:
            break
        before = before.args[0] if before.args else before.kwargs.get("input")
    return {}


def _may_be_activated(node: fx.Node, module: nn.Module) -> bool:
    """Return whether a layer's result goes to what may be an activation, but not one of the table: it is no output layer then."""
    if affine_width(module.get_submodule(str(node.target))) is None:
        return False
    children = [module.get_submodule(str(user.target)) for user in node.users if user.op == "call_module"]
    if any(is_unknown(child) or type(child) in NO_TANGENT for child in children):
        return True
    names = {kind.__name__.lower() for kind in NO_TANGENT}
    return any(str(getattr(user.target, "__name__", user.target)).strip("_") in names for user in node.users)


def _name(node: fx.Node, module: nn.Module) -> str:
    if node.op == "call_module":
        return f"{node.target} ({type(module.get_submodule(str(node.target))).__name__})"
    return "" if node.op == "output" else str(getattr(node.target, "__name__", node.target))
