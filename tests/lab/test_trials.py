from __future__ import annotations

import json
from pathlib import Path

import pytest

from mollifier_lab.errors import LabError
from mollifier_lab.job import Job, Outcome
from mollifier_lab.runs import RunFolder
from mollifier_lab.settings import Range, RunConfig
from mollifier_lab.trials import end, open_trials

SPACE: dict[str, Range] = {"lr": (1e-5, 1e-2, "log"), "gain": (1.0, 4.0, "linear")}


def jobs(out: Path, count: int) -> list[Job]:
    return [
        Job(RunConfig.make("mnist", "plain", lr=1e-4 * (1 + n), gain=2.0), out / f"trial-{n}") for n in range(count)
    ]


def finish(job: Job, value: float | None, diverged: bool = False) -> Outcome:
    final = {"valid_error": value, "test_error": 0.0}
    RunFolder(job.path).write(
        "result.json", json.dumps({"updates": 4, "seconds": 1.0, "final": final, "diverged": diverged})
    )
    return Outcome(job, "done")


def test_what_came_out_is_kept(tmp_path: Path) -> None:
    url, all_jobs = f"sqlite:///{tmp_path / 'a.db'}", jobs(tmp_path, 6)
    with open_trials(url, "name", {"lr": 1}) as trials:
        trials.add(all_jobs[:5], SPACE)
        trials.tell(0, finish(all_jobs[0], 0.25))
        trials.tell(1, finish(all_jobs[1], None))
        trials.tell(2, finish(all_jobs[2], 0.1, diverged=True))
        trials.tell(3, Outcome(all_jobs[3], "failed", "RuntimeError"))
        trials.tell(4, Outcome(all_jobs[4], "failed", "no data", curable=True))
    with open_trials(url, "name", {"lr": 1}) as trials:
        trials.add(all_jobs, SPACE)
        trials.tell(0, finish(all_jobs[0], 0.75))  # told already, perhaps by another machine
        assert list(map(end, trials.all)) == ["done", "diverged", "diverged", "failed", "left", "left"]
        assert trials.all[0].value == 0.25
        lines = trials.csv().splitlines()
    assert lines[:3] == ["trial,outcome,value,lr,gain,folder", "0,done,0.25,0.0001,2.0,trial-0", "1,diverged,,0.0002,2.0,trial-1"]  # fmt: skip
    assert len(lines) == 7


def test_another_search_in_the_database_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    with open_trials(url, "name", {"lr": 1, "width": 8}):
        pass
    told = "a different search named 'name': width is 8 there, 9 is requested"
    with pytest.raises(LabError, match=told), open_trials(url, "name", {"lr": 1, "width": 9}):
        pass
    with open_trials(url, "other", {"lr": 1, "width": 9}) as trials:
        assert trials.all == []


def test_a_database_that_can_not_be_used(tmp_path: Path) -> None:
    for url in ("no url", f"sqlite:///{tmp_path}/no/such/folder/a.db", "nosuch://me:secret@host/db"):
        with pytest.raises(LabError, match="storage ") as caught, open_trials(url, "name", {}):
            pass
        assert "secret" not in str(caught.value)
    (tmp_path / "text.db").write_text("no database" * 100)
    with pytest.raises(LabError, match="storage sqlite"), open_trials(f"sqlite:///{tmp_path}/text.db", "name", {}):
        pass
    assert (tmp_path / "text.db").read_text() == "no database" * 100
