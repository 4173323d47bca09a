"""Find functional activations inside a forward by reading its source: F.relu(x), torch.tanh(x), x.sigmoid()."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from torch import nn

from mollifier.activations import of_function
from mollifier.convert._structure import is_torchs


def functional_calls(kind: type[nn.Module]) -> tuple[str, ...]:
    """Return the activations that a class calls in its own methods, e.g. ``("F.relu", "torch.tanh")``; empty for torch's classes.

    >>> functional_calls(nn.Linear)
    ()
    """
    found: list[str] = []
    for base in kind.__mro__:  # (what it inherits is called as well)
        if not is_torchs(base):
            for method in vars(base).values():
                if isinstance(method, FunctionType):
                    found += _calls(method)
    return tuple(dict.fromkeys(found))


def _calls(method: FunctionType) -> list[str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
    except (OSError, TypeError, SyntaxError):  # the source is not available, as for a deleted notebook cell
        return []
    return [
        ast.unparse(node.func)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _is_activation(node.func, method)
    ]


def _is_activation(called: ast.expr, method: FunctionType) -> bool:
    if isinstance(called, ast.Name):
        return of_function_safely(method.__globals__.get(called.id))
    if not isinstance(called, ast.Attribute):
        return False
    space = _module(called.value, method.__globals__)
    if space is not None:
        return of_function_safely(getattr(space, called.attr, None))
    # x.relu() and self.fc(x).relu() count, self.relu(x) does not: that is a module, and is found as one
    root = called.value
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        root = root.value
    own = isinstance(root, ast.Name) and root.id in method.__code__.co_varnames[:1]
    return not own and of_function_safely(called.attr)


def _module(node: ast.expr, names: dict[str, Any]) -> ModuleType | None:
    if isinstance(node, ast.Name):
        value = names.get(node.id)
    elif isinstance(node, ast.Attribute) and (base := _module(node.value, names)) is not None:
        value = getattr(base, node.attr, None)
    else:
        return None
    return value if isinstance(value, ModuleType) else None


def of_function_safely(function: Any) -> bool:
    """Return whether it is an activation of the table."""
    try:
        return function is not None and of_function(function) is not None
    except ValueError:
        return False


def function_attributes(module: nn.Module) -> dict[str, Callable[..., Any]]:
    """Return the activations that a module keeps as plain functions, e.g. ``activation`` of nn.TransformerEncoderLayer."""
    return {
        name: value
        for name, value in vars(module).items()
        if callable(value) and not isinstance(value, nn.Module) and of_function_safely(value)
    }
