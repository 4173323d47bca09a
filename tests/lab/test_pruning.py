"""Optuna's pruners in a search: bad trials end early, the best is one that came to its end, and off is as it was."""

from __future__ import annotations

import csv
import json
import time
from pathlib import Path
from typing import Any

import pytest

from mollifier_lab.cli import main
from mollifier_lab.errors import LabError
from mollifier_lab.runs import RunFolder
from mollifier_lab.search import Best, search, search_command
from tests.lab.processes import fork

TINY = {"bits": 6, "width": 8, "depth": 2, "samples": 64, "batch": 16, "updates": 40, "evaluate_every": 10}
TRIALS = 9


def pruned(out: Path, **more: Any) -> Best:
    given = {"changes": TINY, "threads": 1, "show": False, "pruner": "median", **more}
    return search("parity", "plain", TRIALS, out, preset="quick", **given)


def ends(out: Path) -> list[tuple[str, float]]:
    with (out / "trials.csv").open() as file:
        return [(row["outcome"], float(row["value"])) for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole")
    pruned(out)
    return out


def test_bad_trials_end_early_and_the_best_is_one_that_ended(whole: Path) -> None:
    found = ends(whole)
    assert [outcome for outcome, _ in found[:5]] == ["done"] * 5  # the pruner has seen nothing before
    assert "pruned" in [outcome for outcome, _ in found[5:]]
    for number, (outcome, _) in enumerate(found):
        result = RunFolder(whole / f"trial-{number:04d}").json("result.json")
        assert result.get("pruned", False) == (outcome == "pruned")
        assert (result["updates"] < 40) == (outcome == "pruned")
        assert result["updates"] >= 10
    told = json.loads((whole / "search.json").read_text())
    assert told["pruner"] == "median"
    best = told["best"]
    assert found[best["trial"]] == ("done", min(value for outcome, value in found if outcome == "done"))
    assert best["outcomes"]["pruned"] == [outcome for outcome, _ in found].count("pruned")


def test_killed_and_run_again_the_same_trials_are_pruned(whole: Path, tmp_path: Path) -> None:
    """Killed in a trial of which Optuna has been told something already."""
    child, rows = fork(pruned, tmp_path), tmp_path / "trial-0006" / "metrics.jsonl"
    while not (rows.exists() and rows.read_bytes().count(b"\n") > 1):
        assert child.process.is_alive(), "it ended before it was killed"
        time.sleep(0.001)
    child.kill()
    assert "left" in {row["outcome"] for row in csv.DictReader((tmp_path / "trials.csv").read_text().splitlines())}
    pruned(tmp_path)
    for name in ("trials.csv", "best.json"):
        assert (tmp_path / name).read_bytes() == (whole / name).read_bytes()


def test_another_pruner_is_another_search(whole: Path) -> None:
    with pytest.raises(LabError, match="pruner is 'median' there, None is requested"):
        pruned(whole, pruner="none")
    unknown: Any = "mean"
    with pytest.raises(LabError, match="there is no pruner 'mean'; expected one of: none, median, halving"):
        pruned(whole, pruner=unknown)


def test_halving_prunes_too(tmp_path: Path) -> None:
    pruned(tmp_path, pruner="halving")
    assert {"done", "pruned"} == {outcome for outcome, _ in ends(tmp_path)}


def test_the_command_says_it_and_a_comparison_is_never_cut_short(capsys: pytest.CaptureFixture[str]) -> None:
    assert search_command("parity", "plain", 3, "out", pruner="median").endswith("--pruner median")
    assert main(["compare", "parity", "--pruner", "median"]) == 2
    assert "--pruner median: expected it together with --search N" in capsys.readouterr().err
