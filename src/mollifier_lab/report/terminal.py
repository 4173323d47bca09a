"""The table in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from mollifier_lab.report.formats import NONE, show_metric, title
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
    names = list(dict.fromkeys(row.baseline for row in rows if row.baseline))
    baseline = f"; baseline: {'; '.join(names)}" if names else ""
    caption = f"mean {title(first.metric)} over seeds, with a 95 % interval by Student's t{baseline}; {target}"
    shown = Table(title=f"{task}: {title(first.metric)}", caption=caption, box=SIMPLE_HEAD, title_justify="left")
    columns = list(zip(*(row.cells() for row in rows), strict=True))
    kept = [place for place, cells in enumerate(columns) if set(cells) != {NONE}]  # a terminal is narrow
    for place in kept:
        left = HEADINGS[place] in ("variant", "seeds")
        shown.add_column(HEADINGS[place], justify="left" if left else "right", overflow="fold")
    for line in zip(*(columns[place] for place in kept), strict=True):
        shown.add_row(*map(Text, line))  # Text: a label is no markup
    return shown
