from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mollifier_lab.errors import Interrupted, LabError
from mollifier_lab.runs import RunFolder, find_runs
from mollifier_lab.study import compare, seed_list, study_command
from tests.lab.processes import fork

TINY = {"bits": 6, "width": 8, "depth": 2, "samples": 64, "updates": 200, "evaluate_every": 20, "save_every": 50}
METHODS = ("plain", "mollified:lr=0.5")


def study(out: Path, methods: tuple[str, ...] = METHODS, seeds: Any = 2, **more: Any) -> list[RunFolder]:
    return compare(
        "parity", methods, seeds, out, preset="quick", **{"changes": TINY, "threads": 1, "show": False} | more
    )


def counted(out: Path, calls: Path) -> None:
    """A comparison, in a process of its own, that writes down what it runs."""
    from mollifier_lab import engine

    def count(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **keywords: Any) -> Any:
            with calls.open("a") as file:
                file.write(f"{next(each for each in args if isinstance(each, Path))}\n")
            return function(*args, **keywords)

        return wrapped

    engine.train, engine.resume = count(engine.train), count(engine.resume)
    study(out)


def contents(out: Path) -> dict[str, bytes]:
    """What must not depend on how a comparison went."""
    names = ("config.json", "metrics.jsonl", "model.safetensors")
    return {str((run.path / name).relative_to(out)): (run.path / name).read_bytes() for run in find_runs(out) for name in names}  # fmt: skip


