"""What is known of a module while the source of its forward is read: its children, and what its attributes and methods give."""

from __future__ import annotations

import ast
import functools
import inspect
import operator
import textwrap
from dataclasses import dataclass, field
from types import FunctionType, MethodType
from typing import Any, Protocol

from torch import nn

from mollifier.convert._source import of_function_safely
from mollifier.convert._structure import last_place, passes_on

# Methods of torch's modules and containers that give children, or call them.
_GIVING = {
    *("children", "named_children", "modules", "named_modules", "get_submodule", "values", "items", "get", "pop"),
    *("__iter__", "__getitem__", "__call__"),
}


@dataclass(frozen=True)
class Value:
    """What an expression may be: a result of some children, or these children themselves."""

    results: frozenset[str] = frozenset()
    children: frozenset[str] = frozenset()

    def __or__(self, other: Value) -> Value:
        return Value(self.results | other.results, self.children | other.children)

    @property
    def names(self) -> frozenset[str]:
        return self.results | self.children


NOTHING = Value()
Names = dict[str, Value]


def join(*ways: Names | None) -> Names | None:
    """Return what each name may be after any of several ways, of which those that are None do not arrive."""
    arrived = [way for way in ways if way is not None]
    names = dict.fromkeys(name for way in arrived for name in way)
    return {name: union([way.get(name, NOTHING) for way in arrived]) for name in names} if arrived else None


def union(values: list[Value]) -> Value:
    """Return what may be any of several values."""
    return functools.reduce(operator.or_, values, NOTHING)


@dataclass
class Arguments:
    """What a method is called with; ``spread`` if there are ``*args`` or ``**kwargs`` among them."""

    values: list[Value] = field(default_factory=list)
    words: Names = field(default_factory=dict)
    spread: bool = False

    @property
    def all(self) -> Value:
        return union([*self.values, *self.words.values()])

    def bind(self, parameters: ast.arguments, first: int) -> Names:
        """Return what each parameter is, from the first that the caller gives."""
        named = [each.arg for each in (*parameters.posonlyargs, *parameters.args)][first:]
        names = dict.fromkeys(
            (*named, *(each.arg for each in parameters.kwonlyargs)), self.all if self.spread else NOTHING
        )
        names |= {each.arg: self.all for each in (parameters.vararg, parameters.kwarg) if each is not None}
        return names if self.spread else names | self.words | dict(zip(named, self.values, strict=False))


class Running(Protocol):
    """One run of a method."""

    returned: Value

    def __init__(self, reader: Reader, method: FunctionType, owner: type, me: str) -> None: ...

    def run(self, body: list[ast.stmt], names: Names | None) -> Names | None: ...


