"""Mollified containers: their own methods work as before, and a Sequential runs as many layers as possible in one pass."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from mollifier.convert._classes import KEY, OURS, Patch, while_patched
from mollifier.convert._runs import RUNS, ends_of
from mollifier.nn._fused import Block, run

LAYOUT = f"{OURS}layout"
_METHODS = (
    *("__iter__", "__len__", "__getitem__", "__setitem__", "__delitem__", "__contains__", "__add__", "__iadd__", "__mul__"),
    *("__imul__", "__rmul__", "append", "extend", "insert", "pop", "keys", "values", "items", "update", "clear"),
)  # fmt: skip


def _without_state(name: str) -> Callable[..., Any]:
    """Return the container's own method, run while our child module is hidden."""

    def method(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        state = self._modules.pop(KEY, None)  # (None inside another of these methods)
        try:
            found = getattr(super(ContainerPatch, self), name)(*args, **kwargs)
            if (
                type(found) is type(self) and found is not self
            ):  # a slice is a new container, to which nothing was added
                found.__class__ = cast(Patch, self)._plain_class
            return iter(list(found)) if name == "__iter__" else found
        finally:
            if state is not None:
                self._modules[KEY] = state

    return method


class ContainerPatch(Patch):
    """Hide the added child from the items of a container."""

    @classmethod
    def methods_for(cls, plain: type[nn.Module]) -> dict[str, Any]:
        """Wrap those of the methods that the container has."""
        return {name: _without_state(name) for name in _METHODS if hasattr(plain, name)}


class SequentialPatch(Patch):
    """An nn.Sequential that contains runs. The copies belong to the runs' modules; this class only computes them faster."""

    @while_patched
    def forward(self, input: Tensor) -> Tensor:
        for part in self._parts():
            input = run(part, input) if type(part) is list else part(input)  # type: ignore[operator]
        return input

    def _parts(self) -> list[list[Block] | nn.Module]:
        """Return its modules, with consecutive runs grouped in lists; computed again when the container was edited."""
        modules = [module for name, module in self._modules.items() if name != KEY and module is not None]
        if torch.compiler.is_compiling():
            return _layout(modules)
        layout = self.__dict__.get(LAYOUT)
        if layout is None or layout[0] != modules:
            layout = self.__dict__[LAYOUT] = (modules, _layout(modules))
        return cast("list[list[Block] | nn.Module]", layout[1])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(
            index, slice
        ):  # a new container: runs that are complete in it stay, and the modules of broken ones are plain
            items = [(name, module) for name, module in self._modules.items() if name != KEY]
            return self._plain_class(OrderedDict(items[index]))
        return super().__getitem__(index)  # type: ignore[misc]

    def __reduce_ex__(self, protocol: Any) -> Any:
        self.__dict__.pop(LAYOUT, None)
        return super().__reduce_ex__(protocol)


def _layout(modules: list[nn.Module]) -> list[list[Block] | nn.Module]:
    parts: list[list[Block] | nn.Module] = []
    index = 0
    while index < len(modules):
        block, after = _run_at(modules, index)
        if block is None:
            parts.append(modules[index])
        elif parts and isinstance(parts[-1], list):
            parts[-1].append(block)
        else:
            parts.append([block])
        index = after
    return parts


def _run_at(modules: list[nn.Module], index: int) -> tuple[Block | None, int]:
    """Return the complete run that begins at this place, and where it ends, or None."""
    begun = modules[index].__dict__.get(RUNS)
    if begun is None:
        return None, index + 1
    for stop in range(index + 1, len(modules)):
        for end in ends_of(modules[stop]):
            if end.run is begun[0]:
                return Block(modules[index : stop + 1], end.noise, end.copy), stop + 1
        if begun[0] not in modules[stop].__dict__.get(RUNS, ()):
            break
    return None, index + 1
