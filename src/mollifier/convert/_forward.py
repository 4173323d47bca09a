"""Find out what a module's own forward does with its children, by tracing a copy of the module with torch.fx.

torch.fx records a single execution, so the trace is never run. It only tells which activations follow which layers, in which order, and what
is returned. The user's own code runs instead, see `_live.py`.
"""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import CodeType, FrameType
from typing import Any

import torch
from torch import fx, nn
from torch.nn.parameter import is_lazy

from mollifier.activations import Activation, function_name, is_visible, of_function, of_module, python_functions
from mollifier.convert._live import PASSING, intercepted_methods
from mollifier.convert._outputs import returned_nodes
from mollifier.convert._structure import BETWEEN, NO_TANGENT, affine_width, is_unknown

_UNSEEN = "its calls cannot be seen: call what mollifier.register returned, or use it as a decorator"
# Called with a size that is not known yet, such as torch.randn(x.shape), these raise in torch 2.8 unless torch.fx wraps them.
_FACTORIES = (
    *(torch.empty, torch.full, torch.ones, torch.zeros, torch.rand, torch.randn, torch.randint, torch.randperm),
    *(torch.arange, torch.eye, torch.linspace),
)


@dataclass(frozen=True)
class Call:
    """An activation that a forward computes.

    Attributes:
        function: The activation, if it is called as a function or method; None for a module.
        module: The path of the activation module, if it is one.
        layer: The path of the affine layer whose output it takes, if only ``between`` is in between.
        between: The paths of the norms and dropouts in between.
        key: Where the call is: the method and the number of the call, as `Scope` counts them.
        returned: Whether the forward returns its result.
        refused: The reason why it cannot be mollified, if there is one.
    """

    function: Activation | None = None
    module: str = ""
    layer: str = ""
    between: tuple[str, ...] = ()
    key: str = ""
    returned: bool = False
    refused: str = ""

    @property
    def label(self) -> str:
        """Return the names of the layer and the activation, for the report."""
        return ", ".join(filter(None, (self.layer, str(self.function or self.module))))


@dataclass
class ForwardSummary:
    """What a forward does.

    Attributes:
        steps: Its activations, and the paths of the other children that it calls, in forward order.
        returned: The paths of the children whose result it returns.
        followed: For a child that is called, what takes its output.
    """

    steps: list[Call | str] = field(default_factory=list)
    returned: set[str] = field(default_factory=set)
    followed: dict[str, str] = field(default_factory=dict)


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
    outputs = {_identity(step) for step in two.steps if isinstance(step, Call) and step.returned}
    for place, step in enumerate(one.steps):
        if isinstance(step, Call) and _identity(step) in outputs:
            one.steps[place] = replace(step, returned=True)
    known = {_identity(step) for step in one.steps}
    one.steps += [step for step in two.steps if _identity(step) not in known]
    one.returned |= two.returned
    return one


def _identity(step: Call | str) -> Any:
    return step if isinstance(step, str) else (step.module, str(step.function), step.layer, step.key)


def _look(module: nn.Module, training: bool) -> ForwardSummary:
    with unchanged(module), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tracer = _OwnForward(type(module))
        root = _copy_of(module, training)
        graph = tracer.trace(root)
    found = ForwardSummary()
    calls = {node: call for node in graph.nodes if (call := _call(node, module, tracer)) is not None}
    returned = set(returned_nodes(graph, root, lambda node: node in calls and not calls[node].refused))
    for node in graph.nodes:
        call = calls.get(node)
        if call is not None:
            found.steps.append(replace(call, returned=node in returned))
        elif node.op == "call_module":
            found.steps.append(str(node.target))
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
        self.names = {_place(method.__code__): name for name, method in methods.items()}
        self.counts: dict[FrameType, int] = {}
        self.places: dict[fx.Node, str] = {}

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True

    def create_node(self, kind: str, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        node = super().create_node(kind, target, *args, **kwargs)
        if _activation_name(node) is not None:
            frame: FrameType | None = sys._getframe()
            while frame is not None and _place(frame.f_code) not in self.names:
                frame = frame.f_back
            if frame is not None:
                number = self.counts.get(frame, 0)
                self.counts[frame] = number + 1
                self.places[node] = f"{self.names[_place(frame.f_code)]}_{number}"
        return node


def _place(code: CodeType) -> tuple[str, int, str]:
    """Return where a function is defined. torch.fx runs a copy of a forward that has ``*args``, ``**kwargs`` or keyword-only arguments, with a code of its own."""
    return code.co_filename, code.co_firstlineno, code.co_name


def _copy_of(module: nn.Module, training: bool) -> nn.Module:
    """Return a module of the same class with the same children, so that whatever its forward assigns is discarded."""
    double: nn.Module = object.__new__(type(module))
    for key, value in vars(module).items():
        double.__dict__[key] = value.copy() if isinstance(value, (dict, list, set)) else value
    double.__dict__["training"] = training
    return double


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Run a forward inside this context, and restore modes, buffers, attributes and random states afterwards."""
    attributes = [(module.__dict__, dict(module.__dict__)) for module in model.modules()]
    registered = [(module._buffers, dict(module._buffers)) for module in model.modules()]
    values = [(buffer, buffer.clone()) for buffer in model.buffers() if not (buffer.is_meta or is_lazy(buffer))]
    state = random.getstate()
    numpy = sys.modules.get("numpy")
    theirs = numpy.random.get_state() if numpy is not None else None
    try:
        with torch.random.fork_rng():
            yield
    finally:
        for kept, before in (*attributes, *registered):
            kept.clear()
            kept.update(before)
        with torch.no_grad():
            for buffer, value in values:
                if not torch.equal(buffer, value):
                    buffer.copy_(value)
        random.setstate(state)
        if numpy is not None:
            numpy.random.set_state(theirs)


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
        try:
            if of_module(module.get_submodule(str(node.target))) is None:
                return None
        except ValueError:
            return None
        return Call(module=str(node.target), **_before(node, module))
    name = _activation_name(node)
    if name is None and node.op == "call_function" and not is_visible(node.target):
        name = function_name(node.target)
        return None if name is None else Call(key="unseen", module=name, refused=_UNSEEN)
    if name is None:
        return None
    key, given = tracer.places.get(node, ""), node.args[0] if node.args else node.kwargs.get("input")
    further = (*node.args[1:], *(value for word, value in node.kwargs.items() if word != "input"))
    options = {word: value for word, value in node.kwargs.items() if word != "input"}
    if not isinstance(given, fx.Node) or not key:
        return Call(key=key, module=name, refused="it is called on something that is not known before forward runs")
    if any(isinstance(arg, fx.Node) for arg in further):
        return Call(
            key=key, module=name, refused="its options are computed in forward: it is not a function of one unit"
        )
    try:
        target = getattr(torch.Tensor, str(node.target)) if node.op == "call_method" else node.target
        function = of_function(target, tuple(node.args[1:]), options)
    except ValueError:
        return Call(key=key, module=name, refused="with these options it has no tangent at 0")
    if _changes_what_others_read(node, given):
        why = "it changes its input in place, and the input is read again: make it out of place"
        return Call(key=key, module=name, refused=why)
    return Call(function=function, key=key, **_before(node, module))


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