class Reader:
    """Read the methods of one module.

    Attributes:
        children: The names of its children.
        used: Those that its forward mentions, and the function attributes that it mentions.
    """

    def __init__(self, module: nn.Module, kind: type[Running]) -> None:
        self.children = frozenset(name for name, child in module._modules.items() if child is not None)
        self.used: set[str] = set()
        self._module, self._kind = module, kind
        self._kept: Names = {}  # what its methods assign to attributes
        self._running: list[FunctionType] = []

    @property
    def all(self) -> Value:
        """Return all children: what is not understood may be any of them."""
        return Value(children=self.children)

    def keep(self, name: str, value: Value) -> None:
        """Note what a method assigns to an attribute of the module."""
        self._kept[name] = self._kept.get(name, NOTHING) | value

    def read(self, name: str) -> Value:
        """Return what an attribute may be; for a method or property, what it returns."""
        if name in self.children:
            parts = self._module._modules
            same = frozenset(other for other in self.children if parts[other] is parts[name])
            self.used |= same
            return Value(children=same)
        return self._attribute(name, Arguments(), None)

    def call(self, name: str, arguments: Arguments, after: type | None = None) -> Value:
        """Return what calling an attribute may give; ``after`` is the class whose method calls super()."""
        if name in self.children:
            return self.result(self.read(name), arguments.all)
        return self._attribute(name, arguments, after)

    def result(self, called: Value, given: Value, method: str = "") -> Value:
        """Return what a call of children, of a method of theirs, or of anything else may give, if it is given these values."""
        if not called.children:
            return called | given
        found = Value(called.names, called.children if method in _GIVING else frozenset())
        return found | given if any(self._passes_on(path) for path in called.children) else found

    def item(self, container: Value, key: int | str | None) -> Value:
        """Return one child of a container, if only that can be meant."""
        if len(container.children) != 1 or container.results or key is None:
            return container
        (name,) = container.children
        inside = self._module.get_submodule(name)._modules if name in self.children else {}
        listed = isinstance(self._module._modules.get(name), (nn.ModuleList, nn.Sequential))
        try:
            key = list(inside)[key] if listed and isinstance(key, int) else key
        except IndexError:
            return container
        return Value(children=frozenset({f"{name}.{key}"})) if inside.get(str(key)) is not None else container

    def _passes_on(self, path: str) -> bool:
        return path.partition(".")[0] in self.children and passes_on(self._module.get_submodule(path))

    def _attribute(self, name: str, arguments: Arguments, after: type | None) -> Value:
        kept, value, owner = self._kept.get(name, NOTHING), vars(self._module).get(name), None
        if value is None or after is not None:
            kinds = type(self._module).__mro__
            kinds = kinds[kinds.index(after) + 1 :] if after is not None else kinds
            owner = next((kind for kind in kinds if name in vars(kind)), None)
            value = vars(owner)[name] if owner is not None else None
        first = 0 if isinstance(value, staticmethod) else 1
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        value = getattr(value, "fget", getattr(value, "func", value)) if owner is not None else value
        if callable(value) and of_function_safely(value):
            self.used.add(name)
            return kept | Value(frozenset({name}))
        if isinstance(value, FunctionType) and owner is not None:
            return kept | self._method(inspect.unwrap(value), owner, arguments, first)
        unknown = _may_call_modules(value) or _holds_modules(value)
        return kept | arguments.all | (self.all if unknown else NOTHING)

    def _method(self, method: FunctionType, owner: type, arguments: Arguments, first: int) -> Value:
        if method is nn.Sequential.forward:
            names = [name for name, child in self._module._modules.items() if child is not None]
            last = last_place([self._module._modules[name] for name in names])  # type: ignore[misc]
            self.used |= self.children
            return Value(frozenset(names[last:]))
        if owner is nn.Module or owner.__module__ == nn.ModuleList.__module__:
            return self.all if method.__name__ in _GIVING else NOTHING
        definition = _definition(method)
        if method in self._running:
            return arguments.all
        if definition is None:
            return self.all | arguments.all
        parameters = [*definition.args.posonlyargs, *definition.args.args]
        running = self._kind(self, method, owner, parameters[0].arg if parameters and first else "")
        self._running.append(method)
        running.run(definition.body, arguments.bind(definition.args, first))
        self._running.pop()
        return running.returned


def _definition(method: FunctionType) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Return the source of a method, or None where it is not available, as for a deleted notebook cell."""
    try:
        found = ast.parse(textwrap.dedent(inspect.getsource(method))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return None
    return found if isinstance(found, (ast.FunctionDef, ast.AsyncFunctionDef)) else None


def _may_call_modules(value: Any) -> bool:
    """Return whether an attribute is a function of a user, which may call any module."""
    if isinstance(value, (type, nn.Module)) or not callable(value):
        return False
    return str(getattr(value, "__module__", None) or "torch").split(".")[0] not in ("torch", "builtins")


def _holds_modules(value: Any, depth: int = 3) -> bool:
    """Return whether modules can be reached through an attribute that is not a child, such as a list."""
    if isinstance(value, (nn.Module, MethodType)):
        return isinstance(value, nn.Module) or isinstance(value.__self__, nn.Module)
    if isinstance(value, type) or not depth:
        return False
    if isinstance(value, dict):
        inside = list(value.values())
    else:
        inside = list(value) if isinstance(value, (list, tuple, set)) else list(getattr(value, "__dict__", {}).values())
    return any(_holds_modules(each, depth - 1) for each in inside)
