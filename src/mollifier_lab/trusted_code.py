"""Remember which code this user has named before: a mark for each file or module, in the cache folder. No torch here.

A config names the code that its run was made with. Without such a mark, merely looking at a folder of runs from elsewhere could run code.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from mollifier_lab.files import write_atomically


def trust(source: str) -> None:
    """Remember that this user has named the code. If the mark cannot be written, the user must name the code each time."""
    with contextlib.suppress(OSError, RuntimeError):
        write_atomically(_mark(source), f"{source}\n".encode())


def is_trusted(source: str) -> bool:
    """Return whether this user has named the code before. A link, or a mark that another user has made, does not count."""
    try:
        mark = _mark(source)
        mine = not hasattr(os, "getuid") or mark.lstat().st_uid == os.getuid()
        return mine and not mark.is_symlink() and mark.read_text() == f"{source}\n"
    except (OSError, RuntimeError, ValueError):
        return False


def _mark(source: str) -> Path:
    asked, base = os.environ.get("MOLLIFIER_CACHE"), os.environ.get("XDG_CACHE_HOME")
    cache = Path(asked).expanduser() if asked else (Path(base) if base else Path.home() / ".cache") / "mollifier"
    return cache / "imports" / hashlib.sha256(source.encode()).hexdigest()[:32]
