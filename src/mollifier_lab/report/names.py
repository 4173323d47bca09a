"""Short names for tables and plots: what differs, with three digits. The full name is shown on hover, in the CSV and among the settings."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mollifier_lab.shortening import shorten_middle

LONGEST = 80  # letters of a short name; plots cut it further, to the room that they have
_SETTING = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>-?\d+(\.\d+)?(e[+-]?\d+)?)")


def shorten(names: Sequence[str], heads: Sequence[str] = ()) -> list[str]:
    """Shorten the names of variants without making two of them the same.

    >>> shorten(["mollified, lr=0.012345678, k=10", "mollified, lr=0.5, k=10"], ["mollified"] * 2)
    ['lr=0.0123', 'lr=0.5']
    >>> shorten(["plain", "plain, gain=4"], ["plain", "plain"])
    ['plain', 'plain, gain=4']
    >>> shorten(["lr=0.12341", "lr=0.12342"])
    ['lr=0.12341', 'lr=0.12342']

    Args:
        names: The full names, all different.
        heads: The start of each name, the method's title; left out if all have the same.
    """
    pieces = [name.split(", ") for name in names]
    if len(names) > 1:
        pieces = _without_head(pieces, heads)
        pieces = _without_common(pieces)
    for digits in (3, 4, 5, 6, 8, 12):
        found = [", ".join(_rounded(piece, digits) for piece in each) for each in pieces]
        if len(set(found)) == len(set(names)):
            break
    else:
        found = list(names)
    return _apart([shorten_middle(each, LONGEST) for each in found])


def _without_head(pieces: list[list[str]], heads: Sequence[str]) -> list[list[str]]:
    if len(set(heads)) != 1:
        return pieces
    head = heads[0].split(", ")
    same = all(each[: len(head)] == head and len(each) > len(head) for each in pieces)
    return [each[len(head) :] for each in pieces] if same else pieces


def _without_common(pieces: list[list[str]]) -> list[list[str]]:
    """Leave out the settings that all names have. Other words, such as "other data", are always kept."""
    common = set.intersection(*map(set, pieces))
    left = [[piece for piece in each if piece not in common or "=" not in piece] for each in pieces]
    return left if all(left) else pieces


def _rounded(piece: str, digits: int) -> str:
    found = _SETTING.fullmatch(piece)
    if found is None or found["value"].lstrip("-").isdigit():
        return piece
    value = float(found["value"])
    return f"{found['name']}={value:.0f}" if 1000 <= abs(value) < 1e6 else f"{found['name']}={value:.{digits}g}"


def _apart(names: list[str]) -> list[str]:
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found
