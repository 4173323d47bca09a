"""Look at a model without changing it: restore whatever a forward has written into attributes, containers, buffers and random states."""

from __future__ import annotations

import operator
import random
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

_CONTAINERS = (OrderedDict, dict, list, set, deque)
_DEPTH = 4  # a container in a container in a container in an attribute
_MANY = 1000  # the items of a longer container are kept, but not what is inside them


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Run a forward inside this context, and restore modes, buffers, attributes, the containers in them and random states afterwards.

    A lazy module that the forward initialises stays initialised, since its parameters do.
    """
    lazy = {module: module.training for module in model.modules() if _is_lazy(module)}
    contents = [(module, _Contents(module.__dict__)) for module in model.modules()]
    values = [(buffer, buffer.clone()) for buffer in model.buffers() if not (buffer.is_meta or is_lazy(buffer))]
    state = random.getstate()
    numpy = sys.modules.get("numpy")
    theirs = numpy.random.get_state() if numpy is not None else None
    try:
        with torch.random.fork_rng():
            yield
    finally:
        for module, before in contents:
            if module in lazy and not _is_lazy(module):
                module.training = lazy[module]
            else:
                before.restore()
        with torch.no_grad():
            for buffer, value in values:
                if not torch.equal(buffer, value):
                    buffer.copy_(value)
        random.setstate(state)
        if numpy is not None:
            numpy.random.set_state(theirs)


def _is_lazy(module: nn.Module) -> bool:
    tensors = (*module._parameters.values(), *module._buffers.values())
    return any(is_lazy(tensor) for tensor in tensors if tensor is not None)


class _Contents:
    """What a dict of attributes and the containers in it hold. Only references are kept, so that large lists cost little.

    >>> inside = [1]
    >>> attributes = {"log": {"mean": inside}}
    >>> before = _Contents(attributes)
    >>> inside.append(2); attributes["new"] = 3
    >>> before.restore()
    >>> attributes, attributes["log"]["mean"] is inside
    ({'log': {'mean': [1]}}, True)
    """

    def __init__(self, attributes: dict[str, Any]) -> None:
        self._kept: dict[int, tuple[Any, tuple[Any, ...]]] = {}
        self._keep(attributes, _DEPTH)

    def _keep(self, value: Any, depth: int) -> None:
        inside = value if isinstance(value, (*_CONTAINERS, tuple)) else _attributes(value)
        if inside is None or id(inside) in self._kept:
            return
        before = _items(inside)
        if not isinstance(inside, tuple):
            self._kept[id(inside)] = (inside, before)
        if depth and len(before) <= _MANY:
            for item in before:
                self._keep(item, depth - 1)

    def restore(self) -> None:
        """Restore what has changed, in place."""
        for container, before in self._kept.values():
            now = _items(container)
            if len(now) != len(before) or not all(map(operator.is_, now, before)):
                _fill(container, before)


def copied(value: Any, known: dict[int, Any] | None = None, depth: int = _DEPTH) -> Any:
    """Return a copy of a container and of those inside it, which holds the same objects. A user's own type of container is not copied.

    >>> inside = [torch.zeros(1)]
    >>> twin = copied({"kept": inside})
    >>> twin["kept"] is inside, twin["kept"][0] is inside[0]
    (False, True)
    """
    known = {} if known is None else known
    if id(value) in known:
        return known[id(value)]
    if type(value) not in (*_CONTAINERS, defaultdict, Counter, tuple) or not depth:
        return value
    if isinstance(value, tuple):
        return tuple(copied(item, known, depth - 1) for item in value)
    twin = known[id(value)] = value.copy()
    if len(value) > _MANY or isinstance(value, set):
        return twin
    for place, item in value.items() if isinstance(value, dict) else enumerate(value):
        twin[place] = copied(item, known, depth - 1)
    return twin


# The methods of Python's own type are called, since a subclass may do anything in its own.


def _items(container: Any) -> tuple[Any, ...]:
    """Return the items of a container, in order; those of a dict are its keys followed by its values."""
    kind: Any = _kind(container)
    if issubclass(kind, dict):
        return (*kind.keys(container), *kind.values(container))
    return tuple(kind.__iter__(container))


def _fill(container: Any, items: tuple[Any, ...]) -> None:
    kind: Any = _kind(container)
    kind.clear(container)
    if issubclass(kind, dict):
        half = len(items) // 2
        for key, value in zip(items[:half], items[half:], strict=True):
            kind.__setitem__(container, key, value)
    else:
        (kind.update if kind is set else kind.extend)(container, items)


def _kind(container: Any) -> type:
    return next(kind for kind in (*_CONTAINERS, tuple) if isinstance(container, kind))


def _attributes(value: Any) -> dict[str, Any] | None:
    """Return the attributes of an object if its class is the user's own, such as a meter or a named collection of tensors."""
    if type(value) is not SimpleNamespace and (
        isinstance(value, (nn.Module, Tensor, type)) or not _is_own(type(value))
    ):
        return None
    try:
        found = object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        return None
    return found if type(found) is dict else None


def _is_own(kind: type) -> bool:
    """Return whether a class is neither Python's nor torch's nor of another installed library, whose objects may hold open files or threads."""
    name = str(kind.__module__)
    file = str(getattr(sys.modules.get(name), "__file__", ""))
    library = (top := name.split(".")[0]) in ("torch", "mollifier") or top in sys.stdlib_module_names
    return not library and "site-packages" not in file and "dist-packages" not in file
