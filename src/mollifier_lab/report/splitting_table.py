"""Tables that fit a narrow terminal: lines break between words, never inside words or numbers, and columns without room go into a second
table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

LONGEST = 40  # letters of a word that a column makes room for; the rest is cut and replaced by …
AROUND = 3  # letters around a cell, and one more at the edge
EASY = 18  # letters that a column of longer texts gets, if there is room
SHORT = 8  # letters of cells that are never broken
WORST = 0.999  # a column that gets all the room it needs


class SplittingTable(Table):
    """A table that splits into several if it would have to break words.

    >>> import io
    >>> wide = SplittingTable("variant", "final", "difference to baseline")
    >>> wide.add_row("mollified", "0.0124", "+0.00740")
    >>> narrow = Console(width=26, file=(file := io.StringIO()))
    >>> narrow.print(wide)
    >>> "baseline" in file.getvalue(), max(map(len, file.getvalue().splitlines())) <= 26
    (True, True)
    """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the table, in as many parts as it needs."""
        room = options.max_width
        texts = [[_text(each) for each in (column.header, *column._cells)] for column in self.columns]
        needs = [
            _need(column, whole=each.justify == "right" or _is_short(column))
            for column, each in zip(texts, self.columns, strict=True)
        ]
        wants = [max((len(line) for text in column for line in text.split("\n")), default=1) for column in texts]
        if sum(wants) + AROUND * len(wants) < room:
            yield from super().__rich_console__(console, options)
            return
        easy = [max(need, min(want, EASY)) for need, want in zip(needs, wants, strict=True)]
        parts = min((list(groups(each, room)) for each in (easy, [*needs[:1], *easy[1:]])), key=len)
        for place, part in enumerate(parts):
            yield self._part(part, needs, wants, room, first=place == 0)
        if self.caption is not None:  # below a narrow part it would be narrow as well
            yield Text(_text(self.caption), style="italic dim")

    def _part(self, part: Sequence[int], needs: Sequence[int], wants: Sequence[int], room: int, first: bool) -> Table:
        widths = share([needs[at] for at in part], [wants[at] for at in part], room - AROUND * len(part) - 1)
        table = Table(box=self.box, pad_edge=self.pad_edge, title=self.title if first else None,
                      title_justify=self.title_justify)  # fmt: skip
        for at, width in zip(part, widths, strict=True):
            column = self.columns[at]
            table.add_column(column.header, justify=column.justify, width=width, overflow="ellipsis")
        for row in zip(*(self.columns[at]._cells for at in part), strict=True):
            table.add_row(*row)
        return table


def groups(needs: Sequence[int], room: int) -> Iterator[list[int]]:
    """Return which columns are in which table: as many as fit, with the first column in each.

    >>> list(groups([10, 8, 8, 8], 40))
    [[0, 1, 2], [0, 3]]
    """
    group = [0]
    for at in range(1, len(needs)):
        if len(group) > 1 and sum(needs[each] for each in (*group, at)) + AROUND * (len(group) + 1) >= room:
            yield group
            group = [0]
        group.append(at)
    yield group


def share(needs: Sequence[int], wants: Sequence[int], room: int) -> list[int]:
    """Give each column what it needs, and the rest to those that lack most.

    >>> share([4, 4], [20, 6], 16)
    [12, 4]
    """
    widths = list(needs)
    while sum(widths) > room and max(widths) > 1:  # words that are longer than the screen is wide
        widths[widths.index(max(widths))] -= 1
    while sum(widths) < room:
        at = min(range(len(widths)), key=lambda each: widths[each] / max(1, wants[each]))
        if widths[at] / max(1, wants[at]) > WORST:
            break
        widths[at] += 1
    return widths


def _text(cell: object) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)


def _need(column: Sequence[str], whole: bool) -> int:
    """Return the letters that a column cannot do without: its longest word, or a whole cell below the heading if that is not too long.

    >>> _need(["95 % interval", "0.693 – 0.697"], whole=True), _need(["95 % interval", "0.693 – 0.697"], whole=False)
    (13, 8)
    """
    words = max(map(_longest_word, column), default=1)
    cells = max(map(len, column[1:]), default=1) if whole else 1
    return min(LONGEST, max(words, cells if cells <= LONGEST else 1))


def _is_short(column: Sequence[str]) -> bool:
    return max(map(len, column[1:]), default=0) <= SHORT


def _longest_word(text: str) -> int:
    return max(map(len, text.split()), default=1)
