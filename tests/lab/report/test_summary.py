"""The table's numbers, against values worked out by hand or in another way."""

import itertools
import json
import math
import statistics
from pathlib import Path

import pytest

from mollifier_lab.report import TableRow, table
from mollifier_lab.report.summary import HEADINGS, estimate
from mollifier_lab.runs import find_runs
from mollifier_lab.settings import RunConfig
from tests.lab.report.conftest import Written
from tests.lab.report.folders import write_lines, write_run


def write_curve(root: Path, seed: int, values: list[float], method: str = "plain", **result: object) -> None:
    folder = write_run(root / f"{method}-{seed}", RunConfig.make("parity", method, seed), rows=2, final=values[-1])
    write_lines(folder / "metrics.jsonl", [{"update": 10 * i, "train_nll": value} for i, value in enumerate(values)])
    path = folder / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | result))


def test_an_interval_of_two_values_is_from_one_to_the_other() -> None:
    # a quarter of all resamples is each value alone: far more than the 2.5 % that are cut off
    found = estimate([0.2, 0.6])
    assert (found.mean, found.low, found.high, found.n) == (pytest.approx(0.4), 0.2, 0.6, 2)


def test_an_interval_of_five_values_is_that_of_all_their_resamples() -> None:
    # for values that lie symmetrically, BCa has nothing to correct: the percentiles of all 5^5 resamples
    means = sorted(statistics.fmean(each) for each in itertools.product([1, 2, 3, 4, 5], repeat=5))
    found = estimate([1.0, 2.0, 3.0, 4.0, 5.0])
    assert found.low == pytest.approx(means[round(0.025 * len(means))], abs=0.11)
    assert found.high == pytest.approx(means[round(0.975 * len(means))], abs=0.11)
    assert found == estimate([1.0, 2.0, 3.0, 4.0, 5.0])


def test_an_interval_where_the_bootstrap_has_none() -> None:
    assert estimate([0.3, 0.3, 0.3]).high == 0.3
    assert math.isnan(estimate([0.3]).low)
    assert estimate([math.nan, math.inf]).n == 0
    one_out = estimate([0.3] * 9 + [0.4])
    assert 0.3 <= one_out.low < one_out.mean < one_out.high <= 0.4
    assert estimate([0.3, math.nan, 0.5]).mean == pytest.approx(0.4)


def test_updates_to_target_are_a_median_in_which_never_counts(tmp_path: Path) -> None:
    # the target of parity is 0.2: reached at 10, 20, never
    for seed, values in enumerate([[0.7, 0.1, 0.1], [0.7, 0.3, 0.2], [0.7, 0.7, 0.6]]):
        write_curve(tmp_path, seed, values, seconds=10.0 * (seed + 1), updates_per_second=seed)
    write_curve(tmp_path, 0, [0.7, 0.5, 0.1], "mollified")
    write_curve(tmp_path, 1, [0.7, 0.5, 0.4], "mollified")
    plain, mollified = table(find_runs(tmp_path))
    assert (plain.reached, plain.updates_to_target, plain.to_target) == (2, 20, "20; 2/3 reached")
    assert (plain.seconds, plain.updates_per_second) == (20.0, 1.0)
    assert (mollified.updates_to_target, mollified.to_target) == (math.inf, "1/2 reached")
    assert plain.final.mean == pytest.approx(0.3)
    assert mollified.final.mean == pytest.approx(0.25)
    assert (plain.paper, mollified.paper) == (0.78, 0.02)


def test_failed_running_and_diverged_runs_are_counted_and_shown(study: Written) -> None:
    rows = {row.variant: row for row in table(find_runs(study.root))}
    assert tuple(rows.values()) == study.report.rows
    assert {name: row.seeds for name, row in rows.items()} == {
        "plain": "5 done",
        "plain, gain=4, lr=0.1": "5 done (1 diverged)",
        "residual + batch norm": "3 done, 1 failed, 1 unfinished",
        "mollified": "5 done",
        "mollified + residual": "4 done, 1 failed",
    }
    diverged = rows["plain, gain=4, lr=0.1"]
    assert (diverged.final.n, diverged.best.n) == (4, 5)
    assert dict(zip(HEADINGS, diverged.cells(), strict=True))["final"].endswith(" (n=4)")
    assert dict(zip(HEADINGS, diverged.cells(), strict=True))["best"].endswith(" (n=5)")
    assert rows["mollified"].to_target.endswith("; 5/5 reached")


def cells(row: TableRow) -> dict[str, str]:
    return dict(zip(HEADINGS, row.cells(), strict=True))


@pytest.mark.parametrize(
    ("task", "method", "value", "final", "paper"),
    [
        ("cifar10", "residual", 0.08125, "8.12 %", "8.22 %"),
        ("ptb", "mollified", 123.4567, "123.5", "123.6"),
        ("parity", "mollified", 0.020312, "0.0203", "0.0200"),
        ("mnist", "plain", 0.5, "50.00 %", "–"),
    ],
)
def test_a_single_run(tmp_path: Path, task: str, method: str, value: float, final: str, paper: str) -> None:
    write_run(tmp_path / "one", RunConfig.make(task, method), rows=2, final=value)
    shown = cells(table(find_runs(tmp_path))[0])
    assert (shown["final"], shown["paper"], shown["95 % interval"]) == (final, paper, "n=1: no interval")


def test_all_diverged_and_none_done(tmp_path: Path) -> None:
    write_run(tmp_path / "a", RunConfig.make("parity", "plain"), rows=4, state="diverged")
    write_run(tmp_path / "b", RunConfig.make("parity", "mollified"), rows=4, state="running")
    gone, running = map(cells, table(find_runs(tmp_path)))
    assert (gone["final"], gone["95 % interval"], gone["seeds"]) == ("diverged", "–", "1 done (1 diverged)")
    assert (running["final"], running["updates to target"], running["time"]) == ("–", "–", "–")


def test_what_is_left_out_is_a_warning(tmp_path: Path) -> None:
    write_run(tmp_path / "a", RunConfig.make("parity", "plain"), rows=2)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "config.json").write_text("{")
    with pytest.warns(UserWarning, match=r"config\.json: this is not the config of a run"):
        assert len(table(find_runs(tmp_path))) == 1
