"""Make many runs, several at a time, in processes of this machine or on a Dask or Ray cluster, through joblib.

A run's folder contains everything about it, so a pool has no state: runs that are done are not repeated, and runs that were started continue. On a
cluster the folder must be on storage that all machines share.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import joblib  # type: ignore[import-untyped]

from mollifier_lab import loggers
from mollifier_lab.backends import Backend, opened
from mollifier_lab.errors import Interrupted, LabError
from mollifier_lab.hardware import FULL, MOST, Precision, check_threads
from mollifier_lab.imports import not_while_loading
from mollifier_lab.job import Job, JobRunner, Outcome
from mollifier_lab.pruning import Pruning
from mollifier_lab.signals import Stop

WATCH = 1.0  # seconds between two checks whether the parent still exists


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Where runs are made.

    Attributes:
        data: The folder with the data.
        workers: Number of runs at a time; if it is 1, they run in this process.
        backend: ``loky``: processes of this machine; ``dask`` or ``ray``: those of a cluster.
        address: The address of the cluster; without it, a small cluster is started here. Dask uses all workers that it finds there.
        threads: Threads of each run; 0: an equal share of this machine's, or 1 if there is an address.
        show: Whether to show the progress of a run, if there is one at a time.
        pruning: Which trials of a search are ended early; None for none.
        precision: The precision of the numbers, with Fabric's names.
        logger: Where runs log to in addition to TensorBoard, see `mollifier_lab.loggers`.
    """

    data: Path | None = None
    workers: int = 1
    backend: Backend = "loky"
    address: str | None = None
    threads: int = 0
    show: bool = True
    pruning: Pruning | None = None
    precision: Precision = FULL
    logger: str = ""

    def __post_init__(self) -> None:
        if self.data is not None:  # workers may have a different current folder
            object.__setattr__(self, "data", Path(self.data).resolve())
        most = MOST if self.backend == "loky" else 10_000
        if not 1 <= self.workers <= most:
            raise LabError(f"workers={self.workers}: expected a whole number from 1 to {most}")
        check_threads(self.threads)
        loggers.check(self.logger)
        if self.address is not None and self.backend == "loky":
            raise LabError(f"address={self.address!r} without a cluster: expected it together with backend dask or ray")
        if self.backend == "ray" and self.workers == 1:
            raise LabError("workers=1 with backend ray: expected two or more; for one worker, leave the backend out")

    def run(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Run what is not done, and yield an outcome for each job as it arrives.

        Raises:
            Interrupted: After SIGINT or SIGTERM. Runs on this machine have saved; those on a cluster may continue.
            LabError: If the backend does not work.
        """
        if not jobs:
            return
        not_while_loading("runs")
        for job in jobs:
            job.path.parent.mkdir(parents=True, exist_ok=True)
        todo = {job.path: job for job in jobs}
        runner = JobRunner(
            self.data,
            self._share(),
            self.show and self.alone,
            uuid.uuid4().hex,
            owned=self._owned,
            pruning=self.pruning,
            precision=self.precision,
            logger=self.logger,
        )
        with opened(self.backend, self.address, self.workers) as config:
            while todo:
                # these were active when a worker died, and one of them is the reason: run alone, each shows whether it is the one
                starts = _starts(todo.values(), runner.token)
                suspects = [job for job in todo.values() if starts[job.path]]
                try:
                    for outcome in self._pass(suspects or list(todo.values()), bool(suspects), runner, config):
                        if outcome.status != "busy":
                            del todo[outcome.job.path]
                            yield outcome
                except KeyboardInterrupt:
                    raise Interrupted("stopped") from None
                except Exception as error:
                    if _starts(todo.values(), runner.token) == starts:
                        raise LabError(f"backend {self.backend} does not work: {error!r}") from error
                else:
                    runner = runner if suspects else replace(runner, wait=True)

    @property
    def alone(self) -> bool:
        """Whether runs are made in this process."""
        return self.backend == "loky" and self.workers == 1

    @property
    def _owned(self) -> bool:
        """Whether the workers' processes were started by this process."""
        return self.backend == "loky" and self.workers > 1

    def _share(self) -> int:
        if self.threads or self.alone:
            return self.threads
        return 1 if self.address else max(1, joblib.cpu_count() // self.workers)

    def _pass(self, jobs: list[Job], solo: bool, runner: JobRunner, config: dict[str, Any]) -> Iterator[Outcome]:
        interrupted = False
        with _Forward() if self._owned else contextlib.nullcontext(Stop()) as stop, joblib.parallel_config(**config):
            parallel = joblib.Parallel(
                n_jobs=1 if self.alone else max(2, min(self.workers, len(jobs))),
                return_as="generator_unordered",
                batch_size=1,
                # Ray's pool deals jobs out in turn, without asking which worker is free: a few more jobs than workers keep all of them busy
                pre_dispatch=1 if solo else "2*n_jobs" if self.backend == "ray" else "n_jobs",
                **({"initializer": _own_group, "initargs": (os.getpid(),)} if self._owned else {}),
            )
            byname = {str(job.path): job for job in jobs}
            wanted = (
                joblib.delayed(runner.far)(job.config.to_json(), str(job.path))
                for job in jobs
                if not (stop.asked or interrupted)
            )
            try:
                for path, *end in parallel(wanted):
                    outcome = Outcome(byname[path], *end)
                    interrupted = interrupted or outcome.status == "interrupted"
                    if outcome.status != "interrupted":
                        yield outcome
            except Exception:
                if not stop.asked:
                    raise
            if interrupted or stop.asked:
                raise KeyboardInterrupt


def _starts(jobs: Iterable[Job], token: str) -> dict[Path, int]:
    return {job.path: job.starts(token) for job in jobs}


class _Forward(Stop):
    """Tell the worker processes to stop as well."""

    def _ask(self, number: int, frame: object) -> None:
        super()._ask(number, frame)
        for child in multiprocessing.active_children():
            if type(child).__name__ == "LokyProcess" and child.pid:
                os.kill(child.pid, signal.SIGTERM)


def _own_group(parent: int) -> None:
    """Prepare a new worker: Ctrl-C reaches only the parent, which passes it on once. A worker without a run has nothing to save.

    Args:
        parent: The process that starts the worker. The worker cannot ask for it itself: if the parent was killed meanwhile, the system has given it another.
    """
    if hasattr(os, "setpgrp"):
        os.setpgrp()
    # not prctl's PR_SET_PDEATHSIG, which takes the thread that started the worker for the parent: loky's threads come and go
    threading.Thread(target=_die_with, args=(parent,), daemon=True, name="parent").start()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _die_with(parent: int) -> None:
    """End this process soon after its parent, however the parent ended: nobody waits for the run any more, and its checkpoint is saved."""
    while os.getppid() == parent:
        time.sleep(WATCH)
    os._exit(1)
