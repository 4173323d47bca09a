"""Show the progress of a run: a live bar on a terminal, a plain line per evaluation elsewhere, and a small file for the process that started it."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from mollifier_lab.shortening import shorten_middle

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import ProgressColumn
    from torch import Tensor

    from mollifier import Annealer

REFRESH = 0.25  # seconds
WATCH = 5.0  # seconds of updates after which the duration of a run can be estimated
NOTE = 1.0  # seconds between two notes for the process that started the run
LONG = 10.0  # seconds: an evaluation that took as long is announced the next time
# The file to which a run reports its progress, named by a study's worker. A context variable, so that the engine in between need not know it.
_NOTES: ContextVar[Path | None] = ContextVar("notes", default=None)


class Progress:
    """Show the progress of a run. The value of a loss is read only when it is drawn."""

    def __init__(self, title: str, start: int, total: int, show: bool, warn: bool = False) -> None:
        from rich.console import Console

        self._slow = SlowWatch(start, total) if warn else None

        self.title, self.total, self._drawn, self._noted = title, total, 0.0, 0.0
        self._began = time.perf_counter()
        self._start = self._update = start
        self._metrics = ""
        self._busy: float | None = None
        self._took = 0.0  # from the previous evaluation
        self._console = Console(stderr=True)
        self._lines = show and not self._console.is_terminal
        self._bar = make_bar(self._console) if show and self._console.is_terminal else None
        if self._bar is not None:
            self._task = self._bar.add_task(
                shorten_middle(title, title_room(self._console)),
                total=total,
                completed=start,
                count=f"{start}/{total}",
                rate="",
                left="",
            )

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.below = self._metrics.strip()
            self._bar.update(self._task, completed=self._update, count=f"{self._update}/{self.total}", left="")
            self._bar.refresh()
            self._bar.stop()

    def step(self, update: int, loss: Tensor, annealer: Annealer | None) -> None:
        """Show an update. The screen changes only a few times per second."""
        self._update = update
        now = time.perf_counter()
        if self._slow is not None and self._slow.step(update, now):
            self.say(f"warning: {self._slow.text}")
        if now - self._noted >= NOTE and _NOTES.get() is not None:
            self._note(now)
        if self._bar is None or now - self._drawn < REFRESH:
            return
        self._drawn = now
        levels = describe_levels(annealer.levels if annealer is not None else None)
        self._draw(f"loss {float(loss):.4g}  {levels}{self._metrics}".strip())

    def busy(self, what: str) -> None:
        """Announce something that takes a while, for example an evaluation: a bar that stands still without a message looks broken."""
        self._busy = time.perf_counter()
        first = self._update == self._start
        if first or self._took > NOTE:
            self._note(self._busy, what)
        if self._bar is not None and (first or self._took > REFRESH):
            self._draw(f"{what} …")
        elif self._lines and self._took > LONG:
            print(f"{self.title}: {what} (the last time this took {self._took:.0f} s)", flush=True)

    def row(self, row: dict[str, Any]) -> None:
        """Show an evaluation."""
        if self._busy is not None:
            self._took, self._busy = time.perf_counter() - self._busy, None
            self._noted = 0.0  # the next update shows that the run continues
        found = {key: value for key, value in row.items() if key.partition("_")[0] in ("train", "valid", "test")}
        shown = "  ".join(f"{key} {'diverged' if value is None else f'{value:.4g}'}" for key, value in found.items())
        self._metrics = "  ".join(part for part in shown.split("  ") if not part.startswith("train_loss")) + "  "
        if self._lines:
            print(f"{self.title}: update {row['update']}/{self.total}  {shown}  {describe_levels(row.get('levels'))}".rstrip(), flush=True)  # fmt: skip

    def say(self, text: str) -> None:
        """Print a line above the bar, or on its own."""
        print_line(self._console, text)

    def _draw(self, below: str) -> None:
        if self._bar is not None:
            speed = (self._update - self._start) / max(time.perf_counter() - self._began, 1e-9)
            self._bar.below = below
            self._bar.update(
                self._task, completed=self._update, count=f"{self._update}/{self.total}",
                rate=show_rate(speed), left=show_left((self.total - self._update) / speed if speed else None), refresh=True,
            )  # fmt: skip

    def _note(self, now: float, phase: str = "") -> None:
        speed = (self._update - self._start) / max(now - self._began, 1e-9)
        self._noted = now
        write_note(update=self._update, total=self.total, rate=speed, phase=phase)


class SlowWatch:
    """Find out once, after a few seconds, whether a run will take days.

        >>> watch = SlowWatch(start=0, total=100_000)
        >>> watch.step(1, now=3.0), watch.step(2, now=13.0), watch.step(3, now=23.0)
        (False, True, False)
        >>> watch.text
        'the last updates took 10 s each: at that speed the run takes another 11.6 days'

    Args:
        start: The update at which the run begins or resumes.
        total: The number of updates of the run.
    """

    def __init__(self, start: int, total: int) -> None:
        self._start, self._total, self._first, self._done = start, total, 0.0, False
        self.text = ""

    def step(self, update: int, now: float) -> bool:
        """Return whether to warn, after an update. The first update is slower than the others, and does not count."""
        if self._done:
            return False
        if update <= self._start + 1:
            self._first = now
            return False
        if now - self._first < WATCH:
            return False
        self._done = True
        each = (now - self._first) / (update - self._start - 1)
        days = each * (self._total - update) / 86_400
        self.text = f"the last updates took {each:.2g} s each: at that speed the run takes another {days:.1f} days"
        return days > 1


def make_bar(console: Any) -> Any:
    """Make a bar whose title is shortened on a narrow terminal, but never its count, its rate or the remaining time. A line below it is cut."""
    from rich.progress import BarColumn, Progress as Bar, TextColumn
    from rich.table import Column
    from rich.text import Text

    class Two(Bar):
        below = ""

        def get_renderables(self) -> Iterator[RenderableType]:
            yield from super().get_renderables()
            if self.below:
                yield Text(f"  {self.below}", no_wrap=True, overflow="ellipsis", style="dim")

    title = Column(no_wrap=True, overflow="ellipsis", max_width=title_room(console))
    columns: list[ProgressColumn] = [
        TextColumn("{task.description}", markup=False, table_column=title),
        BarColumn(bar_width=None, table_column=Column(ratio=1, min_width=8)),
    ]
    for field in ("count", "rate", "left"):
        columns.append(TextColumn(f"{{task.fields[{field}]}}", markup=False, justify="right", table_column=Column(no_wrap=True)))  # fmt: skip
    return Two(*columns, console=console, auto_refresh=False, expand=True)


def title_room(console: Any) -> int:
    """Return how many letters of a title fit next to a bar, its count, its rate and the remaining time."""
    return max(12, int(console.width) - 50)


@contextlib.contextmanager
def notes_to(path: Path) -> Iterator[None]:
    """Let runs of this process report their progress in a file while the block lasts; the file is removed at the end."""
    token = _NOTES.set(path)
    try:
        yield
    finally:
        _NOTES.reset(token)
        with contextlib.suppress(OSError):
            path.unlink()


def write_note(**facts: Any) -> None:
    """Write the progress of a run, if a process wants to know it. A failure to write does not stop the run."""
    path = _NOTES.get()
    if path is not None:
        with contextlib.suppress(OSError):
            path.write_text(json.dumps(facts))


@contextlib.contextmanager
def telling(show: bool) -> Iterator[None]:
    """While the block lasts, show messages about work that is done once per machine and takes a while, such as generating data."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = record.getMessage()
            write_note(update=0, total=0, rate=0.0, phase=text.partition(" ")[0])
            if show:
                from rich.console import Console

                print_line(Console(stderr=True), f"{text} …")

    logger, handler = logging.getLogger("mollifier"), Handler(logging.INFO)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def print_line(console: Console, text: str) -> None:
    """Print a line as it is. On a terminal it is broken between words, unless a word, such as a path, is wider than the terminal."""
    whole = not console.is_terminal or any(len(word) > console.width for word in text.split())
    console.print(text, markup=False, highlight=False, soft_wrap=whole)


def show_left(seconds: float | None) -> str:
    """Return the remaining time as text.

    >>> show_left(75), show_left(4000), show_left(None)
    ('1:15 left', '1:06:40 left', '')
    """
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d} left" if hours else f"{minutes}:{rest:02d} left"


def show_rate(speed: float) -> str:
    """Return the updates per second as text.

    >>> show_rate(412.3), show_rate(0.25)
    ('412/s', '0.25/s')
    """
    return f"{speed:.0f}/s" if speed >= 10 else f"{speed:.2g}/s"


def describe_levels(levels: list[float] | None) -> str:
    """Return the first and the last level as text. The block at the input becomes plain first.

    >>> describe_levels([0.1, 0.5, 0.9])
    'levels 0.10…0.90  '
    """
    if not levels:
        return ""
    return f"levels {levels[0]:.2f}…{levels[-1]:.2f}  " if len(levels) > 1 else f"level {levels[0]:.2f}  "
