"""Find out what a module's own forward does by running an example, for forwards that torch.fx cannot trace, such as loops over data."""

from __future__ import annotations

import functools
import operator
from collections.abc import MutableMapping
from dataclasses import dataclass, field, replace
from types import CodeType, FrameType
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from mollifier.activations import function_name, of_function
from mollifier.convert._callers import Place, calling_method
from mollifier.convert._calls import Call, ForwardSummary
from mollifier.convert._live import PASSING, intercepted_methods
from mollifier.convert._origins import Origin, Origins
from mollifier.convert._outputs import is_product, is_sum
from mollifier.convert._structure import BETWEEN, SHAPING, affine_width, has_tangent, passes_on
from mollifier.convert._values import Value, computed, leaf, refusal
from mollifier.nn.copy import version

_IN_PLACE = "it works in place, in a forward that cannot be traced; make it out of place"
_NO_TANGENT = "with these options it has no tangent at 0"


@dataclass
class _Trail:
    """What a tensor of this version is the output of. It is kept alive, so that its id stays unique."""

    out: Tensor
    version: int | None
    layer: str
    between: tuple[str, ...] = ()


@dataclass
class _Running:
    """A running forward: what its input is the output of, what it has done so far, which of that its tensors were computed from, and the values
    of its activations, by their place among the steps.
    """

    path: str
    trail: _Trail | None = None
    found: ForwardSummary = field(default_factory=ForwardSummary)
    origins: Origins = field(default_factory=Origins)
    values: dict[int, Value] = field(default_factory=dict)

    def add(self, step: Call | str, result: Any, also: Origin, value: Value | None = None) -> None:
        """Note a step with its result, which may be that of earlier steps as well, and the value of an activation."""
        place = len(self.found.steps)
        here = frozenset({place})
        self.origins.keep(_tensors(result), also | Origin(here, below=here))
        self.found.steps.append(step)
        if value is not None:
            self.values[place] = value


