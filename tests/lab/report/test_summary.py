"""The table's numbers, against values worked out by hand or in another way."""

import json
import math
from pathlib import Path

import pytest

from mollifier_lab.report import TableRow, table
from mollifier_lab.report.summary import HEADINGS
from mollifier_lab.runs import find_runs
from mollifier_lab.settings import RunConfig
from mollifier_lab.tuned import Tuned
from tests.lab.report.conftest import Written
from tests.lab.report.folders import write_lines, write_run


def write_curve(root: Path, seed: int, values: list[float], method: str = "plain", **result: object) -> None:
    folder = write_run(root / f"{method}-{seed}", RunConfig.make("parity", method, seed), rows=2, final=values[-1])
    write_lines(folder / "metrics.jsonl", [{"update": 10 * i, "train_nll": value} for i, value in enumerate(values)])
    path = folder / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"updates": 10 * (len(values) - 1)} | result))


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
    assert (diverged.final.n, diverged.best.n) == (5, 5)
    assert cells(diverged)["final"].endswith(" (1 of 5 diverged, as 0.693)")
    assert rows["mollified"].to_target.endswith("; 5/5 reached")


def cells(row: TableRow) -> dict[str, str]:
    return dict(zip(HEADINGS, row.cells(), strict=True))


@pytest.mark.parametrize(
    ("task", "method", "value", "final", "paper"),
    [
        ("cifar10", "residual", 0.08125, "8.12 %", "8.22 % (early-stopped: compare with best)"),
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


def test_a_diverged_run_counts_as_chance(tmp_path: Path) -> None:
    for seed in range(3):
        state = "diverged" if seed == 1 else "done"
        write_run(tmp_path / f"plain/{seed}", RunConfig.make("parity", "plain", seed), rows=4, final=0.1, state=state)
    row = table(find_runs(tmp_path))[0]
    assert row.final.n == 3
    assert row.final.mean == pytest.approx((0.1 + math.log(2) + 0.1) / 3)
    assert row.final.high > 0.5  # nothing is certain with such a run among three
    assert (row.diverged, cells(row)["seeds"]) == (1, "3 done (1 diverged)")


def test_differences_to_the_best_method_that_anneals_nothing(tmp_path: Path) -> None:
    values = {
        "plain": [0.5, 0.6, 0.7], "residual": [0.2, 0.3, 0.4], "weight-noise": [0.0, 0.0, 0.0], "mollified": [0.15, 0.25, 0.35, 0.45],
    }  # fmt: skip
    for method, finals in values.items():
        for seed, final in enumerate(finals):
            write_run(tmp_path / method / f"{seed}", RunConfig.make("parity", method, seed), rows=2, final=final)
    rows = {row.method: row for row in table(find_runs(tmp_path))}
    assert {row.baseline for row in rows.values()} == {"residual"}
    assert rows["residual"].difference is None
    assert cells(rows["residual"])["difference to baseline"] == "the baseline"
    found = rows["mollified"].difference
    assert found is not None
    assert (found.n, found.mean, found.low, found.high) == (3, *[pytest.approx(-0.05)] * 3)
    assert cells(rows["mollified"])["difference to baseline"].startswith("-0.0500 (-0.0500 – -0.0500")
    assert rows["plain"].difference is not None
    assert rows["plain"].difference.mean == pytest.approx(0.3)


def test_studies_of_one_task_have_each_their_own_baseline(tmp_path: Path) -> None:
    for study, samples, shift in (("small", 1000, 0.0), ("large", 9000, 0.3)):
        for method, final in (("plain", 0.6), ("mollified", 0.2)):
            config = RunConfig.make("parity", method, samples=samples)
            write_run(tmp_path / study / method / "seed-0", config, rows=2, final=final + shift)
    found = {row.variant: row for row in table(find_runs(tmp_path))}
    for samples in (1000, 9000):
        row = found[f"mollified, samples={samples}"]
        assert row.baseline == f"plain, samples={samples}"
        assert row.difference is not None
        assert row.difference.mean == pytest.approx(-0.4)


@pytest.mark.parametrize(
    ("task", "preset", "method", "changes", "paper"),
    [
        ("ptb", "paper", "plain", {}, "128.4"),
        ("ptb", "published", "plain", {}, "119.4"),
        ("ptb", "published", "mollified", {}, "115.7"),
        ("ptb", "quick", "plain", {}, "full size only"),
        ("ptb", "paper", "plain", {"width": 20}, "full size only"),
        ("ptb", "paper", "gates", {}, "–"),
        ("parity", "quick", "mollified", {}, "full size only"),
        ("parity", "paper", "mollified", {"updates": 100}, "full size only"),
        ("parity", "paper", "mollified", {"updates": 50_000, "lr": 0.5, "samples": 1000}, "0.0200"),
        ("pentomino", "trial", "residual", {}, "full size only"),
        ("pentomino", "paper", "residual", {"lr": 0.25}, "30.50 %"),
        ("cifar10", "paper", "residual", {}, "8.22 % (early-stopped: compare with best)"),
        ("characters", "paper", "plain", {}, "0.148 (training loss, other vectors)"),
    ],
)  # fmt: skip
def test_the_papers_number_is_that_of_the_size_that_was_run(
    tmp_path: Path, task: str, preset: str, method: str, changes: dict[str, object], paper: str
) -> None:
    write_run(tmp_path / "one", RunConfig.make(task, method, preset=preset, **changes), rows=2, final=0.5)
    assert cells(table(find_runs(tmp_path))[0])["paper"] == paper


def test_what_was_tuned_stands_beside_the_number(tmp_path: Path) -> None:
    write_run(tmp_path / "plain" / "seed-0", RunConfig.make("parity", "plain"), rows=2)
    write_run(tmp_path / "mollified" / "seed-0", RunConfig.make("parity", "mollified"), rows=2)
    Tuned("plain", 8, {"lr": (0.1, 1.0, "log"), "gain": (1.0, 4.0, "linear")}, {"lr": 0.3, "gain": 2.0}, "train_nll", 0.1).write(tmp_path / "plain")  # fmt: skip
    plain, mollified = map(cells, table(find_runs(tmp_path)))
    assert (plain["tuned"], mollified["tuned"]) == ("lr, gain on 8 trials", "–")
    (tmp_path / "plain" / "tuned.json").write_text("{")
    with pytest.warns(UserWarning, match=r"tuned\.json: not understood"):
        assert table(find_runs(tmp_path))[0].tuned == ""


def test_what_is_left_out_is_a_warning(tmp_path: Path) -> None:
    write_run(tmp_path / "a", RunConfig.make("parity", "plain"), rows=2)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "config.json").write_text("{")
    with pytest.warns(UserWarning, match=r"config\.json: this is not the config of a run"):
        assert len(table(find_runs(tmp_path))) == 1
