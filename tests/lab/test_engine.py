"""One run: what it writes, what it measures, and what it refuses."""

import io
import json
import math
import re
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from mollifier_lab import engine, progress, tasks
from mollifier_lab.commands.output import result_line
from mollifier_lab.errors import LabError
from mollifier_lab.runs import RunFolder
from mollifier_lab.settings import RunConfig

HERE = engine.Hardware(accelerator="cpu", threads=1, tensorboard=False)
TINY = {
    "bits": 6,
    "width": 8,
    "depth": 3,
    "samples": 32,
    "batch": 8,
    "updates": 60,
    "evaluate_every": 10,
    "k": 5.0,
    "lr": 0.5,
}


def make(method: str = "mollified", **changes: object) -> RunConfig:
    return RunConfig.make("parity", method, preset="quick", **TINY | changes)


def run(config: RunConfig, out: Path, **options: object) -> RunFolder:
    engine.train(config, out, **{"hardware": HERE, "show": False} | options)  # type: ignore[arg-type]
    return RunFolder(out)


def test_everything_that_is_promised_is_written(tmp_path: Path) -> None:
    config = make()
    folder = run(config, tmp_path, hardware=engine.Hardware(accelerator="cpu"))
    assert folder.config() == config
    assert folder.status == "done"
    assert [row["update"] for row in folder.rows()] == list(range(0, 61, 10))
    assert [row["update"] for row in folder.rows("clock.jsonl")] == list(range(0, 61, 10))
    assert {"update", "epoch", "train_loss", "lr", "levels", "loss_average", "train_nll", "train_error"} == set(
        folder.rows()[-1]
    )
    assert list((tmp_path / "tensorboard").iterdir())
    found = folder.json("environment.json")
    assert found["torch"] == torch.__version__
    assert found["machine"]["ranks"] == 1
    result = folder.json("result.json")
    assert result["updates"] == 60
    assert not result["diverged"]


def test_the_same_config_gives_the_same_bytes_and_another_seed_does_not(tmp_path: Path) -> None:
    one, two, other = (
        run(make(seed=seed) if seed else make(), tmp_path / name) for name, seed in (("1", 0), ("2", 0), ("3", 1))
    )
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (one.path / name).read_bytes() == (two.path / name).read_bytes()
        assert (one.path / name).read_bytes() != (other.path / name).read_bytes()


def test_evaluations_and_checkpoints_leave_no_trace_in_the_training(tmp_path: Path) -> None:
    often = run(make(evaluate_every=1, save_every=1), tmp_path / "often")
    seldom = run(make(evaluate_every=60, save_every=60), tmp_path / "seldom")
    assert (often.path / "model.safetensors").read_bytes() == (seldom.path / "model.safetensors").read_bytes()


def test_the_result_is_that_of_the_plain_network_with_the_saved_weights(tmp_path: Path) -> None:
    config = make(k=1000.0)  # far from plain at the end
    result = run(config, tmp_path).json("result.json")
    assert not result["annealing"]["finished"]
    assert result["annealing"]["finished_at"] is None
    assert max(result["annealing"]["levels"]) > 0.9
    task = tasks.make(config)
    model = task.model()
    model.load_state_dict(load_file(tmp_path / "model.safetensors"))
    found = task.evaluate(model.eval(), "train", torch.device("cpu"))
    assert result["final"]["train_nll"] == found["nll"]


def test_the_end_of_annealing_is_noted(tmp_path: Path) -> None:
    result = run(make(k=0.05), tmp_path).json("result.json")
    found = result["annealing"]
    assert found["finished"]
    assert found["levels"] == [0.0, 0.0, 0.0]
    rows = RunFolder(tmp_path).rows()
    assert all(any(row["levels"]) for row in rows if row["update"] < found["finished_at"])
    assert not any(any(row["levels"]) for row in rows if row["update"] >= found["finished_at"])


@pytest.mark.parametrize("method", ["plain", "mollified", "weight-noise"])
def test_the_best_weights_are_those_of_the_best_row(tmp_path: Path, method: str) -> None:
    config = make(method, lr=2.0, k=200.0)  # it jumps about, so that the best is not the last
    folder = run(config, tmp_path)
    best, rows = folder.json("result.json")["best"], folder.rows()[1:]
    row = min(rows, key=lambda each: each["train_nll"])
    assert best["update"] == row["update"]
    assert best["train_nll"] == pytest.approx(row["train_nll"], rel=1e-6)
    assert best["train_error"] == row["train_error"]
    assert "test_error" in best


