from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from mollifier_lab.errors import Interrupted
from mollifier_lab.job import Job
from mollifier_lab.pool import Pool
from mollifier_lab.runs import RunFolder
from mollifier_lab.settings import RunConfig
from tests.lab.processes import fork

TINY = {"bits": 6, "width": 8, "depth": 2, "samples": 64, "updates": 300, "evaluate_every": 100}


@pytest.fixture(autouse=True)
def path_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers import what the tests import."""
    monkeypatch.setenv("PYTHONPATH", ":".join(filter(None, sys.path)))


def jobs(out: Path, count: int, **changes: int) -> list[Job]:
    configs = [RunConfig.make("parity", "plain", seed, "quick", **{**TINY, **changes}) for seed in range(count)]
    return [Job(config, out / f"seed-{config.seed}") for config in configs]


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(4800):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("waited for four minutes")


def kill_holder(job: Job, starts: int) -> None:
    """SIGKILL to the process that has that run for the n-th time."""

    def holder() -> psutil.Process | None:
        if not (job.lock.exists() and job.lock.read_text().endswith(f" {starts}")):
            return None
        for child in psutil.Process().children(recursive=True):
            try:
                links = [os.readlink(each) for each in Path(f"/proc/{child.pid}/fd").iterdir()]
            except OSError:
                continue
            if str(job.lock) in links:
                return child
        return None

    wait_for(lambda: holder() is not None)
    if process := holder():
        process.kill()


def test_a_run_whose_process_dies_is_found_out_and_the_others_finish(tmp_path: Path) -> None:
    bad, *others = all_jobs = jobs(tmp_path, 3)
    slow = RunConfig.make("parity", "plain", 0, "quick", **{**TINY, "updates": 10**6})
    all_jobs[0] = bad = Job(slow, bad.path)
    killer = threading.Thread(target=lambda: [kill_holder(bad, starts) for starts in (1, 2)])
    killer.start()
    ends = {outcome.job: outcome for outcome in Pool(workers=2, threads=1, show=False).run(all_jobs)}
    killer.join()
    assert [ends[job].status for job in all_jobs] == ["failed", "done", "done"]
    assert "the process died twice" in ends[bad].error
    assert "the process died twice" in (bad.path / "failure.txt").read_text()
    assert [RunFolder(job.path).status for job in others] == ["done", "done"]


def until_stopped_in_a_group(out: Path) -> None:
    os.setpgrp()
    try:
        list(Pool(workers=2, threads=1, show=False).run(jobs(out, 3, updates=10**6, save_every=10**6)))
    except Interrupted:
        (out / "interrupted").touch()


def test_told_to_stop_the_workers_save_first(tmp_path: Path) -> None:
    child = fork(until_stopped_in_a_group, tmp_path)
    wait_for(lambda: sum(len(path.read_bytes()) > 200 for path in tmp_path.glob("*/metrics.jsonl")) == 2)
    assert child.process.pid is not None
    os.killpg(child.process.pid, signal.SIGINT)  # as a terminal does
    assert child.wait() == 0
    assert (tmp_path / "interrupted").exists()
    assert len(list(tmp_path.glob("*/checkpoints/*.pt"))) == 2  # they save at a stop alone
    assert sum(RunFolder(job.path).status == "started" for job in jobs(tmp_path, 3)) == 2


def test_nothing_to_do_opens_no_cluster() -> None:
    assert list(Pool(backend="dask", address="tcp://127.0.0.1:9").run([])) == []
