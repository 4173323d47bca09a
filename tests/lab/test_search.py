from __future__ import annotations

import csv
import itertools
import json
import math
import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mollifier_lab.data.sources import source
from mollifier_lab.errors import LabError
from mollifier_lab.methods import METHODS, applicable
from mollifier_lab.runs import RunFolder
from mollifier_lab.search import Best, draw, search, search_command, search_space
from mollifier_lab.settings import TASKS, RunConfig
from tests.lab.processes import fork

TINY = {"bits": 6, "width": 8, "depth": 2, "samples": 64, "updates": 100, "evaluate_every": 20, "save_every": 40}


def tiny(out: Path, method: str = "plain", trials: int = 3, **more: Any) -> Best:
    return search(
        "parity", method, trials, out, preset="quick", **{"changes": TINY, "threads": 1, "show": False} | more
    )


def rows(out: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((out / "trials.csv").read_text().splitlines()))


def contents(out: Path) -> dict[str, bytes]:
    names = ("metrics.jsonl", "model.safetensors", "trials.csv", "best.json")
    return {str(path.relative_to(out)): path.read_bytes() for name in names for path in out.rglob(name)}


def times(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in out.glob("trial-*/*") if path.is_file()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search that nothing has happened to."""
    out = tmp_path_factory.mktemp("whole")
    tiny(out)
    return out


@pytest.mark.parametrize("task", TASKS)
def test_every_method_gets_the_same_values(task: str) -> None:
    shared = list(TASKS[task].search)
    for number in range(20):
        drawn = [draw(search_space(task, method.name, {}), 0, number) for method in applicable(task)]
        assert len({tuple(each[name] for name in shared) for each in drawn}) == 1
        for method, each in zip(applicable(task), drawn, strict=True):
            assert list(each) == [*shared, *method.knobs]
            RunConfig.make(task, method.name, **each)


def test_draws_fill_their_ranges_and_depend_on_the_seed() -> None:
    space = search_space("parity", "mollified", {})
    drawn = [draw(space, 0, number) for number in range(2000)]
    for name, (low, high, scale) in space.items():
        values = [each[name] for each in drawn]
        assert low <= min(values) < max(values) <= high
        assert len(set(values)) == 2000
        middle = math.sqrt(low * high) if scale == "log" else (low + high) / 2
        assert 900 < sum(value < middle for value in values) < 1100
    assert draw(space, 1, 0)["lr"] != drawn[0]["lr"]


def test_what_is_set_is_not_drawn(tmp_path: Path) -> None:
    assert list(search_space("parity", "mollified", {"lr": 0.1, "k": 3.0})) == ["gain", "c"]
    with pytest.raises(LabError, match="nothing is left to search: lr, gain are all set"):
        tiny(tmp_path / "out", changes=["lr=0.1", "gain=1"])
    assert not (tmp_path / "out").exists()


def test_two_methods_in_one_database(whole: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    for method in ("mollified", "dropout"):
        tiny(tmp_path / method, method, 1, storage=url)
    assert rows(tmp_path / "mollified")[0]["lr"] == rows(tmp_path / "dropout")[0]["lr"] == rows(whole)[0]["lr"]
    assert "k" in rows(tmp_path / "mollified")[0]
    assert not (tmp_path / "mollified" / "search.db").exists()


def test_the_best_is_a_config_that_train_takes(whole: Path) -> None:
    found = tiny(whole)
    config = RunConfig.from_json((whole / "best.json").read_text())
    assert found.config == config
    assert replace(config, trial=True) == RunFolder(whole / f"trial-{found.number:04d}").config()
    values = [float(row["value"]) for row in rows(whole)]
    assert (found.value, found.metric) == (min(values), "train_nll")
    assert found.trials == {"done": 3, "diverged": 0, "failed": 0, "left": 0}
    finals = [RunFolder(whole / f"trial-{n:04d}").json("result.json")["final"]["train_nll"] for n in range(3)]
    assert values == finals


def test_trials_are_counted_in_all(whole: Path, tmp_path: Path) -> None:
    tiny(tmp_path, trials=1)
    before = times(tmp_path)
    tiny(tmp_path, trials=3)
    assert before.items() <= times(tmp_path).items()
    assert contents(tmp_path) == contents(whole)
    before = times(tmp_path)
    assert tiny(tmp_path, trials=2).trials["done"] == 2
    (tmp_path / "search.db").unlink()  # the folders alone tell all
    tiny(tmp_path, trials=3)
    assert times(tmp_path) == before
    assert contents(tmp_path) == contents(whole)


def test_killed_and_run_again_it_is_bit_for_bit_the_same(whole: Path, tmp_path: Path) -> None:
    killed = fork(tiny, tmp_path)
    metrics = tmp_path / "trial-0001" / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and len(metrics.read_bytes().splitlines()) > 2)
    killed.kill()
    before = {path: at for path, at in times(tmp_path).items() if path.parent.name == "trial-0000"}
    assert RunFolder(metrics.parent).status == "started"
    tiny(tmp_path)
    assert before.items() <= times(tmp_path).items()
    assert len(before) > 4
    assert contents(tmp_path) == contents(whole)


def test_two_at_once_share_the_work(whole: Path, tmp_path: Path) -> None:
    both = [fork(tiny, tmp_path) for _ in range(2)]
    assert [each.wait() for each in both] == [0, 0]
    assert contents(tmp_path) == contents(whole)


def test_the_test_set_plays_no_part(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    space = search_space("mnist", "plain", {})
    for number, (valid, test) in enumerate([(0.3, 0.1), (0.2, 0.4), (0.25, 0.0)]):
        folder = RunFolder(tmp_path / f"trial-{number:04d}")
        folder.write(
            "config.json", replace(RunConfig.make("mnist", "plain", **draw(space, 0, number)), trial=True).to_json()
        )
        both = {"valid_error": valid, "test_error": test}
        result = {"final": both, "best": both, "diverged": False, "seconds": 1.0, "updates": 4}
        folder.write("result.json", json.dumps(result))
    found = search("mnist", "plain", 3, tmp_path)
    assert (found.number, found.metric, found.value) == (1, "valid_error", 0.2)
    assert "test" not in (tmp_path / "trials.csv").read_text()
    assert "test" not in capfd.readouterr().err


def test_what_diverged_or_failed_is_not_tried_for_ever(tmp_path: Path) -> None:
    wild = {**TINY, "lr": 1e30, "activation": "relu"}
    huge = {**TINY, "samples": 10**12}
    for name, changes, end in (("wild", wild, "diverged"), ("huge", huge, "failed")):
        out = tmp_path / name
        for _ in range(2):
            with pytest.raises(LabError, match=rf"no trial succeeded \(2 {end}\)"):
                tiny(out, trials=2, changes=changes)
            assert [(row["outcome"], row["value"]) for row in rows(out)] == [(end, "")] * 2
            before = times(out)
        assert times(out) == before
        assert not (out / "best.json").exists()


def test_what_the_user_can_put_right_is_tried_again(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for file in source("mnist").files:
        (tmp_path / "data" / file.name).write_text("no idx file")
    for _ in range(2):
        with pytest.raises(LabError, match=r"\(1 left\)"):
            search("mnist", "plain", 1, tmp_path, data=tmp_path / "data", show=False, allow_other_data=True)
        (tmp_path / "trial-0000" / "failure.txt").unlink()


def test_another_search_in_the_folder_is_refused(whole: Path) -> None:
    before = contents(whole)
    with pytest.raises(LabError, match="width is 8 there, 9 is requested"):
        tiny(whole, changes={**TINY, "width": 9})
    with pytest.raises(LabError, match="trials=0"):
        tiny(whole, trials=0)
    assert contents(whole) == before


def test_the_command_is_understood_by_the_command_line(tmp_path: Path) -> None:
    from mollifier_lab.cli import parse

    text = search_command(
        "ptb", "copy", 7, tmp_path, preset="quick", changes={"lr": 0.5}, seed=3, storage="mysql://me:secret@host/db", data=Path("d"),
        workers=2, backend="ray", address="ray://host:1", threads=1,
    )  # fmt: skip
    assert "secret" not in text
    found: Any = parse(shlex.split(text)[1:])
    assert (found.task, found.method, found.trials, found.preset, found.seed) == ("ptb", "copy", 7, "quick", 3)
    assert (found.changes, found.out, found.data, found.workers) == (("lr=0.5",), tmp_path, Path("d"), 2)
    assert (found.backend, found.address, found.threads) == ("ray", "ray://host:1", 1)


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(24000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("waited for four minutes")


@pytest.mark.parametrize("task", sorted(TASKS))
def test_what_is_searched_together_is_drawn_from_different_sequences(task: str) -> None:
    for method in METHODS:
        try:
            names = list(search_space(task, method, {}))
        except LabError:  # not for this task
            continue
        columns = {
            name: tuple(draw(dict.fromkeys(names, (0.0, 1.0, "linear")), 0, n)[name] for n in range(16))
            for name in names
        }
        gaps = {
            name: tuple(round((b - a) % 1, 9) for a, b in itertools.pairwise(column))
            for name, column in columns.items()
        }
        assert len(set(gaps.values())) == len(names)
