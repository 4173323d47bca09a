"""How a study goes while it runs: a bar for all of it with the time that is left, and a line for each run under way."""

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
from mollifier_lab.texts import cut

if TYPE_CHECKING:
    from rich.console import Console

EVERY = 0.5  # seconds between two drawings
START = 3.0  # seconds of a run that tell nothing of the others


@dataclass
class Pace:
    """When a study will be over, from what its runs have taken so far.

    >>> pace = Pace(workers=2)
    >>> pace.ended("plain", 10.0)
    >>> pace.left({}, ["plain"] * 4)
    20.0

    Attributes:
        workers: Runs at a time.
        seconds: What runs have taken, by variant.
    """

    workers: int
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def ended(self, variant: str, seconds: float) -> None:
        """Take note of a run that is over."""
        self.seconds[variant].append(seconds)

    def left(self, running: dict[str, list[tuple[float, float]]], waiting: Iterable[str]) -> float | None:
        """Seconds until all is done; None while nothing is known.

        Args:
            running: Seconds so far and seconds left of the runs under way, by variant.
            waiting: The variants of the runs that have not begun, one for each.
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
    """A bar for the study, and below it a line for each run that is under way; use it as a context.

    Args:
        console: Where it is drawn.
        jobs: The runs that are not done.
        done: How many others there are.
        workers: Runs at a time.
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
        """Take note of a run that is over."""
        path = outcome.job.path
        with self._lock:
            self._jobs.pop(path, None)
            self._done, self._ended = self._done + 1, True
            now = time.perf_counter()
            began = self._first.pop(path, (self._last, 0))[0]  # one at a time: when the one before ended
            if outcome.status == "done":
                self.pace.ended(str(path.parent), now - began)
            self._last = now

    def left(self) -> float | None:
        """Seconds until the study is over, if that can be told."""
        running: dict[str, list[tuple[float, float]]] = defaultdict(list)
        with self._lock:
            told = {path: (spent, left) for path, (_, spent, left, _) in self.under_way().items() if left is not None}
            waiting = [str(path.parent) for path in self._jobs if path not in told]
        for path, both in told.items():
            running[str(path.parent)].append(both)
        return self.pace.left(running, waiting)

    def under_way(self) -> dict[Path, tuple[dict[str, Any], float, float | None, str]]:
        """The runs that write how they go: their note, seconds so far, seconds left, and what they are busy with."""
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
        """Bring the lines up to date, and draw them."""
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
                title = cut(f"  {config.title}, seed {config.seed}", title_room(self._bar.console))
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
    """What a run under way has written last; None if it has not begun, or wrote it before that time."""
    try:
        if job.notes.stat().st_mtime < began:  # of a study that was killed
            return None
        note = json.loads(job.notes.read_text())
        numbers = {"update": int(note["update"]), "total": int(note["total"]), "rate": float(note["rate"])}
        return numbers | {"phase": str(note["phase"])}
    except (OSError, ValueError, KeyError, TypeError):  # not there, or half written
        return None
