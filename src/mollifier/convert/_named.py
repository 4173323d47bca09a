"""Blocks named by the user: globs on module names, or predicates."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable

from torch import nn

Pattern = str | Callable[[str, nn.Module], bool]


def named_blocks(model: nn.Module, blocks: Pattern | Iterable[Pattern] | None) -> set[str]:
    """The paths that the patterns match; a ValueError if one matches nothing, or what it matches can't be a block."""
    patterns = [] if blocks is None else [blocks] if isinstance(blocks, str) or callable(blocks) else list(blocks)
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
            close = difflib.get_close_matches(pattern, modules, n=3) if isinstance(pattern, str) else []
            hint = f" Close: {', '.join(close)}." if close else ""
            problems.append(f"the pattern {pattern!r} matches no module.{hint}")
        found |= matches
    for name in sorted(found):
        if type(modules[name]).forward is nn.Module.forward:
            problems.append(
                f"{name!r} is a {type(modules[name]).__name__}, which is never called: name what is in it, '{name}.*'"
            )
        outer = next((other for other in sorted(found) if name.startswith(other + ".")), None)
        if outer is not None:
            problems.append(f"the block {name!r} lies inside the block {outer!r}: name one of them")
    if problems:
        raise ValueError("mollify: " + "; ".join(problems))
    return found


def _regex(pattern: str) -> str:
    """A glob on dotted names as a regular expression: * and ? stop at a dot, ** does not."""
    wild = {"**": ".*", "*": "[^.]*", "?": "[^.]"}
    return "".join(wild.get(part, re.escape(part)) for part in re.split(r"(\*\*|\*|\?)", pattern))
