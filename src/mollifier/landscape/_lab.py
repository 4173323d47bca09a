"""Optional imports for figures and progress bars."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any


def lab(name: str) -> Any:
    """Import a module, or raise an ImportError that says how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ImportError(f"this needs {package}, which is not installed: pip install 'mollifier[lab]'") from error


def track(items: Iterable[Any], what: str, progress: bool) -> Iterable[Any]:
    """Iterate over the items, with a progress bar if requested."""
    if not progress:
        return items
    bar: Iterable[Any] = lab("rich.progress").track(items, what)
    return bar
