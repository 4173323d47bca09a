"""Show the progress of a study: a bar for all of it with the remaining time, and a line for each active run."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from mollifier_lab.job import Job, Outcome
from mollifier_lab.progress import make_bar, show_left, show_rate, title_room
from mollifier_lab.shortening import shorten_middle

if TYPE_CHECKING:
    from rich.console import Console

EVERY = 0.5  # seconds between two updates of the screen
START = 3.0  # seconds after which a run tells something about the others


@dataclass
class Pace:
    """Estimate when a study will be over, from what its runs have taken so far.

    >>> pace = Pace(workers=2)
    >>> pace.ended("plain", 10.0)
    >>> pace.left({}, ["plain"] * 4)
    20.0

    Attributes:
        workers: Number of runs at a time.
        seconds: The times that runs have taken, by variant.
    """

    workers: int
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def ended(self, variant: str, seconds: float) -> None:
        """Record a run that has ended."""
        self.seconds[variant].append(seconds)

    def left(self, running: dict[str, list[tuple[float, float]]], waiting: Iterable[str]) -> float | None:
        """Return the seconds until all is done; None while nothing is known.

        Args:
            running: Elapsed and remaining seconds of the active runs, by variant.
            waiting: The variants of the runs that have not begun, one entry per run.
        """
        known = {variant: fmean(each) for variant, each in self.seconds.items()}
        for variant, each in running.items():
            known.setdefault(variant, fmean(sum(both) for both in each))
        rest = [left for each in running.values() for _, left in each]
        waiting = list(waiting)
        if waiting and not known:
            return None
        usual = fmean(known.values()) if known else 0.0
        work = sum(rest) + sum(known.get(variant, usual) for variant in waiting)
        return max([work / self.workers, *rest])


class Overview:
    """Show a bar for the study, and below it a line for each active run; use it as a context.

    Args:
        console: The console to draw on.
        jobs: The runs that are not done yet.
        done: How many other runs there are.
        workers: Number of runs at a time.
    """

    def __init__(self, console: Console, jobs: Sequence[Job], done: int, workers: int) -> None:
        self._jobs = {job.path: job for job in jobs}
        self._began, self._last = time.time(), time.perf_counter()
        self._first: dict[Path, tuple[float, int]] = {}
        self._rows: dict[Path, Any] = {}
        self.pace = Pace(workers)
        self._total, self._done, self._ended = done + len(jobs), done, False
        self._bar = make_bar(console)
        self._lock, self._over = threading.RLock(), threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="overview")
        self._whole = self._bar.add_task("all runs", total=self._total, completed=done, count="", rate="", left="")

    def __enter__(self) -> Overview:
        self._bar.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.look()
        self._bar.stop()

    def _watch(self) -> None:
        while not self._over.wait(EVERY):
            self.look()

    def ended(self, outcome: Outcome) -> None:
        """Record a run that has ended."""
        path = outcome.job.path
        with self._lock:
            self._jobs.pop(path, None)
            self._done, self._ended = self._done + 1, True
            now = time.perf_counter()
            began = self._first.pop(path, (self._last, 0))[0]  # one at a time: when the previous run ended
            if outcome.status == "done":
                self.pace.ended(str(path.parent), now - began)
            self._last = now

    def left(self) -> float | None:
        """Return the seconds until the study is over, if they can be estimated."""
        running: dict[str, list[tuple[float, float]]] = defaultdict(list)
        with self._lock:
            told = {path: (spent, left) for path, (_, spent, left, _) in self.under_way().items() if left is not None}
            waiting = [str(path.parent) for path in self._jobs if path not in told]
        for path, both in told.items():
            running[str(path.parent)].append(both)
        return self.pace.left(running, waiting)

    def under_way(self) -> dict[Path, tuple[dict[str, Any], float, float | None, str]]:
        """Return the runs that report their progress: their note, elapsed seconds, remaining seconds, and what they are doing."""
        found = {}
        now = time.perf_counter()
        for path, job in list(self._jobs.items()):
            note = read_note(job, self._began)
            if note is None:
                continue
            since, start = self._first.setdefault(path, (now, note["update"]))
            moved, rest = note["update"] - start, note["total"] - note["update"]
            left = rest * (now - since) / moved if moved > 0 and now - since > START else None
            found[path] = (note, now - since, left, note["phase"])
        return found

    def look(self) -> None:
        """Update the lines, and draw them."""
        with self._lock:
            self._update()
            self._bar.refresh()

    def _update(self) -> None:
        running = self.under_way()
        for path in set(self._rows) - set(running):
            self._bar.remove_task(self._rows.pop(path))
        for path, (note, _, left, phase) in running.items():
            config = self._jobs[path].config
            if path not in self._rows:
                title = shorten_middle(f"  {config.title}, seed {config.seed}", title_room(self._bar.console))
                self._rows[path] = self._bar.add_task(title, count="", rate="", left="")
            self._bar.update(
                self._rows[path], total=note["total"] or None, completed=note["update"], count=f"{note['update']}/{note['total']}",
                rate="" if phase else show_rate(note["rate"]), left=phase or show_left(left),
            )  # fmt: skip
        count = f"{self._done}/{self._total}"
        rest = show_left(self.left()) if self._done < self._total else ""
        if not (running or self._ended):  # processes take seconds to start
            rest = "starting"
        self._bar.update(self._whole, completed=self._done, count=count, left=rest)


def read_note(job: Job, began: float) -> dict[str, Any] | None:
    """Return what an active run has written last; None if it has not begun, or wrote it before that time."""
    try:
        if job.notes.stat().st_mtime < began:  # left by a study that was killed
            return None
        note = json.loads(job.notes.read_text())
        numbers = {"update": int(note["update"]), "total": int(note["total"]), "rate": float(note["rate"])}
        return numbers | {"phase": str(note["phase"])}
    except (OSError, ValueError, KeyError, TypeError):  # does not exist, or is half written
        return None
