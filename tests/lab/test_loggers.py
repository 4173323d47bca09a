"""MLflow and W&B: imported only when asked, named when they are missing, told every evaluation."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mollifier_lab import RunConfig, engine
from mollifier_lab.cli import main
from mollifier_lab.hardware import Hardware

CONFIG = RunConfig.make("parity", "mollified", bits=4, width=4, depth=2, samples=8, batch=8, updates=4, evaluate_every=2)  # fmt: skip
LINE = "train parity --bits 4 --width 4 --depth 1 --samples 8 --updates 2 --quiet --no-tensorboard --out"


class Client:
    """As much of MLflow's client as is used."""

    def __init__(self, tracking_uri: str) -> None:
        self.uri, self.params, self.metrics, self.ended = tracking_uri, {}, [], 0
        clients.append(self)

    def get_experiment_by_name(self, name: str) -> None:
        self.experiment = name

    def create_experiment(self, name: str) -> str:
        return "7"

    def create_run(self, experiment: str, run_name: str) -> Any:
        return SimpleNamespace(info=SimpleNamespace(run_id=f"{experiment}-{run_name}"))

    def update_run(self, run: str, status: str) -> None:
        self.again = (run, status)

    def log_param(self, run: str, key: str, value: object) -> None:
        self.params[key] = value

    def log_metric(self, run: str, key: str, value: float, step: int) -> None:
        self.metrics.append((key, value, step))

    def set_terminated(self, run: str) -> None:
        self.ended += 1


clients: list[Client] = []


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_what_is_not_installed_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    assert main([*LINE.split(), str(tmp_path / "run"), "--logger", name]) == 2
    assert capsys.readouterr().err == f"error: --logger {name}: {name} is not installed; pip install {name}\n"
    assert main([*LINE.split(), str(tmp_path / "run"), "--logger", "board"]) == 2
    assert "--logger board: expected mlflow or wandb (TensorBoard is on anyway)" in capsys.readouterr().err
    assert not (tmp_path / "run" / "config.json").exists()


def test_a_package_that_does_not_work_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "wandb.py").write_text("from json import nothing_of_that_name")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    assert main([*LINE.split(), str(tmp_path / "run"), "--logger", "wandb"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: --logger wandb: wandb does not work here (ImportError: cannot import name")
    assert error.count("\n") == 1


def test_mlflow_gets_every_evaluation_and_goes_on_with_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=Client, __spec__="found"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    clients.clear()

    def stop(update: int, *_: object) -> None:
        if update == 3:
            raise KeyboardInterrupt

    hardware = Hardware(threads=1, tensorboard=False, logger="mlflow")
    with pytest.raises(KeyboardInterrupt):
        engine.train(CONFIG, tmp_path / "run", hardware=hardware, show=False, observe=stop)
    engine.resume(tmp_path / "run", hardware=hardware, show=False)
    first, second = clients
    assert first.uri == (tmp_path / "run" / "mlflow").as_uri()
    assert first.experiment == "mollifier parity"
    assert (first.params["method"], first.params["bits"]) == ("mollified", 4)
    assert second.again == ("7-mollified, seed 0", "RUNNING")
    assert second.params == {}
    assert first.ended == second.ended == 1
    assert {step for key, _, step in first.metrics if key == "train_nll"} == {0, 2}
    assert {step for key, _, step in second.metrics if key == "level_2"} == {4}


def test_wandb_is_offline_and_keeps_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    rows: list[tuple[int, dict[str, float]]] = []

    def init(**keywords: Any) -> Any:
        asked.append(keywords)
        return SimpleNamespace(log=lambda row, step: rows.append((step, row)), finish=lambda: rows.append((-1, {})))

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init, Settings=dict, __spec__="found"))
    monkeypatch.delenv("WANDB_MODE", raising=False)
    hardware = Hardware(threads=1, tensorboard=False, logger="wandb")
    engine.train(CONFIG, tmp_path / "run", hardware=hardware, show=False)
    assert [step for step, _ in rows] == [0, 2, 4, -1]
    assert set(rows[1][1]) >= {"train_loss", "train_nll", "lr", "level_1", "level_2"}
    assert (asked[0]["mode"], asked[0]["dir"], asked[0]["config"]["k"]) == ("offline", str(tmp_path / "run"), 100.0)


def test_neither_is_imported_unasked(tmp_path: Path) -> None:
    engine.train(CONFIG, tmp_path / "run", hardware=Hardware(threads=1, tensorboard=False), show=False)
    assert not {"mlflow", "wandb"} & set(sys.modules)


STOPPED = """
import sys
from pathlib import Path
from mollifier_lab import RunConfig, engine
from mollifier_lab.hardware import Hardware

def stop(update, *_):
    if update == 3:
        raise SystemExit

config = RunConfig.make("parity", "mollified", bits=4, width=4, depth=2, samples=8, batch=8, updates=4, evaluate_every=2)
engine.train(config, Path(sys.argv[1]), hardware=Hardware(threads=1, tensorboard=False, logger=sys.argv[2]), show=False, observe=stop)
"""
READ = """
import sys, warnings
warnings.simplefilter("ignore")
import mlflow
client = mlflow.MlflowClient(tracking_uri=sys.argv[1])
experiments = [each for each in client.search_experiments() if each.name == "mollifier parity"]
runs = client.search_runs([each.experiment_id for each in experiments])
for run in runs:
    history = client.get_metric_history(run.info.run_id, "train_nll")
    print(run.info.run_name, run.info.status, run.data.params["bits"], sorted(each.step for each in history), sep="; ")
"""


@pytest.fixture
def stopped_and_resumed(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that was told of by the package itself, in processes of their own, before it was stopped and after."""
    if importlib.util.find_spec(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    for name in ("MLFLOW_TRACKING_URI", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    out = tmp_path / "run"
    subprocess.run([sys.executable, "-c", STOPPED, str(out), request.param], check=True)
    flags = ("--logger", request.param, "--threads", "1", "--no-tensorboard", "--quiet")
    done = subprocess.run([sys.executable, "-m", "mollifier_lab", "resume", str(out), *flags], check=True, capture_output=True, text=True)  # fmt: skip
    assert "done: " in done.stdout
    return out


@pytest.mark.parametrize("stopped_and_resumed", ["mlflow"], indirect=True)
def test_the_real_mlflow_holds_one_run_with_every_evaluation(stopped_and_resumed: Path) -> None:
    where = (stopped_and_resumed / "mlflow").as_uri()
    found = subprocess.run([sys.executable, "-c", READ, where], check=True, capture_output=True, text=True).stdout
    assert found == "mollified, seed 0; FINISHED; 4; [0, 2, 4]\n"


@pytest.mark.parametrize("stopped_and_resumed", ["wandb"], indirect=True)
def test_the_real_wandb_writes_offline_under_one_id(stopped_and_resumed: Path) -> None:
    files = sorted((stopped_and_resumed / "wandb").glob("offline-run-*/run-*.wandb"))
    assert len(files) == 2
    assert len({file.name for file in files}) == 1
    for file in files:
        held = file.read_bytes()
        assert all(word in held for word in (b"train_nll", b"level_2", b"mollified, seed 0"))
