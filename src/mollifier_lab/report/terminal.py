"""The table in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from mollifier_lab.report.formats import show_metric, title
from mollifier_lab.report.summary import HEADINGS, TableRow


def terminal_tables(rows: Sequence[TableRow]) -> list[Table]:
    """One table a task, for `rich.print`.

    >>> terminal_tables([])
    []
    """
    return [_table(task, list(group)) for task, group in groupby(rows, key=lambda row: row.task)]


def _table(task: str, rows: list[TableRow]) -> Table:
    first = rows[0]
    target = f"target: {title(first.curve)} ≤ {show_metric(first.curve, first.target)}"
    caption = f"mean {title(first.metric)} over seeds, with a 95 % bootstrap interval; {target}"
    shown = Table(title=f"{task}: {title(first.metric)}", caption=caption, box=SIMPLE_HEAD, title_justify="left")
    for heading in HEADINGS:
        left = heading in ("variant", "seeds")
        shown.add_column(heading, justify="left" if left else "right", overflow="fold")
    for row in rows:
        shown.add_row(*(Text(cell) for cell in row.cells()))  # Text: a label is no markup
    return shown