def times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(24000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("waited for four minutes")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison that nothing has happened to."""
    out = tmp_path_factory.mktemp("whole")
    study(out)
    return out


def test_what_is_done_is_not_run_again(whole: Path) -> None:
    before = {run.path: times(run.path) for run in find_runs(whole)}
    runs = study(whole)
    assert [run.path.relative_to(whole).as_posix() for run in runs] == [
        "plain/seed-0", "plain/seed-1", "mollified_lr=0.5/seed-0", "mollified_lr=0.5/seed-1",
    ]  # fmt: skip
    assert {run.path: times(run.path) for run in find_runs(whole)} == before
    assert json.loads((whole / "study.json").read_text())["variants"] == list(METHODS)


def test_runs_in_another_precision_are_not_taken_for_the_same(tmp_path: Path) -> None:
    (run,) = study(tmp_path, ("mollified",), 1, precision="64-true")
    environment = json.loads((run.path / "environment.json").read_text())
    assert environment["identity"]["precision"] == "64-true"
    assert json.loads((tmp_path / "study.json").read_text())["command"].endswith("--precision 64-true")
    before = times(tmp_path)
    with pytest.raises(LabError, match="precision is '64-true' there, '32-true' is requested"):
        study(tmp_path, ("mollified",), 1)
    assert times(tmp_path) == before
    study(tmp_path, ("mollified",), 1, precision="64-true")
    assert times(run.path) == {path: time for path, time in before.items() if path.is_relative_to(run.path)}


def test_only_what_is_missing_is_run(whole: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = times(whole / "plain")
    study(whole, ("plain", "highway"), [0], show=True)
    assert times(whole / "plain") == before
    told = capfd.readouterr().err
    assert "1 of 2 runs are done already" in told
    assert "2/2  highway, seed 0: training NLL 0." in told


def test_killed_and_run_again_it_is_bit_for_bit_the_same(whole: Path, tmp_path: Path) -> None:
    killed = fork(study, tmp_path)
    metrics = tmp_path / "plain" / "seed-1" / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and len(metrics.read_bytes().splitlines()) > 4)
    killed.kill()
    assert [run.status for run in find_runs(tmp_path)] == ["done", "started"]
    before = times(tmp_path / "plain" / "seed-0")
    runs = study(tmp_path)
    assert {run.status for run in runs} == {"done"}
    assert times(tmp_path / "plain" / "seed-0") == before
    found = contents(tmp_path)
    assert found == {name: data for name, data in contents(whole).items() if name in found}
    assert len(found) == 12


def test_two_at_once_share_the_work(whole: Path, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    both = [fork(counted, tmp_path / "out", calls) for _ in range(2)]
    assert [each.wait() for each in both] == [0, 0]
    ran = calls.read_text().split()
    assert sorted(ran) == sorted(str(run.path) for run in find_runs(tmp_path / "out"))
    assert len(ran) == 4
    found = contents(tmp_path / "out")
    assert found == {name: data for name, data in contents(whole).items() if name in found}


def test_a_failure_stops_no_other_and_is_tried_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    short = {**TINY, "updates": 4, "evaluate_every": 2}
    methods = ("plain:samples=1000000000000", "plain")  # more than any machine's memory
    runs = study(tmp_path, methods, changes=short)
    assert [run.status for run in runs] == ["failed", "failed", "done", "done"]
    log = (runs[0].path / "failure.txt").read_text()
    assert '"samples": 1000000000000' in log
    assert "Traceback" in log
    told = capfd.readouterr().err
    assert f"1/4  plain, samples=1000000000000, seed 0: FAILED: RuntimeError: {log.rpartition('RuntimeError: ')[2][:20]}" in told  # fmt: skip
    assert f"log: {runs[0].path / 'failure.txt'}" in told
    before = times(tmp_path)
    study(tmp_path, methods, changes=short)
    changed = {path for path, at in times(tmp_path).items() if before.get(path) != at and path.name != "study.json"}
    assert {runs[0].path / "failure.txt", runs[1].path / "failure.txt"} <= changed
    assert not any(path.is_relative_to(tmp_path / "plain" / f"seed-{seed}") for path in changed for seed in range(2))


def test_what_could_not_be_written_is_run_when_it_can(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    short = {**TINY, "updates": 4, "evaluate_every": 2}
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "seed-0").write_text("in the way")
    assert [run.status for run in study(tmp_path, ("plain",), changes=short)] == ["empty", "done"]
    assert "plain, seed 0: FAILED" in capfd.readouterr().err
    (tmp_path / "plain" / "seed-0").unlink()
    assert [run.status for run in study(tmp_path, ("plain",), changes=short)] == ["done", "done"]


def test_other_settings_are_refused_and_nothing_is_touched(whole: Path) -> None:
    before = times(whole)
    with pytest.raises(LabError) as caught:
        study(whole, ("copy", "plain"), changes={**TINY, "lr": 0.25, "width": 9})
    told = str(caught.value)
    assert (
        f"{whole / 'plain' / 'seed-0'} contains a different run: lr is 1.0 there, 0.25 is requested; width is 8 there"
        in told
    )
    assert "plain/seed-1" in told
    assert "Nothing was run or overwritten: name another folder (--out)" in told
    with pytest.raises(LabError, match="contains a comparison of task 'parity', not 'ptb'"):
        compare("ptb", ["plain"], 1, whole)
    assert times(whole) == before
    assert not (whole / "copy").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seeds": 0}, "seeds=0: expected at least one"),
        ({"seeds": [1, 1]}, "each once"),
        ({"methods": ("plane",)}, "did you mean 'plain'"),
        ({"changes": ["lr=-1"]}, r"lr=-1\.0: expected a positive number"),
        ({"workers": 0}, "workers=0"),
        ({"threads": -1}, "threads=-1"),
        ({"address": "tcp://host:1"}, "expected it together with backend dask or ray"),
        ({"backend": "ray"}, "workers=1 with backend ray"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_written(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(LabError, match=words):
        study(tmp_path / "out", **change)
    assert not (tmp_path / "out").exists()


def test_a_folder_with_a_foreign_study_file(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text("[]")
    with pytest.raises(LabError, match="does not belong to a comparison"):
        study(tmp_path)
    assert (tmp_path / "study.json").read_text() == "[]"


def test_interrupted_it_says_how_to_go_on(tmp_path: Path) -> None:
    told = tmp_path / "told"
    child = fork(interruptible, tmp_path / "out", told)
    wait_for(lambda: any(len(path.read_bytes()) > 200 for path in tmp_path.rglob("metrics.jsonl")))
    assert child.process.pid is not None
    os.kill(child.process.pid, 2)
    assert child.wait() == 0
    assert told.read_text().startswith("stopped: 0 of 2 runs are done")
    assert f"--out {tmp_path / 'out'} --threads 1" in told.read_text()
    assert [run.status for run in find_runs(tmp_path)] == ["started"]
    assert len(list(tmp_path.rglob("*.pt"))) == 1


def interruptible(out: Path, told: Path) -> None:
    try:
        study(out, ("plain",), changes={**TINY, "updates": 10**6, "save_every": 10**6})
    except Interrupted as error:
        told.write_text(str(error))


def test_the_command_is_understood_by_the_command_line(tmp_path: Path) -> None:
    from mollifier_lab.cli import parse

    text = study_command(
        "parity", ["plain:lr=0.1", "mollified"], 3, tmp_path / "a b", preset="quick", changes={"lr": 0.5, "width": 8}, data=Path("d"),
        workers=4, backend="dask", address="tcp://host:1", threads=2, precision="bf16-mixed",
    )  # fmt: skip
    found: Any = parse(shlex.split(text)[1:])
    assert (found.task, found.methods, found.preset) == ("parity", ("plain:lr=0.1", "mollified"), "quick")
    assert (found.changes, found.out, found.data) == (("lr=0.5", "width=8"), tmp_path / "a b", Path("d"))
    assert (found.workers, found.backend, found.address, found.threads) == (4, "dask", "tcp://host:1", 2)
    assert found.precision == "bf16-mixed"


def test_the_record_of_a_study_inside_the_working_folder_names_no_folder_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    study(tmp_path / "results" / "mine", ("plain",), data=tmp_path / "data")
    record = (tmp_path / "results" / "mine" / "study.json").read_text()
    assert str(tmp_path) not in record
    words = shlex.split(json.loads(record)["command"])
    assert words[words.index("--out") + 1] == "results/mine"
    assert words[words.index("--data") + 1] == "data"


@pytest.mark.parametrize("seeds", [3, [0, 1], [3, 1], [4]])
def test_the_command_has_the_same_seeds(seeds: int | list[int]) -> None:
    from mollifier_lab.cli import parse
    from mollifier_lab.commands.compare import seed_numbers

    found: Any = parse(shlex.split(study_command("parity", ["plain"], seeds, "out"))[1:])
    assert seed_list(seed_numbers(found.seeds)) == seed_list(seeds)