def test_divergence_ends_the_run_and_is_told(tmp_path: Path) -> None:
    folder = run(make("plain", lr=1e30, activation="relu"), tmp_path)
    result = folder.json("result.json")
    assert result["diverged"]
    assert result["updates"] < 60
    assert folder.rows()[-1]["train_loss"] is None
    assert "NaN" not in (tmp_path / "metrics.jsonl").read_text() + (tmp_path / "result.json").read_text()


def test_a_finite_but_absurd_loss_is_divergence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = make("plain", lr=1e3, activation="relu", depth=2, momentum=0.0, optimizer="sgd")
    folder = run(config, tmp_path, show=True)
    result = folder.json("result.json")
    assert result["updates"] == folder.rows()[-1]["update"] == 10
    assert math.isfinite(folder.rows()[-1]["train_loss"])
    assert folder.rows()[-1]["train_loss"] > 1e20
    assert result["diverged"]
    assert re.fullmatch(
        r"training loss .*e\+\d+ at update 10, more than 1e\+06 times the first \(0\.\d+\)", result["divergence"]
    )
    assert f"diverged: {result['divergence']}" in "".join(capsys.readouterr())
    assert result["divergence"] in result_line("parity", result, tmp_path)


def test_a_loss_that_is_merely_bad_is_no_divergence(tmp_path: Path) -> None:
    result = run(make("plain", lr=1e2, momentum=0.0, optimizer="sgd"), tmp_path).json("result.json")
    assert result["updates"] == 60
    assert not result["diverged"]
    assert result["divergence"] is None


def test_a_folder_with_a_run_is_not_touched(tmp_path: Path) -> None:
    folder = run(make(), tmp_path)
    before = (tmp_path / "metrics.jsonl").stat().st_mtime_ns
    with pytest.raises(LabError, match="contains a run already"):
        run(make("plain"), tmp_path)
    assert engine.resume(tmp_path) == folder.json("result.json")
    assert (tmp_path / "metrics.jsonl").stat().st_mtime_ns == before


def test_what_an_observer_sees(tmp_path: Path) -> None:
    seen: list[tuple[int, float, list[float] | None]] = []
    run(
        make(updates=3, evaluate_every=1),
        tmp_path,
        observe=lambda update, loss, levels: seen.append((update, float(loss), levels)),
    )
    rows = RunFolder(tmp_path).rows()[1:]
    assert [update for update, _, _ in seen] == [1, 2, 3]
    assert [loss for _, loss, _ in seen] == pytest.approx([row["train_loss"] for row in rows])
    assert [levels for _, _, levels in seen] == [pytest.approx(row["levels"], rel=1e-3) for row in rows]
    assert max(len(str(level)) for row in rows for level in row["levels"]) <= len("1.234e-05")


@pytest.mark.parametrize("precision", ["64-true", "bf16-mixed"])
def test_other_precisions(tmp_path: Path, precision: str) -> None:
    hardware = engine.Hardware(accelerator="cpu", precision=precision, tensorboard=False)  # type: ignore[arg-type]
    result = run(make(), tmp_path, hardware=hardware).json("result.json")
    assert not result["diverged"]
    expected = torch.float64 if precision == "64-true" else torch.float32
    assert {weight.dtype for weight in load_file(tmp_path / "model.safetensors").values()} == {expected}


def test_hardware_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="accelerator='tpux'"):
        run(make(), tmp_path, hardware=engine.Hardware(accelerator="tpux"))
    assert RunFolder(tmp_path).status == "empty"


def test_lines_where_there_is_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(make(updates=20), tmp_path, show=True)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[-1].startswith("parity, mollified, seed 0: update 20/20  train_loss 0.")
    assert "levels" in lines[-1]


def test_the_bar_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = io.StringIO()
    monkeypatch.setattr("rich.console.Console", lambda **_: Console(file=drawn, force_terminal=True, width=160))
    monkeypatch.setattr(progress, "REFRESH", 0.0)
    run(make(updates=20), tmp_path, show=True)
    text = drawn.getvalue()
    for shown in ("parity, mollified, seed 0", "20/20", "loss 0.", "train_nll 0.", "levels ", "/s"):
        assert shown in text


def test_rows_are_json_of_today(tmp_path: Path) -> None:
    run(make("plain"), tmp_path)
    for line in (tmp_path / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        assert "levels" not in row
        assert row["epoch"] == row["update"] / 4
