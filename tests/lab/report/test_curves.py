"""Means and bands, by hand."""

import math
from pathlib import Path
from typing import Any

import pytest

from mollifier_lab.report.curves import LEVEL, band, grid, levels, log_scale, logged, points, thin
from mollifier_lab.report.reading import Run, read, variants
from mollifier_lab.runs import RunFolder, find_runs
from mollifier_lab.settings import RunConfig
from tests.lab.report.conftest import Written
from tests.lab.report.folders import write_lines, write_run


def run_with(root: Path, seed: int, rows: list[dict[str, Any]], seconds: float = 1.0) -> Run:
    folder = write_run(root / f"seed-{seed}", RunConfig.make("parity", "mollified", seed), rows=2)
    write_lines(folder / "metrics.jsonl", rows)
    write_lines(folder / "clock.jsonl", [{"update": row["update"], "seconds": seconds * row["update"]} for row in rows])
    return read([RunFolder(folder)])[0][0]


def test_a_band_is_where_all_runs_have_a_finite_value(tmp_path: Path) -> None:
    first = run_with(tmp_path, 0, [{"update": 0, "x": 1.0}, {"update": 5, "x": 0.5}, {"update": 10, "x": 0.1}], 1.0)
    other = run_with(tmp_path, 1, [{"update": 0, "x": 3.0}, {"update": 5, "x": None}, {"update": 10, "x": 0.3}], 3.0)
    found = band([first, other], "x")
    assert (found.updates, found.low, found.high, found.seconds) == ([0, 10], [1.0, 0.1], [3.0, 0.3], [0.0, 20.0])
    assert found.mean == pytest.approx([2.0, 0.2])
    assert band([], "x").updates == []
    assert band([first], "y").updates == []


def test_levels_are_means_over_the_runs(tmp_path: Path) -> None:
    first = run_with(tmp_path, 0, [{"update": 0, "levels": [1.0, 1.0]}, {"update": 5, "levels": [0.5, 0.0]}])
    other = run_with(tmp_path, 1, [{"update": 0, "levels": [1.0, 1.0]}, {"update": 5, "levels": [0.0, 0.0]}])
    plain = run_with(tmp_path, 2, [{"update": 0, "x": 1.0}])
    assert levels([first, other]) == ([0, 5], [[1.0, 0.25], [1.0, 0.0]])
    assert levels([plain]) == levels([]) == levels([first, plain]) == ([], [])


def test_a_mean_curve_is_over_the_runs_that_are_done_and_did_not_diverge(study: Written) -> None:
    found = {each.name: each for each in variants(read(find_runs(study.root))[0])[0]}
    seeds = {name: [run.config.seed for run in each.averaged] for name, each in found.items()}
    assert seeds["plain, gain=4, lr=0.1"] == [0, 2, 3, 4]
    assert seeds["residual + batch norm"] == [0, 1, 2]
    diverged = found["plain, gain=4, lr=0.1"].runs[1].points("train_nll")
    assert [math.isnan(value) for value in diverged.values()] == [False] * 21 + [True]


def test_thinning_keeps_both_ends_and_the_order() -> None:
    kept = thin(5001)
    assert (len(kept), kept[0], kept[-1]) == (600, 0, 5000)
    assert kept == sorted(set(kept))
    assert thin(0) == []


def test_on_a_log_scale_the_mean_is_geometric(tmp_path: Path) -> None:
    first = run_with(tmp_path, 0, [{"update": 0, "x": 1.0}, {"update": 5, "x": 0.01}])
    other = run_with(tmp_path, 1, [{"update": 0, "x": 4.0}, {"update": 5, "x": 0.0001}])
    assert band([first, other], "x", log=True).mean == pytest.approx([2.0, 0.001])
    assert band([first, other], "x").mean == pytest.approx([2.5, 0.00505])


def test_every_column_that_a_run_wrote_can_be_drawn(study: Written) -> None:
    found = variants(read(find_runs(study.root))[0])[0]
    assert logged(found) == ("train_loss", "train_nll", "lr", "loss_average", LEVEL)
    assert log_scale(found, "train_nll")  # from 0.7 to 0.02
    assert not log_scale(found, LEVEL)
    assert not log_scale([found[0]], "train_nll")  # plain stays where it is
    annealed = next(each for each in found if each.method == "mollified").runs[0]
    assert points(annealed, LEVEL)[0] == 1.0
    assert points(found[0].runs[0], LEVEL) == {}


def test_the_runs_of_a_variant_are_drawn_at_the_same_updates(study: Written) -> None:
    found = next(each for each in variants(read(find_runs(study.root))[0])[0] if each.method == "residual-bn")
    assert len({len(run.rows) for run in found.runs}) > 1  # one is running still
    assert grid(found, 5) == [0, 500, 1000, 1500, 2000]
