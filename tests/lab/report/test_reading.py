"""Runs read and grouped: nothing lost, nothing taken twice."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from mollifier_lab.report.reading import number, read, variants
from mollifier_lab.runs import RunFolder, find_runs
from mollifier_lab.settings import RunConfig
from tests.lab.report.folders import write_run


def write(root: Path, name: str, seed: int = 0, state: str = "done", method: str = "plain", **changes: object) -> Path:
    return write_run(root / name, RunConfig.make("parity", method, seed, "quick", **changes), state=state, rows=4)


def test_runs_of_the_same_title_are_told_apart_by_the_settings_that_differ(tmp_path: Path) -> None:
    write(tmp_path, "a", lr=0.1, k=5.0)
    write(tmp_path, "b", lr=0.3, k=5.0)
    write(tmp_path, "c", seed=1, lr=0.3, k=5.0)
    write(tmp_path, "d", method="mollified", k=5.0)
    found, notes = variants(read(find_runs(tmp_path))[0])
    assert [(each.name, len(each.runs)) for each in found] == [
        ("plain, lr=0.1", 1),
        ("plain, lr=0.3", 2),
        ("mollified", 1),
    ]
    assert notes == []


def test_one_label_on_two_methods_is_told_apart(tmp_path: Path) -> None:
    write(tmp_path, "a", label="mine")
    write(tmp_path, "b", label="mine", method="mollified")
    assert [each.name for each in variants(read(find_runs(tmp_path))[0])[0]] == ["mine, plain", "mine, mollified"]


def test_the_same_seed_twice_counts_once_and_is_named(tmp_path: Path) -> None:
    write(tmp_path, "a", state="failed")
    write(tmp_path, "b")
    (variant,), notes = variants(read(find_runs(tmp_path))[0])
    assert [run.folder.path.name for run in variant.runs] == ["b"]
    assert len(notes) == 1
    assert f"{tmp_path / 'a'}: left out, because it is the same run as {tmp_path / 'b'} (plain, seed 0)" in notes[0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("metrics.jsonl", '{"update": 0}\nnothing\n'),
        ("metrics.jsonl", '{"epoch": 0}\n'),
        ("metrics.jsonl", "[1]\n"),
        ("result.json", "[]"),
        ("environment.json", "{"),
    ],
)
def test_a_run_with_a_file_that_can_not_be_read_is_damaged(tmp_path: Path, name: str, text: str) -> None:
    write(tmp_path, "bad")
    write(tmp_path, "good", seed=1)
    (tmp_path / "bad" / name).write_text(text)
    (bad, good), problems = read(find_runs(tmp_path))
    assert problems == []
    assert bad.damage.startswith(f"damaged: {name} (")
    assert good.damage == ""


def test_a_clock_that_can_not_be_read_costs_the_times_alone(tmp_path: Path) -> None:
    folder = write(tmp_path, "bad")
    (folder / "clock.jsonl").write_text('{"update": 0}\n')
    (run,), _ = read(find_runs(tmp_path))
    assert run.damage == ""
    assert run.seconds == {}
    assert run.lost_times.startswith("line 1: ")


def test_a_run_that_can_not_be_read_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    write(tmp_path, "bad")
    write(tmp_path, "good", seed=1)
    (tmp_path / "bad" / "config.json").write_text("{")
    runs, problems = read(find_runs(tmp_path))
    assert [run.folder.path.name for run in runs] == ["good"]
    assert len(problems) == 1
    assert str(tmp_path / "bad") in problems[0]


def test_a_row_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    folder = write(tmp_path, "a", state="running")
    before = read([RunFolder(folder)])[0][0].rows
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"update": 99999, "train_')
    assert read([RunFolder(folder)])[0][0].rows == before


def test_an_update_that_was_written_twice_counts_as_it_was_last(tmp_path: Path) -> None:
    folder = write(tmp_path, "a")
    row = json.loads((folder / "metrics.jsonl").read_text().splitlines()[1])
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(row | {"train_nll": 7.0}) + "\n")
    points = read([RunFolder(folder)])[0][0].points("train_nll")
    assert list(points) == sorted(points)
    assert points[row["update"]] == 7.0


def test_null_is_not_a_number_and_a_long_failure_is_cut_from_its_start(tmp_path: Path) -> None:
    assert all(math.isnan(number(value)) for value in (None, True, "1", math.inf, math.nan))
    folder = write(tmp_path, "a", state="failed")
    (folder / "failure.txt").write_bytes(b"\xff" * 100_000 + b"the end\n")
    failure = read([RunFolder(folder)])[0][0].failure
    assert failure.endswith("the end")
    assert len(failure) <= 8192


def test_trials_come_in_the_order_of_their_results(tmp_path: Path) -> None:
    for trial, final in enumerate((0.5, 0.1, 0.3)):
        config = replace(RunConfig.make("parity", "mollified", preset="quick", lr=0.1 + trial), trial=True)
        write_run(tmp_path / f"trial-{trial}", config, rows=2, final=final)
    found, _ = variants(read(find_runs(tmp_path))[0])
    assert [round(each.settings.lr, 1) for each in found] == [1.1, 2.1, 0.1]
