"""Where runs are made: the arguments that `compare`, `search` and `tune` share, and the same as flags of a command."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TypedDict

from mollifier_lab.backends import Backend
from mollifier_lab.pool import Pool


class Where(TypedDict, total=False):
    """Keyword arguments for a `Pool`, which has their defaults and says what they mean."""

    data: Path | None
    workers: int
    backend: Backend
    address: str | None
    threads: int
    show: bool
    logger: str


def where_flags(where: Where) -> list[str]:
    """Return the words that say the same on a command line; what is left at its default is left out, and so is ``show``.

    >>> where_flags({"workers": 2, "threads": 0, "show": False})
    ['--workers', '2']
    """
    words = []
    for field in fields(Pool):
        value = where.get(field.name, field.default)
        if field.name != "show" and value != field.default:
            words += [f"--{field.name}", str(value)]
    return words
