"""Resolve what the user names: blocks, and what to leave alone."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

from mollifier.activations import Activation, function_name

Pattern = str | Callable[[str, nn.Module], bool]
Excluded = str | type[nn.Module] | Callable[..., Any]


def named_blocks(model: nn.Module, blocks: Pattern | Iterable[Pattern] | None) -> set[str]:
    """Return the paths that the patterns match, or raise a ValueError if one matches nothing or something that cannot be a block."""
    patterns = _several(blocks)
    modules = {name: module for name, module in model.named_modules() if name}
    found: set[str] = set()
    problems: list[str] = []
    for pattern in patterns:
        if isinstance(pattern, str):
            regex = re.compile(_regex(pattern))
            matches = {name for name in modules if regex.fullmatch(name)}
        else:
            matches = {name for name, module in modules.items() if pattern(name, module)}
        if not matches:
            problems.append(f"the pattern {pattern!r} matches no module.{_close(pattern, modules)}")
        found |= matches
    for name in sorted(found):
        if type(modules[name]).forward is nn.Module.forward:
            problems.append(
                f"{name!r} is a {type(modules[name]).__name__}, which is never called: name the modules inside it, '{name}.*'"
            )
        outer = next((other for other in sorted(found) if name.startswith(other + ".")), None)
        if outer is not None:
            problems.append(f"the block {name!r} is inside the block {outer!r}: name only one of them")
    if problems:
        raise ValueError("mollify: " + "; ".join(problems))
    return found


class Exclude:
    """What to leave alone: modules with everything inside them, and activations that are called as functions.

    >>> exclude = Exclude(nn.Sequential(nn.Linear(2, 2), nn.Tanh()), [nn.Tanh])
    >>> exclude.module("0"), exclude.module("1")
    (False, True)
    """

    def __init__(self, model: nn.Module, patterns: Excluded | Iterable[Excluded] | None) -> None:
        self._modules = {name: module for name, module in model.named_modules(remove_duplicate=False) if name}
        self._excluded: set[str] = set()
        self._calls: list[tuple[Excluded, re.Pattern[str] | None, str | None]] = []
        self._unused: list[Excluded] = []
        for pattern in _several(patterns):
            found: set[str] = set()
            if isinstance(pattern, str):
                regex = re.compile(_regex(pattern))
                found = {name for name in self._modules if regex.fullmatch(name)}
                self._calls.append((pattern, regex, None))
            elif isinstance(pattern, type):
                found = {name for name, module in self._modules.items() if isinstance(module, pattern)}
            elif (function := function_name(pattern)) is not None:
                self._calls.append((pattern, None, function))
            else:
                found = {name for name, module in self._modules.items() if pattern(name, module)}
            self._excluded |= found
            if not found:
                self._unused.append(pattern)

    def module(self, path: str) -> bool:
        """Return whether to leave this module alone."""
        return path in self._excluded

    def call(self, name: str, function: Activation | None) -> bool:
        """Return whether to leave alone an activation that is called as a function; ``name`` is its name in the report."""
        hit = False
        for pattern, regex, wanted in self._calls:
            if (regex is not None and regex.fullmatch(name)) or (function is not None and wanted == function.name):
                hit = True
                self._unused = [each for each in self._unused if each is not pattern]
        return hit

    def check(self) -> None:
        """Raise a ValueError if something that was named does not exist; called when the plan is complete."""
        if self._unused:
            missing = [f"exclude={each!r} matches nothing.{_close(each, self._modules)}" for each in self._unused]
            raise ValueError("mollify: " + "; ".join(missing))


def _several(patterns: Any) -> list[Any]:
    if patterns is None:
        return []
    return [patterns] if isinstance(patterns, str) or callable(patterns) else list(patterns)


def _close(pattern: object, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(pattern, names, n=3) if isinstance(pattern, str) else []
    return f" Close: {', '.join(close)}." if close else ""


def _regex(pattern: str) -> str:
    """Translate a glob on dotted names to a regular expression: * and ? stop at a dot, ** does not."""
    wild = {"**": ".*", "*": "[^.]*", "?": "[^.]"}
    return "".join(wild.get(part, re.escape(part)) for part in re.split(r"(\*\*|\*|\?)", pattern))
