"""Find out what a module's own forward does by running an example, for forwards that torch.fx cannot trace, such as loops over data."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from types import CodeType, FrameType
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from mollifier.activations import function_name, of_function
from mollifier.convert._forward import Call, ForwardSummary
from mollifier.convert._live import PASSING, intercepted_methods
from mollifier.convert._outputs import is_product, is_sum
from mollifier.convert._structure import BETWEEN, SHAPING, affine_width, has_tangent, passes_on

_IN_PLACE = "it works in place, in a forward that cannot be traced; make it out of place"
_NO_TANGENT = "with these options it has no tangent at 0"


@dataclass
class _Trail:
    layer: str
    between: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Origin:
    """What a tensor was computed from, as places of steps in the forward.

    Attributes:
        steps: Those whose result it is, or contains.
        hidden: Those before a layer.
        below: All of them.
        layer: Whether it is the result of a layer, or a sum with one.
    """

    steps: frozenset[int] = frozenset()
    hidden: frozenset[int] = frozenset()
    below: frozenset[int] = frozenset()
    layer: bool = False

    def __or__(self, other: _Origin) -> _Origin:
        sets = (self.steps | other.steps, self.hidden | other.hidden, self.below | other.below)
        return _Origin(*sets, self.layer or other.layer)

    def after_activation(self) -> _Origin:
        """Return what the result of an activation was computed from."""
        return replace(self, steps=frozenset(), layer=False)

    def after_layer(self) -> _Origin:
        """Return what the result of a layer was computed from."""
        return _Origin(hidden=self.below, below=self.below)


@dataclass
class _Running:
    """A running forward: what it has done so far, and which of that its tensors were computed from."""

    path: str
    found: ForwardSummary = field(default_factory=ForwardSummary)
    results: dict[int, tuple[Tensor, _Origin]] = field(default_factory=dict)  # kept alive, so that ids stay unique

    def origin(self, tensors: Iterable[Tensor]) -> _Origin:
        """Return what any of these tensors, or of those that they are views of, was computed from."""
        found = _Origin()
        for tensor in tensors:
            for each in (tensor, tensor._base):
                if id(each) in self.results:
                    found |= self.results[id(each)][1]
        return found

    def keep(self, tensors: Iterable[Tensor], origin: _Origin) -> None:
        """Note what these tensors were computed from; a view that was written to is a part of its base."""
        if not origin.below:
            return
        for tensor in tensors:
            self.results[id(tensor)] = tensor, origin
            if tensor._base is not None:
                self.results[id(tensor._base)] = tensor._base, origin | self.origin([tensor._base])

    def add(self, step: Call | str, result: Any, also: _Origin) -> None:
        """Note a step with its result, which may be that of earlier steps as well."""
        here = frozenset({len(self.found.steps)})
        self.keep(_tensors(result), also | _Origin(here, below=here))
        self.found.steps.append(step)


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
        self._stack: list[_Running] = []
        self._counts: dict[FrameType, int] = {}
        self._trails: dict[int, tuple[Tensor, _Trail]] = {}  # the tensor is kept alive, so that its id stays unique

    def enter(self, module: nn.Module) -> None:
        """Record that a module's forward begins."""
        self._stack.append(_Running(self._names[module]))

    def leave(self, module: nn.Module, args: tuple[Any, ...], out: Any) -> None:
        """It ends."""
        running = self._stack.pop()
        self._finish(running, out)
        if not self._stack:
            return
        path, given = running.path, next((arg for arg in args if isinstance(arg, Tensor)), None)
        above = self._stack[-1]
        trail = self._trails.get(id(given))
        # (a hook is not told of keyword arguments)
        known = _tensors(args) or [tensor for tensor, _ in above.results.values()]
        also = above.origin(known)
        layer = affine_width(module) is not None or (also.layer and isinstance(module, SHAPING))
        if not passes_on(module):
            weighs = next(module.parameters(), None) is not None
            also = also.after_layer() if weighs else also.after_activation()
        also = replace(also, layer=layer)
        names = [name for name in self._places[module] if name.startswith(f"{above.path}." if above.path else "")]
        if not names:  # it belongs to another part of the model
            above.keep(_tensors(out), also)
        elif has_tangent(module):
            above.add(Call(module=_below(above.path, names[0]), **self._before(above.path, given)), out, also)
        else:
            above.add(_below(above.path, names[0]), out, also)
        if affine_width(module) is not None:
            self._trails[id(out)] = (out, _Trail(path))
        elif isinstance(module, BETWEEN) and trail is not None:
            self._trails[id(out)] = (out, _Trail(trail[1].layer, (*trail[1].between, path)))

    def _finish(self, running: _Running, out: Any) -> None:
        found = running.found
        for place in running.origin(_tensors(out)).steps:
            step = found.steps[place]
            if isinstance(step, str):
                found.returned.add(step)
            else:
                found.steps[place] = replace(step, returned=True)
        self.found.setdefault(running.path, found)

    def _before(self, path: str, given: Any) -> dict[str, Any]:
        trail = self._trails.get(id(given))
        if trail is None or not trail[1].layer.startswith(f"{path}." if path else ""):
            return {}
        return {
            "layer": _below(path, trail[1].layer),
            "between": tuple(_below(path, each) for each in trail[1].between),
        }

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = args[0] if args else kwargs.get("input")
        name = function_name(func)
        out = func(*args, **kwargs)
        if func in PASSING and id(given) in self._trails:
            self._trails[id(out)] = (out, self._trails[id(given)][1])
        speaks = self._stack and self._stack[-1].path in self._codes
        if name is not None and speaks and (key := self._key()):
            call = self._call(name, func, args, kwargs, key, given)
            also = self._stack[-1].origin(_tensors((args, kwargs)))
            self._stack[-1].add(call, out, also if call.refused else also.after_activation())
        elif name is None and self._stack:
            self._same_output(func, args[0] if func is Tensor.__setitem__ else out, _tensors((args, kwargs)))
        return out

    def _same_output(self, func: Any, out: Any, given: list[Tensor]) -> None:
        """Note the steps whose result is in what a function computed, unless the function is a layer or adds the result of one."""
        others = [tensor for tensor in given if not self._is_weight(tensor)]
        weights = len(others) < len(given)
        if weights and all(id(tensor) in self._buffers for tensor in others):
            self._weights |= {id(tensor): tensor for tensor in _tensors(out)}
        terms = [self._stack[-1].origin([tensor]) for tensor in given]
        origin = functools.reduce(operator.or_, terms, _Origin())
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
        self._stack[-1].keep(_tensors(out), origin)

    def _is_weight(self, tensor: Tensor) -> bool:
        return id(tensor) in self._weights or id(tensor._base) in self._weights

    def _key(self) -> str:
        # only of the running module: its forward may also call the same class elsewhere, which is no part of the model
        codes = self._codes[self._stack[-1].path]
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code not in codes:
            frame = frame.f_back
        if frame is None:
            return ""
        number = self._counts.get(frame, 0)
        self._counts[frame] = number + 1
        return f"{codes[frame.f_code]}_{number}"

    def _call(self, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], key: str, given: Any) -> Call:
        if kwargs.get("inplace") or str(getattr(func, "__name__", "")).endswith("_"):
            return Call(module=name, key=key, refused=_IN_PLACE)
        try:
            options = {word: value for word, value in kwargs.items() if word != "input"}
            function = of_function(func, args[1:], options)
        except ValueError:
            return Call(module=name, key=key, refused=_NO_TANGENT)
        return Call(function=function, key=key, **self._before(self._stack[-1].path, given))


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
