"""The table in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from mollifier_lab.report.formats import show_metric, title
from mollifier_lab.report.splitting_table import SplittingTable
from mollifier_lab.report.summary import HEADINGS, TableRow, columns


def terminal_tables(rows: Sequence[TableRow]) -> list[Table]:
    """Return one table per task, for `rich.print`.

    >>> terminal_tables([])
    []
    """
    return [_table(task, list(group)) for task, group in groupby(rows, key=lambda row: row.task)]


def _table(task: str, rows: list[TableRow]) -> Table:
    first = rows[0]
    target = f"target: {title(first.curve)} ≤ {show_metric(first.curve, first.target)}"
    names = [row.short or row.variant for row in rows if row.baseline == row.variant]
    baseline = f"; baseline: {'; '.join(names)}" if names else ""
    several = any(row.final.n > 1 for row in rows)
    what = "mean {} over seeds, with a 95 % interval by Student's t" if several else "{}, one seed each: no intervals"
    caption = f"{what.format(title(first.metric))}{baseline}; {target}"
    shown = SplittingTable(
        title=f"{task}: {title(first.metric)}", caption=Text(caption), box=SIMPLE_HEAD, title_justify="left"
    )
    # a terminal is narrow: leave out empty columns and the speed, which the page and table.csv have
    kept = [place for place in columns(rows) if HEADINGS[place] != "updates/s"]
    for place in kept:
        left = HEADINGS[place] in ("variant", "seeds")
        shown.add_column(HEADINGS[place], justify="left" if left else "right", overflow="ellipsis")
    for row in rows:
        shown.add_row(*(Text(row.cells()[place]) for place in kept))  # Text: a label must not be read as markup
    return shown
