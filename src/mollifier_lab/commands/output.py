"""What the commands print: plain text without control characters if the output is not a terminal. No torch here."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mollifier_lab.ranks import rank
from mollifier_lab.report.formats import show_metric, show_seconds, show_unfinished, title
from mollifier_lab.settings import TASKS

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def console() -> Console:
    """Return the console of standard output. In a file or a pipe, a table is as wide as it needs to be."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=240, force_terminal=False)


def table(*columns: str) -> Table:
    """Return an empty table in our style."""
    from rich import box

    from mollifier_lab.report.splitting_table import SplittingTable

    found = SplittingTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        found.add_column(column, overflow="ellipsis")
    return found


def result_line(task: str, result: dict[str, Any], out: Path) -> str:
    """Describe a finished run in one line."""
    metric = TASKS[task].headline
    value = show_metric(metric, result.get("final", {}).get(metric))
    reason = f" ({result['divergence']})" if result.get("divergence") else ""
    lost = f", diverged{reason}" if result.get("diverged") else ""
    open_ended = show_unfinished(result.get("annealing")) if not lost else ""
    # the plain network is measured, which has not been trained without mollification
    rest = f"; {open_ended}, and the plain network was measured nevertheless" if open_ended else ""
    if result.get("other_data"):
        rest += f"; on data other than the published files: {', '.join(result['other_data'])}"
    return f"{out}: {title(metric)} {value} after {result['updates']} updates, {show_seconds(result['seconds'])}{lost}{rest}"


def say(text: str) -> None:
    """Print a text in one of the processes of a run."""
    if rank() == 0:
        print(text)


def tell_end(task: str, result: dict[str, Any], out: Path) -> None:
    """Print the result."""
    say(f"done: {result_line(task, result, out)}\nto look at it: mollifier report {shlex.quote(str(out))}")


def show_report(folder: Path | Sequence[Path], out: Path | None = None) -> None:
    """Write the page about all runs in a folder; print its table and where it is."""
    from mollifier_lab.report import report
    from mollifier_lab.report.terminal import terminal_tables

    made = report(folder, out)
    for each in terminal_tables(made.rows):
        console().print(each)
    for note in made.notes:
        print(f"note: {note}", file=sys.stderr)
    pictures = [path for path in made.files if path.suffix == ".png"]
    print(f"page: {made.page}\npictures: {', '.join(map(str, pictures))}")
