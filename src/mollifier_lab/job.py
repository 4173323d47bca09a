"""One of many runs: what a worker does with it, in any process.

A lock next to the folder keeps others out while a run is in progress. The system releases it when its holder ends, for whatever reason.
"""

from __future__ import annotations

import contextlib
import platform
import signal
import threading
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import filelock

from mollifier_lab.errors import Busy, Interrupted, LabError
from mollifier_lab.hardware import FULL, Precision
from mollifier_lab.imports import refuse_others
from mollifier_lab.progress import notes_to
from mollifier_lab.pruning import Judge, Pruning
from mollifier_lab.runs import WANTED, RunFolder
from mollifier_lab.settings import RunConfig

SHALLOW = 50  # layers, up to which the default width of a front is 6 windows (mollifier.schedules.front_width)
_ONE = threading.Lock()  # torch has one random generator per process, and a Dask worker may have several threads


Status = Literal["done", "found", "failed", "busy", "interrupted"]


@dataclass(frozen=True)
class Job:
    """A run that is requested, and its folder."""

    config: RunConfig
    path: Path

    @property
    def lock(self) -> Path:
        """Locked while the run is in progress; contains how often a pool has started it."""
        return self.path.with_name(f".{self.path.name}.lock")

    @property
    def notes(self) -> Path:
        """The file in which a run in progress reports, see `mollifier_lab.progress`."""
        return self.path.with_name(f".{self.path.name}.progress")

    def starts(self, token: str) -> int:
        """Return how often workers of that pool have started it without finishing."""
        try:
            words = self.lock.read_text().split()
        except (OSError, ValueError):
            return 0
        return int(words[1]) if len(words) == 2 and words[0] == token and words[1].isdecimal() else 0


@dataclass(frozen=True)
class Outcome:
    """What happened to a job.

    Attributes:
        job: The job.
        status: ``found`` if it was done already, ``busy`` if another process is working on it.
        error: Why it failed, in one line.
        curable: Whether the user can remove the reason for the failure.
    """

    job: Job
    status: Status
    error: str = ""
    curable: bool = False


Report = tuple[str, Status, str, bool]


@dataclass(frozen=True)
class JobRunner:
    """What a worker does with a job."""

    data: Path | None
    threads: int
    show: bool
    token: str
    owned: bool
    wait: bool = False
    pruning: Pruning | None = None
    precision: Precision = FULL
    logger: str = ""

    def far(self, config: str, path: str) -> Report:
        """Do the job in another process. It receives text, not objects, because it must first load the user's own code that defines their
        classes.
        """
        try:
            job = Job(RunConfig.from_json(config, trusted=True), Path(path))
            refuse_others(job.config.imports)
        except LabError as error:
            return path, "failed", str(error), True
        found = self(job)
        return path, found.status, found.error, found.curable

    def __call__(self, job: Job) -> Outcome:
        if not job.path.parent.is_dir():
            return Outcome(job, "failed", f"{job.path.parent} does not exist on {platform.node()}: expected a folder that all machines share")  # fmt: skip
        with _ONE, _heeding() if self.owned else contextlib.nullcontext():
            try:
                with filelock.FileLock(job.lock, timeout=-1 if self.wait else 0, poll_interval=0.5):
                    return self._locked(job)
            except (filelock.Timeout, Busy):
                return Outcome(job, "busy")
            except (Interrupted, KeyboardInterrupt):
                return Outcome(job, "interrupted")
            except OSError as error:  # from the lock or failure.txt: the folder cannot be written to
                return Outcome(job, "failed", str(error) if error.filename else f"{job.path}: {error}", curable=True)

    def _locked(self, job: Job) -> Outcome:
        folder = RunFolder(job.path)
        if problem := different(folder, job.config, self.precision):
            return Outcome(job, "failed", problem, curable=True)
        if folder.status == "done":
            return Outcome(job, "found")
        starts = job.starts(self.token)
        if starts > 1:
            job.lock.write_text("")
            return _failed(job, "the process died twice during this run: was it killed, or out of memory?", "")
        job.lock.write_text(f"{self.token} {starts + 1}")
        outcome = self._train(job, folder)
        job.lock.write_text("")
        return outcome

    def _train(self, job: Job, folder: RunFolder) -> Outcome:
        try:
            from mollifier_lab import engine  # torch is imported only where runs are made

            hardware = engine.Hardware(threads=self.threads, precision=self.precision, logger=self.logger)
            quiet = contextlib.nullcontext() if self.show else notes_to(job.notes)
            with quiet, self._judge(job) as judge:
                if (folder.path / "config.json").exists():
                    engine.resume(folder.path, data=self.data, hardware=hardware, show=self.show, judge=judge)
                else:
                    engine.train(
                        job.config, folder.path, data=self.data, hardware=hardware, show=self.show, judge=judge
                    )
        except (Interrupted, Busy):
            raise
        except Exception as error:
            line = str(error) if isinstance(error, LabError) else f"{type(error).__name__}: {error}"
            return _failed(job, line, traceback.format_exc(), isinstance(error, LabError))
        return Outcome(job, "done")

    def _judge(self, job: Job) -> contextlib.AbstractContextManager[Judge | None]:
        if self.pruning is None:
            return contextlib.nullcontext()
        return self.pruning.judge(int(job.path.name.rpartition("-")[2]), job.config.settings.updates)


def different(folder: RunFolder, wanted: RunConfig, precision: Precision | None = None) -> str:
    """Say how the run in a folder differs from the requested one; empty if it does not, or if there is none."""
    if not (folder.path / "config.json").exists():
        return ""
    there, here = (_facts(config) for config in (folder.config(), wanted))
    if precision is not None and (folder.path / "environment.json").exists():
        recorded = folder.json("environment.json").get("identity")
        if isinstance(recorded, dict) and "precision" in recorded:
            there["precision"], here["precision"] = recorded["precision"], precision
    found = [f"{name} is {there.get(name)!r} there, {here.get(name)!r} is requested" for name in {**there, **here} if there.get(name) != here.get(name)]  # fmt: skip
    return f"{folder.path} contains a different run: {'; '.join(found)}" if found else ""


def _facts(config: RunConfig) -> dict[str, Any]:
    """Return what the result depends on, without the preset and the label, which are only names."""
    settings = config.settings
    width = settings.front_width if settings.schedule in ("front", "adaptive") else 0.0
    # at these depths, the default of the previous version is what 0 means
    if width == 6.0 and settings.network_size()[0] <= SHALLOW:
        width = 0.0
    return {
        "task": config.task,
        "method": config.method,
        "seed": config.seed,
        "trial": config.trial,
        **asdict(settings),
        "front_width": width,
        "source": {each.name: each.sha256[:12] for each in config.imports},
    }


def _failed(job: Job, line: str, trace: str, curable: bool = False) -> Outcome:
    text = f"{job.config.task}, {job.config.title}, seed {job.config.seed}, on {platform.node()}\n\n{job.config.to_json()}\n{trace or line}"
    folder = RunFolder(job.path)
    if not (job.path / "config.json").exists():  # so that tables and pages can say which run failed
        folder.write(WANTED, job.config.to_json())
    folder.write("failure.txt", text.rstrip() + "\n")
    return Outcome(job, "failed", line, curable)


@contextlib.contextmanager
def _heeding() -> Iterator[None]:
    """Stop a worker at once if its run has not begun, or while it waits."""

    def stop(number: int, frame: object) -> None:
        raise Interrupted("stopped before it began")

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
