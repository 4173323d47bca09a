"""Where runs are made: the arguments that `compare`, `search` and `tune` share, and the same arguments as flags of a command."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TypedDict

from mollifier_lab.backends import Backend
from mollifier_lab.files import shown
from mollifier_lab.hardware import Precision
from mollifier_lab.pool import Pool


class PoolOptions(TypedDict, total=False):
    """Keyword arguments of a `Pool`, which documents them and has their defaults."""

    data: Path | None
    workers: int
    backend: Backend
    address: str | None
    threads: int
    show: bool
    precision: Precision
    logger: str


def pool_flags(where: PoolOptions) -> list[str]:
    """Return the same arguments as words of a command line, without defaults and without ``show``.

    >>> pool_flags({"workers": 2, "threads": 0, "show": False})
    ['--workers', '2']
    """
    words = []
    for field in fields(Pool):
        value = where.get(field.name, field.default)
        if field.name != "show" and value != field.default:
            words += [f"--{field.name}", shown(value) if isinstance(value, Path) else str(value)]
    return words
