"""What the table, the page and the CSV say of runs that are damaged, of another identity, or that failed before they began."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from mollifier_lab import seal
from mollifier_lab.cli import main
from mollifier_lab.data.sources import source
from mollifier_lab.report import report
from mollifier_lab.runs import RunFolder
from mollifier_lab.settings import RunConfig
from tests.lab.report.folders import write_run

FACTS = {
    "precision": "32-true", "ranks": 1, "device": "cpu", "kernels": "native", "data": {}, "other_data": [], "threads": 1, "torch": "2.9",
    "mollifier": "1", "deterministic": False,
}  # fmt: skip
NAMES = ("config.json", "environment.json", "metrics.jsonl", "clock.jsonl", "result.json")


def write(root: Path, seed: int, method: str = "mollified", sealed: bool = False, **facts: Any) -> Path:
    folder = write_run(root / method / f"seed-{seed}", RunConfig.make("parity", method, seed, "quick"), rows=10)
    if facts:
        path = folder / "environment.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"identity": FACTS | facts}))
    if sealed:
        path = folder / "result.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"sealed": True}))
        seal.write(folder, seal.sums(folder, NAMES))
    return folder


@pytest.mark.parametrize("sealed", [True, False])
def test_a_truncated_record_of_a_finished_run_changes_no_number(sealed: bool, tmp_path: Path) -> None:
    for seed in range(3):
        write(tmp_path, seed, sealed=sealed)
    (whole,) = report(tmp_path).rows
    assert (whole.seeds, whole.to_target.partition("; ")[2]) == ("3 done", "3/3 reached")
    path = tmp_path / "mollified" / "seed-1" / "metrics.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:3]))
    made = report(tmp_path)
    (row,) = made.rows
    assert (row.seeds, row.to_target.partition("; ")[2]) == ("2 done, 1 damaged", "2/2 reached")
    (note,) = made.notes
    assert note.startswith(f"{path.parent}: damaged: metrics.jsonl (")
    assert note.endswith("it is not counted")
    assert "damaged: metrics.jsonl (" in made.page.read_text()
    assert "<td>damaged</td>" in made.page.read_text()
    found = list(csv.DictReader((tmp_path / "curves.csv").read_text().splitlines()))
    assert {line["status"] for line in found if line["seed"] == "1"} == {"damaged"}


@pytest.mark.parametrize("sealed", [True, False])
def test_a_result_without_its_numbers_is_no_divergence(sealed: bool, tmp_path: Path) -> None:
    write(tmp_path, 0, sealed=sealed)
    path = write(tmp_path, 1, sealed=sealed) / "result.json"
    found = json.loads(path.read_text())
    del found["final"]
    path.write_text(json.dumps(found))
    (row,) = report(tmp_path).rows
    assert (row.seeds, row.diverged) == ("1 done, 1 damaged", 0)


def test_a_changed_digit_is_seen_where_there_is_a_seal(tmp_path: Path) -> None:
    path = write(tmp_path, 0, sealed=True) / "result.json"
    found = json.loads(path.read_text())
    found["final"]["train_nll"] /= 2
    path.write_text(json.dumps(found))
    made = report(tmp_path)
    assert made.rows[0].seeds == "0 done, 1 damaged"
    assert "result.json (not what the run wrote)" in made.notes[0]


def test_a_changed_config_is_not_read_as_another_run(tmp_path: Path) -> None:
    write(tmp_path, 0, sealed=True)
    path = write(tmp_path, 1, sealed=True) / "config.json"
    path.write_text(path.read_text().replace('"seed": 1', '"seed": 7'))
    made = report(tmp_path)
    assert [row.seeds for row in made.rows] == ["1 done"]
    assert "damaged: config.json" in made.notes[0]


def test_a_damaged_clock_costs_the_times_alone(tmp_path: Path) -> None:
    (write(tmp_path, 0, sealed=True) / "clock.jsonl").write_text('{"update": 0, "seconds": 7}\n')
    made = report(tmp_path)
    assert made.rows[0].seeds == "1 done"
    assert "damaged: clock.jsonl (" in made.notes[0]
    assert {line["seconds"] for line in csv.DictReader((tmp_path / "curves.csv").read_text().splitlines())} == {""}


def test_runs_of_the_version_before_are_counted_without_a_mark(tmp_path: Path) -> None:
    write(tmp_path, 0)
    write(tmp_path, 1, sealed=True, threads=1)
    made = report(tmp_path)
    assert [(row.variant, row.seeds) for row in made.rows] == [("mollified", "2 done")]
    assert made.notes == ()


@pytest.mark.parametrize(
    ("facts", "names"),
    [
        ({"precision": "64-true"}, ["mollified, precision=32-true", "mollified, precision=64-true"]),
        ({"kernels": "eager"}, ["mollified, kernels=eager", "mollified, kernels=native"]),
        ({"ranks": 2}, ["mollified, ranks=1", "mollified, ranks=2"]),
    ],
)
def test_runs_of_another_identity_are_not_averaged(facts: dict[str, Any], names: list[str], tmp_path: Path) -> None:
    write(tmp_path, 0, threads=1)
    write(tmp_path, 1, **facts)
    made = report(tmp_path)
    assert sorted(row.variant for row in made.rows) == names
    assert [row.done for row in made.rows] == [1, 1]


def test_a_variant_of_another_identity_is_marked_beside_the_others(tmp_path: Path) -> None:
    write(tmp_path, 0, "plain", kernels=None)
    write(tmp_path, 0, precision="64-true")
    assert [row.variant for row in report(tmp_path).rows] == [
        "plain, precision=32-true",
        "mollified, precision=64-true",
    ]


def test_other_data_are_named_for_ever(tmp_path: Path) -> None:
    write(tmp_path, 0, data={"a.txt": "sha256:1"}, other_data=["a.txt"])
    made = report(tmp_path)
    assert made.rows[0].variant == "mollified, other data"
    assert made.rows[0].paper is None
    assert "mollified, other data" in made.page.read_text()


def test_a_mean_over_other_threads_is_noted(tmp_path: Path) -> None:
    write(tmp_path, 0, threads=1)
    write(tmp_path, 1, threads=2)
    made = report(tmp_path)
    assert [(row.variant, row.seeds) for row in made.rows] == [("mollified", "2 done")]
    assert made.notes == ("mollified: a mean over runs that differ in threads (1, 2)",)


def test_a_resumption_under_other_conditions_is_noted(tmp_path: Path) -> None:
    folder = write(tmp_path, 0, threads=1)
    lines = [{"differs": []}, {"differs": ["threads: 1 before, 2 now"]}]
    (folder / "resumptions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (note,) = report(tmp_path).notes
    assert note == f"{folder}: resumed under other conditions (threads: 1 before, 2 now)"


def test_runs_that_fail_while_being_built_are_in_the_table_the_page_and_the_csv(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, study = tmp_path / "data", tmp_path / "study"
    data.mkdir()
    for file in source("mnist").files:
        (data / file.name).write_text("no idx file")
    line = ["compare", "mnist", "--methods", "plain", "--seeds", "2", "--data", str(data), "--allow-other-data"]
    assert main([*line, "--quiet", "--out", str(study)]) == 1
    told = capsys.readouterr()
    assert "0 done, 2 failed" in told.out
    assert f"note: {study / 'plain' / 'seed-0'}: failed: DataError: {data}" in told.err
    (row,) = report(study).rows
    assert row.failed == 2
    assert "train-images-idx3-ubyte.gz" in row.reasons[0]
    assert "0 runs done, 2 failed" in (study / "report.html").read_text()
    assert "damaged or cut short" in (study / "report.html").read_text()
    assert "damaged or cut short" in (study / "table.csv").read_text()
    found = list(csv.DictReader((study / "curves.csv").read_text().splitlines()))
    assert [(each["seed"], each["status"]) for each in found] == [("0", "failed"), ("1", "failed")]


def test_what_failed_while_being_built_can_be_asked_for_with_other_settings(tmp_path: Path) -> None:
    from mollifier_lab.job import Job, JobRunner

    tiny = {"bits": 4, "width": 4, "depth": 2, "samples": 8, "updates": 4, "evaluate_every": 2}
    task = JobRunner(data=None, threads=1, show=False, token="t", owned=False)
    bad = RunConfig.make("parity", "mollified", preset="quick", **tiny | {"stop_at": 5.0})
    assert task(Job(bad, tmp_path / "seed-0")).status == "failed"
    assert RunFolder(tmp_path / "seed-0").config() == bad
    good = RunConfig.make("parity", "mollified", preset="quick", **tiny)
    assert task(Job(good, tmp_path / "seed-0")).status == "done"
    assert RunFolder(tmp_path / "seed-0").config() == good
    assert not (tmp_path / "seed-0" / "wanted.json").exists()
