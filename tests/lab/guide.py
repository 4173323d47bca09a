"""The guide's own task, as a user would save it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mollifier_lab import imports, methods, register, settings, variants

GUIDE = Path(__file__).parents[2] / "docs" / "own-tasks.md"
TABLES: tuple[dict[str, Any], ...] = (
    settings.TASKS, methods.METHODS, methods.OPEN, variants.DEFAULTS, imports._LOADED, imports._ASKED, register.OWN, register._WHENCE,
)  # fmt: skip


def source() -> str:
    found = re.search(r"^```python\n(.*?)^```", GUIDE.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def save(folder: Path, text: str = "") -> Path:
    """The file, in a folder."""
    path = folder / "my_task.py"
    path.write_text(text or source())
    return path


@contextmanager
def as_before() -> Iterator[None]:
    """What is registered or imported inside is forgotten."""
    before = [dict(table) for table in TABLES]
    try:
        yield
    finally:
        for table, old in zip(TABLES, before, strict=True):
            table.clear()
            table.update(old)
        for name in [name for name in sys.modules if name.startswith("my_")]:
            del sys.modules[name]
