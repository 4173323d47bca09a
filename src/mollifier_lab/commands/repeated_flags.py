"""Flags that are given twice on a line: the values of those that take several add up, all others are refused. No torch here."""

from __future__ import annotations

from collections.abc import Sequence

from mollifier_lab.errors import LabError

SEVERAL = ("--methods", "--set", "--search-set", "--best", "--grid")


def gather(args: Sequence[str]) -> list[str]:
    """Put the values of repeated flags after the first of them: the parser alone would keep the last and drop the others.

    >>> gather(["parity", "--set", "lr=1", "--seeds", "3", "--set", "gain=2"])
    ['parity', '--set', 'lr=1', 'gain=2', '--seeds', '3']

    Raises:
        LabError: If a flag that takes one value, or none, is given twice.
    """
    words: list[str] = []
    flags: dict[str, list[str]] = {}
    into = words
    for word in args:
        if not word.startswith("--") or word == "--":
            into.append(word)
            continue
        name, equals, value = word.partition("=")
        name = name.replace("_", "-")
        key = "--" + name.removeprefix("--").removeprefix("no-")  # --copy and --no-copy contradict each other
        if key in flags and name not in SEVERAL:
            given = [" ".join(flags[key]), word]
            raise LabError(f"{key} is given twice ({' and '.join(given)}); expected it once: leave one of them out")
        into = flags.setdefault(key, [])
        if name in SEVERAL:
            into += ([] if into else [name]) + ([value] if equals else [])
        else:
            into.append(word)
    return [*words, *(word for group in flags.values() for word in group)]
