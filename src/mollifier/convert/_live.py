"""Mollify functional activations in a user's forward while that forward runs.

The user's Python code runs as written at every level, with its attributes, control flow and random numbers. Only calls such as
``torch.tanh(x)`` or ``x.relu()`` are intercepted, by a `TorchFunctionMode` that is active while the method runs.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import CO_GENERATOR
from types import CodeType, FrameType, FunctionType
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from mollifier.activations import function_name, function_names, of_function
from mollifier.convert._callers import Place, calling_method
from mollifier.convert._classes import KEY, Patch, while_patched
from mollifier.convert._runs import ends_of
from mollifier.convert._structure import is_torchs
from mollifier.nn import NoisyActivation
from mollifier.nn.copy import version

# Functions that may come between a layer and its activation, like the modules of the same names.
# Looked up in compiled forwards: torch 2.8 can trace that for a dict, but not for a frozenset.
PASSING = dict.fromkeys((
    *(F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout, torch.dropout),
    *(F.batch_norm, F.layer_norm, F.group_norm, F.instance_norm, F.rms_norm, F.local_response_norm),
))  # fmt: skip


class Scope(TorchFunctionMode):
    """One call of a method: replaces the activations that the method calls, in the order of its calls."""

    def __init__(self, owner: nn.Module, method: str) -> None:
        super().__init__()
        self.owner, self.method, self.count = owner, method, 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        scopes = _scopes()
        if not scopes or scopes[-1] is not self:  # the call comes from a module inside, or from this library itself
            return func(*args, **kwargs)
        if func in PASSING:
            return self._pass(func, args, kwargs)
        name = function_name(func)
        return func(*args, **kwargs) if name is None else self._answer(name, func, args, kwargs)

    def _pass(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = args[0] if args else kwargs.get("input")
        before = version(given)
        out = func(*args, **kwargs)
        for end in ends_of(self.owner):
            end.run.follow(given, out, before)  # type: ignore[arg-type]
        return out

    def _answer(self, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        number, self.count = self.count, self.count + 1
        x: Any = args[0] if args else kwargs.get("input")

        def plain(_: Tensor) -> Any:
            return func(*args, **kwargs)

        key, state = f"{self.method}_{number}", cast(Any, self.owner._modules[KEY])
        if state.in_eval is not None and not self.owner.training:
            key = state.in_eval.get(key, "")
        loose = state._modules.get("loose")
        noise: NoisyActivation | None = loose._modules.get(key) if loose is not None else None
        if noise is not None and noise.activation.name != name:
            noise = None
        ends = [end for end in ends_of(self.owner) if end.function == name]
        place: Place = ()
        if (
            ends or noise is not None
        ) and not torch.compiler.is_compiling():  # a compiled forward relies on what `mollify` saw
            _, place, refused = self._caller()
            if refused:
                return plain(x)
        for end in ends:
            if (below := end.arrival(x)) is not None:
                if end.noise is not None:
                    _keep_options(end.noise, func, args, kwargs)
                return end(below, x, plain)
        if noise is None or _elsewhere(key, place, state):
            if not torch.compiler.is_compiling():
                self._doubt(name, key, state)
            return plain(x)
        _keep_options(noise, func, args, kwargs)
        return noise(x) if noise.active else noise.pass_through(plain(x))

    def _caller(self) -> tuple[FrameType | None, Place, str]:
        """Return what `calling_method` finds out about a call in the method."""
        code = getattr(type(self.owner)._plain_class, self.method).__code__  # type: ignore[attr-defined]
        return calling_method(lambda each: each is code)

    def _doubt(self, name: str, key: str, state: Any) -> None:
        """Warn once if an activation unexpectedly stays plain, because the forward does something other than what `mollify` saw."""
        if state.__dict__.get("doubted"):
            return
        known: list[int] = [] if _elsewhere(key, self._caller()[1], state) else state.calls.get(key, {}).get(name, [])
        ends = ends_of(self.owner)
        if any(number < 0 or not ends[number].copies for number in known):  # it may be one of these
            return
        what = "its layer was not called just before it" if known else "mollify saw no such call there"
        warn_once(
            state,
            f"{type(self.owner).__name__}.{self.method} calls {name}, but {what}: it stays plain. Give mollify an example= input "
            "that takes the same path through the forward, or leave the activation out with exclude=.",
        )


def _elsewhere(key: str, place: Place, state: Any) -> bool:
    """Return whether a call is certainly not at a place where `mollify` saw it; in a compiled forward, only its number is known."""
    return bool(place) and key in state.places and state.python == sys.version and place not in state.places[key]


def warn_once(state: nn.Module, message: str) -> None:
    """Warn, once per module, that something differs from what `mollify` saw."""
    if not state.__dict__.get("doubted"):
        state.__dict__["doubted"] = True
        warnings.warn(message, RuntimeWarning, stacklevel=5)


def _keep_options(noise: NoisyActivation, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Adopt options, such as a slope, that the user's code has changed since."""
    if len(args) < 2 and not kwargs:
        return
    found = of_function(func, args[1:], kwargs)
    if found is not None and found.options != noise.activation.options:
        noise.activation = found


