"""Errors that the user sees as one sentence, without a traceback."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")


class LabError(Exception):
    """Something that the user can correct: what was given, what was expected, what to do."""


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Return the nearest known names as the end of a message; empty if none is near.

    >>> did_you_mean("paritty", ["parity", "ptb"])
    " (did you mean 'parity'?)"
    """
    import difflib  # imported here, because only an error needs it

    near = difflib.get_close_matches(given, list(known), n=2, cutoff=0.5)
    return f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""


def pick(kind: str, given: str, table: Mapping[str, T]) -> T:
    """Return the entry of a table, or raise an error that lists the known names.

    >>> pick("task", "ptb", {"ptb": 1})
    1
    """
    if given not in table:
        hint = did_you_mean(given, table)
        raise LabError(f"there is no {kind} {given!r}{hint}; expected one of: {', '.join(table)}")
    return table[given]


class Interrupted(LabError):
    """The run was told to stop, and has saved a checkpoint."""


class Busy(LabError):
    """Another process is working on this run."""
