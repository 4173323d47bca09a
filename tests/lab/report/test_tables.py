"""The CSV files."""

import csv
from pathlib import Path

import pytest

from mollifier_lab.report.tables import curves_csv, table_csv
from tests.lab.report.conftest import NASTY, Written


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_table_in_full_precision(study: Written) -> None:
    found = rows(study.root / "table.csv")
    assert [each["variant"] for each in found] == [row.variant for row in study.report.rows]
    for each, row in zip(found, study.report.rows, strict=True):
        assert float(each["final_mean"]) == row.final.mean
        assert (float(each["final_low"]), float(each["final_high"])) == (row.final.low, row.final.high)
        assert each["baseline"] == row.baseline
        found_n = row.difference.n if row.difference else 0
        assert int(each["difference_n"] or 0) == found_n
        if found_n > 1:
            assert row.difference is not None
            assert (float(each["difference"]), float(each["difference_low"])) == (
                row.difference.mean,
                row.difference.low,
            )
        assert each["paper"] == ("" if row.paper is None else str(row.paper))
        assert (int(each["done"]), int(each["diverged"]), int(each["failed"]), int(each["unfinished"])) == (
            row.done, row.diverged, row.failed, row.running
        )  # fmt: skip
    assert found[0]["updates_to_target"] == ""  # never reached
    assert float(found[3]["updates_to_target"]) > 0


def test_every_evaluation_of_every_run(study: Written) -> None:
    found = rows(study.root / "curves.csv")
    assert len(found) == 21 * 41 + 22 + 3 * 20
    first = next(
        each for each in found if each["method"] == "mollified" and each["seed"] == "2" and each["update"] == "50"
    )
    assert first["folder"] == "3-mollified/seed-2"
    assert float(first["seconds"]) == 50 / 140
    levels = [float(first[f"level_{block}"]) for block in range(1, 7)]
    assert levels == pytest.approx([0.95, 0.94, 0.925, 0.9, 0.85, 0.7])
    diverged = [each for each in found if each["variant"] == "plain, gain=4, lr=0.1" and each["seed"] == "1"]
    assert (diverged[0]["train_loss"], diverged[-1]["train_nll"]) == ("", "")
    assert diverged[0]["level_1"] == ""
    assert {each["status"] for each in found} == {"done", "failed", "started"}


def test_names_that_csv_must_quote(odd: Written) -> None:
    assert {each["variant"] for each in rows(odd.root / "out" / "table.csv")} == {
        NASTY,
        "_" + NASTY,
        "mollified + residual",
    }


def test_nothing_to_write() -> None:
    assert table_csv([]).strip() == ""
    assert curves_csv([], Path()).startswith("task,variant,method,seed")
