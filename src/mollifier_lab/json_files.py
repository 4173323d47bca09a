"""Read JSON files that others may have written: with a limit on their size, and errors that name the file. No torch here.

>>> parse('{"update": 10}', "metrics.jsonl")
{'update': 10}
"""

from __future__ import annotations

import json
import stat
from collections import Counter
from pathlib import Path
from typing import Any

from mollifier_lab.errors import LabError

LIMIT = 16 << 20  # bytes; a config or a result has a few thousand
LARGEST = 2**63 - 1  # largest whole number that torch and a database accept


def read_text(path: Path, limit: int | None = LIMIT, what: str = "") -> str:
    """Return the text of a file.

    Args:
        path: The file.
        limit: The largest size in bytes; None: any, but it must be a regular file.
        what: The name to show to the user instead of the path.

    Raises:
        FileNotFoundError: If it does not exist.
        LabError: If it is not a file, too long, or not UTF-8.
    """
    what = what or str(path)
    with path.open("rb") as file:
        if limit is None and not stat.S_ISREG(path.stat().st_mode):
            raise LabError(f"{what}: expected a regular file; move it away")
        data = file.read() if limit is None else file.read(limit + 1)
    if limit is not None and len(data) > limit:
        raise LabError(f"{what}: more than {limit >> 20} MB; expected a small JSON file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise LabError(f"{what}: expected text in UTF-8; it has other bytes at position {error.start}") from None


def parse(text: str, what: str) -> Any:
    """Parse a JSON text.

    >>> try:
    ...     parse("[" * 100_000, "config.json")
    ... except LabError as error:
    ...     print(error)
    config.json: nested too deeply; expected a few levels of JSON

    Raises:
        LabError: If it is not JSON, or contains a name twice, where other parsers would silently drop one.
    """
    try:
        return json.loads(text, object_pairs_hook=_once)
    except RecursionError:
        raise LabError(f"{what}: nested too deeply; expected a few levels of JSON") from None
    except ValueError as error:  # also raised for a number with thousands of digits
        raise LabError(f"{what}: not JSON ({error})") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"{twice!r:.100} is given twice; expected it once")
    return found


def read_object(path: Path, what: str = "") -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises:
        FileNotFoundError: If it does not exist.
        LabError: If it is anything else.
    """
    what = what or str(path)
    found = parse(read_text(path, what=what), what)
    if not isinstance(found, dict):
        raise LabError(f"{what}: expected an object, {{...}}, not {type(found).__name__}")
    return found


def is_whole(value: object) -> bool:
    """Return whether a value is an integer, not a bool, that fits into 64 bits."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST


def is_number(value: object) -> bool:
    """Return whether a value is a finite number and not a bool.

    >>> is_number(0.5), is_number(True), is_number(float("inf"))
    (True, False, False)
    """
    return is_whole(value) or (isinstance(value, float) and abs(value) < float("inf"))