class Recorder(TorchFunctionMode):
    """Record which activations follow which layers in every forward that runs; hooks report the modules.

    Attributes:
        found: What the first call of each module's forward did, by the module's name.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.found: dict[str, ForwardSummary] = {}
        self._names = {module: name for name, module in model.named_modules()}
        self._places: dict[nn.Module, list[str]] = {}  # all names of each
        for name, module in model.named_modules(remove_duplicate=False):
            self._places.setdefault(module, []).append(name)
        self._codes: dict[str, dict[CodeType, str]] = {}  # by module: its methods that may call activations
        for module, path in self._names.items():
            methods = {getattr(type(module), name).__code__: name for name in intercepted_methods(type(module))}
            if methods:
                self._codes[path] = methods
        self._buffers = {id(each) for each in model.buffers()}
        # the parameters, and what is computed from parameters and buffers alone
        self._weights: dict[int, Tensor] = {id(each): each for each in model.parameters()}
        self._values: MutableMapping[Tensor, Value] = WeakTensorKeyDictionary()
        self._values.update({each: leaf("parameter") for each in model.parameters()})
        self._values.update({each: leaf("buffer") for each in model.buffers()})
        self._stack: list[_Running] = []
        self._counts: dict[FrameType, int] = {}
        self._trails: dict[int, _Trail] = {}

    def enter(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        """Record that a module's forward begins."""
        given = next((arg for arg in args if isinstance(arg, Tensor)), None)
        self._stack.append(_Running(self._names[module], self._trail(given)))

    def leave(self, module: nn.Module, args: tuple[Any, ...], out: Any) -> None:
        """It ends."""
        running = self._stack.pop()
        self._finish(running, out)
        if not self._stack:
            return
        path, trail, above = running.path, running.trail, self._stack[-1]
        # (a hook is not told of keyword arguments)
        known = _tensors(args) or above.origins.tensors()
        also = above.origins.of(known)
        layer = affine_width(module) is not None or (also.layer and isinstance(module, SHAPING))
        if not passes_on(module):
            weighs = next(module.parameters(), None) is not None
            also = also.after_layer() if weighs else also.after_activation()
        also = replace(also, layer=layer)
        names = [name for name in self._places[module] if name.startswith(f"{above.path}." if above.path else "")]
        if not names:  # it belongs to another part of the model
            above.origins.keep(_tensors(out), also)
        elif has_tangent(module):
            above.add(
                Call(module=_below(above.path, names[0]), **_before(above.path, trail)), out, also, self._value(out)
            )
        else:
            above.add(_below(above.path, names[0]), out, also)
        if affine_width(module) is not None:
            self._trails[id(out)] = _Trail(out, version(out), path)
        elif isinstance(module, BETWEEN) and trail is not None:
            self._trails[id(out)] = _Trail(out, version(out), trail.layer, (*trail.between, path))

    def _finish(self, running: _Running, out: Any) -> None:
        found = running.found
        for place in running.origins.of(_tensors(out)).steps:
            step = found.steps[place]
            if isinstance(step, str):
                found.returned.add(step)
            else:
                found.steps[place] = replace(step, returned=True)
        for place, value in running.values.items():
            call = found.steps[place]
            if isinstance(call, Call) and not call.refused:
                found.steps[place] = replace(call, refused=refusal(value))
        self.found.setdefault(running.path, found)

    def _trail(self, given: Any) -> _Trail | None:
        """Return what a tensor is the output of, unless it was changed in place since."""
        trail = self._trails.get(id(given))
        return trail if trail is not None and trail.version == version(given) else None

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = args[0] if args else kwargs.get("input")
        name, trail = function_name(func), self._trail(given)
        out = func(*args, **kwargs)
        if func in PASSING and trail is not None:
            self._trails[id(out)] = replace(trail, out=out, version=version(out))
        speaks = self._stack and self._stack[-1].path in self._codes
        if isinstance(out, Tensor):
            inputs = [self._value(each) for each in _tensors((*args, *kwargs.values()))]
            self._values[out] = computed(func, inputs, activation=name is not None)
        key, place, refused = self._where() if name is not None and speaks else ("", (), "")
        if name is not None and key:
            call = self._call(name, func, args, kwargs, trail)
            call = replace(call, key=key, place=place, refused=call.refused or refused)
            also = self._stack[-1].origins.of(_tensors((args, kwargs)))
            self._stack[-1].add(call, out, also if call.refused else also.after_activation(), self._value(out))
            self._stack[-1].found.places.setdefault(key, []).append(place)
        elif name is None and self._stack:
            self._same_output(func, args[0] if func is Tensor.__setitem__ else out, _tensors((args, kwargs)))
        return out

    def _value(self, tensor: Tensor) -> Value:
        return self._values.setdefault(tensor, leaf("data"))

    def _same_output(self, func: Any, out: Any, given: list[Tensor]) -> None:
        """Note the steps whose result is in what a function computed, unless the function is a layer or adds the result of one."""
        others = [tensor for tensor in given if not self._is_weight(tensor)]
        weights = len(others) < len(given)
        if weights and all(id(tensor) in self._buffers for tensor in others):
            self._weights |= {id(tensor): tensor for tensor in _tensors(out)}
        terms = [self._stack[-1].origins.of([tensor]) for tensor in given]
        origin = functools.reduce(operator.or_, terms, Origin())
        if is_product(func) and weights:
            origin = origin.after_layer()
        elif not is_sum(func):
            origin = replace(origin, layer=False)
        elif origin.layer:
            origin = replace(origin, steps=frozenset())
        else:  # what a skip connection adds is hidden by the layers that it goes past
            past = [any(one.steps <= other.hidden for other in terms if other is not one) for one in terms]
            kept = [one.steps for one, skipped in zip(terms, past, strict=True) if not skipped]
            origin = replace(origin, steps=frozenset().union(*kept))
        self._stack[-1].origins.keep(_tensors(out), origin)

    def _is_weight(self, tensor: Tensor) -> bool:
        return id(tensor) in self._weights or id(tensor._base) in self._weights

    def _where(self) -> tuple[str, Place, str]:
        """Return which call of an activation this is in the running forward, or "", where it is, and why it cannot be mollified, or ""."""
        # only of the running module: its forward may also call the same class elsewhere, which is no part of the model
        codes = self._codes[self._stack[-1].path]
        frame, place, refused = calling_method(lambda code: code in codes)
        if frame is None:
            return "", (), ""
        number = self._counts.get(frame, 0)
        self._counts[frame] = number + 1
        return f"{codes[frame.f_code]}_{number}", place, refused

    def _call(self, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], trail: _Trail | None) -> Call:
        if kwargs.get("inplace") or str(getattr(func, "__name__", "")).endswith("_"):
            return Call(module=name, refused=_IN_PLACE)
        try:
            options = {word: value for word, value in kwargs.items() if word != "input"}
            function = of_function(func, args[1:], options)
        except ValueError:
            return Call(module=name, refused=_NO_TANGENT)
        return Call(function=function, **_before(self._stack[-1].path, trail))


def _before(path: str, trail: _Trail | None) -> dict[str, Any]:
    if trail is None or not trail.layer.startswith(f"{path}." if path else ""):
        return {}
    return {"layer": _below(path, trail.layer), "between": tuple(_below(path, each) for each in trail.between)}


def _below(path: str, name: str) -> str:
    return name.removeprefix(f"{path}.") if path else name


def _tensors(out: Any, depth: int = 3) -> list[Tensor]:
    """Yield the tensors in what a forward returns, including those in an object, such as a distribution."""
    if isinstance(out, Tensor):
        return [out]
    if isinstance(out, dict):
        values = list(out.values())
    else:
        values = list(out) if isinstance(out, (tuple, list)) else list(getattr(out, "__dict__", {}).values())
    return [tensor for value in values for tensor in _tensors(value, depth - 1)] if depth else []
