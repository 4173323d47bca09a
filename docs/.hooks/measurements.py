"""For mkdocs: insert measured numbers into the pages, so that no page has to repeat a number by hand.

A page writes ``{{ ratio parity MLP / all layers, p = 0.5 }}`` and the site shows the number from the data. A name that the data does
not have is an error, and the site is not built.

- ``{{ ratio LINE / CANDIDATE }}``, optionally ``/ reference``: time over that of plain PyTorch on one thread, from ``benchmarks/results.json``.
- ``{{ speedup WHAT }}``: time of the other implementation over ours, from ``results/smoothing/speed.json``.
- ``{{ accuracy FILE / METHOD }}``: test accuracy of a binary network, from ``results/steps/FILE.json``.
"""

import json
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PLACE = re.compile(r"\{\{ (\w+) (.+?) \}\}")


def ratio(line: str, candidate: str, backend: str = "native") -> str:
    """Median over the runs of the benchmark, on one thread."""
    rows = _read("benchmarks/results.json")["rows"]
    wanted = {"line": line, "candidate": candidate, "backend": backend, "threads": 1}
    ratios = [row["ratio"] for row in rows if wanted.items() <= row.items()]
    if not ratios:
        raise KeyError(f"benchmarks/results.json has no row {wanted}")
    return f"{statistics.median(ratios):.2f}"


def speedup(what: str) -> str:
    """How many times faster than the other implementation."""
    found = _read("results/smoothing/speed.json")
    rows = [row for group in found.values() if isinstance(group, list) for row in group if row["what"] == what]
    if not rows:
        raise KeyError(f"results/smoothing/speed.json has no row {what!r}")
    value = rows[0]["ratio"]
    return f"{value:.1f}×" if value >= 1.1 else f"{value:.2f}×"


def accuracy(file: str, method: str) -> str:
    """Mean and standard deviation over seeds, in per cent."""
    rows = [row for row in _read(f"results/steps/{file}.json")["methods"] if row["method"] == method]
    if not rows:
        raise KeyError(f"results/steps/{file}.json has no method {method!r}")
    return f"{100 * rows[0]['mean']:.2f} ± {100 * rows[0]['std']:.2f} %"


VERBS: dict[str, Callable[..., str]] = {"ratio": ratio, "speedup": speedup, "accuracy": accuracy}


def insert(markdown: str, page: str) -> str:
    """Replace every place in a page by its number."""

    def number(found: re.Match[str]) -> str:
        verb, arguments = found[1], [part.strip() for part in found[2].split(" / ")]
        try:
            return VERBS[verb](*arguments)
        except (KeyError, TypeError) as error:
            raise ValueError(f"{page}: {found[0]}: {error}") from error

    return PLACE.sub(number, markdown)


def on_page_markdown(markdown: str, page: Any, **rest: Any) -> str:
    """Called by mkdocs for every page."""
    return insert(markdown, page.file.src_uri)


def _read(path: str) -> Any:
    return json.loads((ROOT / path).read_text(encoding="utf-8"))
