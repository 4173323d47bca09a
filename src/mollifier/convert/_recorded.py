"""Find out what a module's own forward does by running an example, for forwards that torch.fx cannot trace, such as loops over data."""

from __future__ import annotations

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
from mollifier.convert._outputs import JOINING, is_arithmetic
from mollifier.convert._structure import BETWEEN, affine_width, has_tangent
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
    """A running forward: what its input is the output of, what it has done so far, the results of its activations and children, and the values of
    its activations.
    """

    path: str
    trail: _Trail | None = None
    found: ForwardSummary = field(default_factory=ForwardSummary)
    results: list[tuple[Tensor, Call | str]] = field(default_factory=list)
    values: dict[int, Value] = field(default_factory=dict)

    def add(self, call: Call, out: Tensor, value: Value) -> None:
        self.found.steps.append(call)
        self.results.append((out, call))
        self.values[id(call)] = value


class Recorder(TorchFunctionMode):
    """Record which activations follow which layers in every forward that runs; hooks report the modules.

    Attributes:
        found: What the first call of each module's forward did, by the module's name.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.found: dict[str, ForwardSummary] = {}
        self._names = {module: name for name, module in model.named_modules()}
        self._codes: dict[str, dict[CodeType, str]] = {}  # by module: its methods that may call activations
        for module, path in self._names.items():
            methods = {getattr(type(module), name).__code__: name for name in intercepted_methods(type(module))}
            if methods:
                self._codes[path] = methods
        self._constant = {id(each) for each in (*model.parameters(), *model.buffers())}
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
        returned = {id(tensor) for tensor in _tensors(out)} | {
            id(t._base) for t in _tensors(out) if t._base is not None
        }
        self._finish(running, returned)
        if not self._stack or not isinstance(out, Tensor):
            return
        path, trail, above = running.path, running.trail, self._stack[-1]
        if has_tangent(module):
            call = Call(module=_below(above.path, path), **_before(above.path, trail))
            above.add(call, out, self._value(out))
        else:
            above.found.steps.append(_below(above.path, path))
            above.results.append((out, _below(above.path, path)))
        if affine_width(module) is not None:
            self._trails[id(out)] = _Trail(out, version(out), path)
        elif isinstance(module, BETWEEN) and trail is not None:
            self._trails[id(out)] = _Trail(out, version(out), trail.layer, (*trail.between, path))

    def _finish(self, running: _Running, returned: set[int]) -> None:
        found = running.found
        steps = [
            step
            for out, step in running.results
            if id(out) in returned or (out._base is not None and id(out._base) in returned)
        ]
        found.returned |= {step for step in steps if isinstance(step, str)}
        outputs = {id(step) for step in steps}
        for place, call in enumerate(found.steps):
            if isinstance(call, Call):
                refused = call.refused or refusal(running.values[id(call)])
                found.steps[place] = replace(call, returned=id(call) in outputs, refused=refused)
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
        if self._stack and isinstance(out, Tensor):
            self._stack[-1].results += self._same_output(func, out, args, kwargs)
        speaks = self._stack and self._stack[-1].path in self._codes
        if isinstance(out, Tensor):
            inputs = [self._value(each) for each in _tensors((*args, *kwargs.values()))]
            self._values[out] = computed(func, inputs, activation=name is not None)
        key, place, refused = self._where() if name is not None and speaks else ("", (), "")
        if name is not None and key:
            call = self._call(name, func, args, kwargs, trail)
            call = replace(call, key=key, place=place, refused=call.refused or refused)
            self._stack[-1].add(call, out, self._value(out))
            self._stack[-1].found.places.setdefault(key, []).append(place)
        return out

    def _value(self, tensor: Tensor) -> Value:
        return self._values.setdefault(tensor, leaf("data"))

    def _same_output(
        self, func: Any, out: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[tuple[Tensor, Call | str]]:
        """Return the steps whose result the computed tensor still is, possibly on another scale, or together with others."""
        if getattr(func, "__name__", "") in JOINING and args and isinstance(args[0], (tuple, list)):
            joined = {id(each) for each in args[0]}
            return [(out, step) for result, step in self._stack[-1].results if id(result) in joined]
        if not is_arithmetic(func):
            return []
        changing = [
            arg for arg in (*args, *kwargs.values()) if isinstance(arg, Tensor) and id(arg) not in self._constant
        ]
        if len(changing) != 1:
            return []
        return [(out, step) for result, step in self._stack[-1].results if result is changing[0]]

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
