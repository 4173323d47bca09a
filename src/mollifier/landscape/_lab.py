"""What is needed for pictures and progress bars alone, imported when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any


def lab(name: str) -> Any:
    """The module, or an ImportError that says how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ImportError(f"this needs {package}, which is not installed: pip install 'mollifier[lab]'") from error


def track(items: Iterable[Any], what: str, progress: bool) -> Iterable[Any]:
    """The items, with a progress bar if asked for."""
    if not progress:
        return items
    bar: Iterable[Any] = lab("rich.progress").track(items, what)
    return bar
