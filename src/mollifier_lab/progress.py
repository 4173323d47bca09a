"""What a run shows while it goes on: a live bar on a terminal, a plain line an evaluation elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from mollifier import Annealer

REFRESH = 0.25  # seconds


class Progress:
    """Shows how a run goes; asks for a loss's value only when it is drawn."""

    def __init__(self, title: str, start: int, total: int, show: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress as Bar, TextColumn, TimeRemainingColumn

        self.title, self.total, self._drawn, self._seen = title, total, 0.0, start
        self._began = time.perf_counter()
        self._start = start
        self._metrics = ""
        self._console = Console(stderr=True)
        self._lines = show and not self._console.is_terminal
        self._bar: Bar | None = None
        if show and self._console.is_terminal:
            self._bar = Bar(
                TextColumn("{task.description}"), BarColumn(bar_width=None), TextColumn("{task.completed}/{task.total}"),
                TextColumn("{task.fields[shown]}"), TimeRemainingColumn(), console=self._console, auto_refresh=False,
            )  # fmt: skip
            self._task = self._bar.add_task(title, total=total, completed=start, shown="")

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.refresh()
            self._bar.stop()

    def step(self, update: int, loss: Tensor, annealer: Annealer | None) -> None:
        """After each update; draws a few times a second."""
        if self._bar is None:
            return
        now = time.perf_counter()
        if now - self._drawn < REFRESH:
            return
        self._drawn = now
        speed = (update - self._start) / max(now - self._began, 1e-9)
        shown = f"loss {float(loss):.4g}  {self._metrics}{describe_levels(annealer.levels if annealer is not None else None)}{speed:.0f}/s"
        self._bar.update(self._task, completed=update, shown=shown, refresh=True)

    def row(self, row: dict[str, Any]) -> None:
        """After each evaluation."""
        found = {key: value for key, value in row.items() if key.partition("_")[0] in ("train", "valid", "test")}
        shown = "  ".join(f"{key} {'diverged' if value is None else f'{value:.4g}'}" for key, value in found.items())
        self._metrics = "  ".join(part for part in shown.split("  ") if not part.startswith("train_loss")) + "  "
        if self._lines:
            print(f"{self.title}: update {row['update']}/{self.total}  {shown}  {describe_levels(row.get('levels'))}".rstrip(), flush=True)  # fmt: skip

    def say(self, text: str) -> None:
        """A line above the bar, or of its own."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def describe_levels(levels: list[float] | None) -> str:
    """The first and the last: the input's block is plain first.

    >>> describe_levels([0.1, 0.5, 0.9])
    'levels 0.10…0.90  '
    """
    if not levels:
        return ""
    return f"levels {levels[0]:.2f}…{levels[-1]:.2f}  " if len(levels) > 1 else f"level {levels[0]:.2f}  "
