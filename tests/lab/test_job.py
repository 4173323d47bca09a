from __future__ import annotations

import os
from pathlib import Path

import filelock
import pytest

from mollifier.schedules import front_width
from mollifier_lab.job import SHALLOW, Job, JobRunner, different
from mollifier_lab.runs import RunFolder
from mollifier_lab.settings import RunConfig

TINY = {"bits": 4, "width": 4, "depth": 2, "samples": 8, "updates": 4, "evaluate_every": 2}
TASK = JobRunner(data=None, threads=1, show=False, token="t", owned=False)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(RunConfig.make("parity", "plain", preset="quick", **TINY), tmp_path / "seed-0")


def test_a_run_is_made_once(job: Job) -> None:
    assert TASK(job).status == "done"
    before = {path: path.stat().st_mtime_ns for path in job.path.rglob("*")}
    assert TASK(job).status == "found"
    assert {path: path.stat().st_mtime_ns for path in job.path.rglob("*")} == before
    assert job.starts("t") == 0


def test_a_run_that_another_process_has_is_left_to_it(job: Job) -> None:
    with filelock.FileLock(job.lock):
        assert TASK(job).status == "busy"
    job.path.mkdir()
    with filelock.FileLock(job.path / ".lock"):  # of mollifier train or resume
        assert TASK(job).status == "busy"
    assert RunFolder(job.path).status == "empty"


def test_another_run_in_the_folder_is_not_touched(job: Job) -> None:
    folder = RunFolder(job.path)
    other = RunConfig.make("parity", "plain", seed=1, preset="quick", **{**TINY, "lr": 0.5})
    folder.write("config.json", other.to_json())
    outcome = TASK(job)
    assert (outcome.status, os.listdir(job.path)) == ("failed", ["config.json"])
    assert "seed is 1 there, 0 is requested; lr is 0.5 there, 1.0 is requested" in outcome.error
    assert folder.config() == other


def test_a_preset_and_a_label_are_mere_names(job: Job) -> None:
    named = RunConfig("parity", "plain", 0, job.config.settings, preset="paper", label="mine")
    RunFolder(job.path).write("config.json", named.to_json())
    assert different(RunFolder(job.path), job.config) == ""


@pytest.mark.parametrize(
    ("schedule", "depth", "same"),
    [("exponential", 72, True), ("front", 50, True), ("front", 72, False), ("adaptive", 72, False)],
)
def test_runs_with_the_earlier_width_of_the_front_are_taken_over_where_it_is_the_default_still(
    tmp_path: Path, schedule: str, depth: int, same: bool
) -> None:
    settings = {"schedule": schedule, "depth": depth, "horizon": 10.0}
    RunFolder(tmp_path).write(
        "config.json", RunConfig.make("mnist", "mollified", **settings, front_width=6.0).to_json()
    )
    found = different(RunFolder(tmp_path), RunConfig.make("mnist", "mollified", **settings))
    assert (found == "") == same
    assert same or "front_width is 6.0 there, 0.0 is requested" in found
    assert front_width(SHALLOW) == 6.0 < front_width(SHALLOW + 1)


def test_a_failure_is_written_down_and_tried_again(job: Job, tmp_path: Path) -> None:
    missing = Job(RunConfig.make("mnist", "plain", preset="quick"), tmp_path / "mnist")
    outcome = JobRunner(data=tmp_path / "no-data", threads=1, show=False, token="t", owned=False)(missing)
    assert (outcome.status, outcome.curable) == ("failed", True)
    log = (missing.path / "failure.txt").read_text()
    assert '"method": "plain"' in log
    assert "Traceback" in log
    assert log.rstrip().endswith(outcome.error)
    job.path.mkdir()
    (job.path / "failure.txt").write_text("an earlier one")
    assert TASK(job).status == "done"
    assert not (job.path / "failure.txt").exists()


def test_a_run_in_which_the_process_dies_twice_is_given_up(job: Job) -> None:
    job.lock.write_text("t 1")
    assert TASK(job).status == "done"
    again = Job(job.config, job.path.with_name("seed-1"))
    again.lock.write_text("t 2")
    outcome = TASK(again)
    assert (outcome.status, outcome.curable) == ("failed", False)
    assert "died twice" in (again.path / "failure.txt").read_text()
    assert TASK(again).status == "done"  # another pool, or the next comparison, tries again


def test_a_folder_that_this_machine_does_not_see(job: Job, tmp_path: Path) -> None:
    far = Job(job.config, tmp_path / "not-mounted" / "seed-0")
    assert "expected a folder that all machines share" in TASK(far).error
    assert not far.path.parent.exists()


def test_a_folder_that_can_not_be_written(job: Job) -> None:
    job.path.write_text("a file in its place")
    outcome = TASK(job)
    assert (outcome.status, outcome.curable) == ("failed", True)
    assert job.path.read_text() == "a file in its place"
