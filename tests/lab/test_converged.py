"""A run that has converged may end before its time."""

import json
from pathlib import Path

from mollifier_lab.engine import train
from mollifier_lab.settings import RunConfig

TINY = {
    "bits": 4,
    "width": 16,
    "depth": 2,
    "samples": 16,
    "updates": 3000,
    "evaluate_every": 20,
    "lr": 0.5,
    "gain": 2.0,
    "k": 1.0,
}


def run(method: str, out: Path, **changes: object) -> dict[str, object]:
    return train(RunConfig.make("parity", method, preset="quick", **TINY, **changes), out, show=False)


def test_it_ends_at_the_first_evaluation_at_or_below_the_value(tmp_path):
    result = run("plain", tmp_path / "run", converged=0.1)
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    below = [row["update"] for row in rows if row["train_nll"] <= 0.1]
    assert result["converged"] is True
    assert result["updates"] == rows[-1]["update"] == below[0] < 3000


def test_not_before_annealing_is_over(tmp_path):
    result = run("mollified", tmp_path / "run", converged=100.0)
    assert result["converged"] is True
    assert result["annealing"]["finished"] is True
    assert result["annealing"]["finished_at"] <= result["updates"] < result["annealing"]["finished_at"] + 20


def test_by_default_a_run_takes_its_whole_time(tmp_path):
    result = run("plain", tmp_path / "run")
    assert result["converged"] is False
    assert result["updates"] == 3000