class ForwardPatch(Patch):
    """A module whose own methods call activations as functions."""

    @classmethod
    def methods_for(cls, plain: type[nn.Module]) -> dict[str, Any]:
        """Return the methods that are intercepted."""
        return {name: _intercepted(getattr(plain, name), name) for name in intercepted_methods(plain)}


def _intercepted(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    @wraps(method)
    def run(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        state = self._modules.get(KEY)  # None after `restore`, if this method was kept
        if state is None or not (_any_active(state) or torch.distributed.is_initialized()):
            return method(self, *args, **kwargs)
        scope, scopes = Scope(self, name), _scopes()
        scopes.append(scope)
        try:
            with scope:
                return method(self, *args, **kwargs)
        finally:
            scopes.pop()

    return run


def intercepted_methods(kind: type[nn.Module]) -> list[str]:
    """Return the methods of a user's class that may call an activation: forward, and every method that names one.

    What a generator calls belongs to the method that runs through it, since that is when it is called.

    >>> class Net(nn.Module):
    ...     def encode(self, x): return torch.tanh(x)
    ...     def forward(self, x): return self.encode(x)
    >>> sorted(intercepted_methods(Net))
    ['encode', 'forward']
    """
    words = function_names()
    found: dict[str, None] = {}
    for base in kind.__mro__:
        if is_torchs(base):
            continue
        for name, method in vars(base).items():
            if not isinstance(method, FunctionType) or method.__code__.co_flags & CO_GENERATOR:
                continue
            if name == "forward" or words & _words(method.__code__):
                found[name] = None
    return [name for name in found if not name.startswith("__")]


def _words(code: CodeType) -> set[str]:
    inside = (_words(each) for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*inside)


def _any_active(state: nn.Module) -> bool:
    ends, loose = state._modules.get("ends"), state._modules.get("loose")
    if ends is not None:
        for end in ends._modules.values():
            if end.copies or (end.noise is not None and end.noise.active):  # type: ignore[union-attr]
                return True
    if loose is not None:
        for noise in loose._modules.values():
            if noise.active:  # type: ignore[union-attr]
                return True
    return False


class BoundaryPatch(Patch):
    """A module called inside an intercepted forward, whose own activations do not belong to that forward."""

    @while_patched
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with not_intercepted():
            return super().forward(*args, **kwargs)


_local = threading.local()
_while_compiling: list[Scope | None] = []


def _scopes() -> list[Scope | None]:
    """The intercepted methods that run in this thread; only the innermost one is active."""
    if torch.compiler.is_compiling():
        return _while_compiling
    try:
        scopes: list[Scope | None] = _local.scopes
    except AttributeError:
        scopes = _local.scopes = []
    return scopes


@contextmanager
def not_intercepted() -> Iterator[None]:
    """Intercept nothing within this context."""
    scopes = _scopes()
    scopes.append(None)
    try:
        yield
    finally:
        scopes.pop()
