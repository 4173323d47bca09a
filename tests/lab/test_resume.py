"""A run that is killed again and again ends bit for bit as one that was left alone. The processes are real, and so are the kills."""

import dataclasses
import json
import os
import resource
import signal
import time
from pathlib import Path

import pytest

from mollifier_lab import engine
from mollifier_lab.errors import LabError
from mollifier_lab.runs import RunFolder
from mollifier_lab.settings import RunConfig
from tests.lab.files import fill
from tests.lab.kill import checkpoints, go, kill, same
from tests.lab.processes import fork

KILLS = 20
SHORT = {"updates": 400, "save_every": 2, "evaluate_every": 10, "batch": 8}
RUNS = {
    "parity": ("mollified", {"bits": 8, "width": 16, "depth": 3, "samples": 64}),
    "pentomino": ("mollified-residual", {"width": 16, "depth": 3, "train": 500, "evaluate_every": 50}),
    "mnist": ("dropout", {"width": 16, "depth": 3, "activation": "tanh", "evaluate_every": 50}),
    "cifar10": ("mollified-residual", {"depth": 20, "width": 2, "train": 64, "recalibrate": 2, "updates": 130, "evaluate_every": 65}),
    "ptb": ("mollified", {"width": 12, "steps": 5}),
    "characters": ("stochastic-depth", {"width": 8, "depth": 2, "embedding": 4, "valid": 10}),
    "adding": ("mollified", {"steps": 5, "width": 8, "cell": "gru", "schedule": "adaptive"}),
}  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("data"))


@pytest.mark.parametrize("task", RUNS)
def test_killed_twenty_times(task: str, data: Path, tmp_path: Path) -> None:
    method, changes = RUNS[task]
    config = RunConfig.make(task, method, seed=1, preset="quick", **SHORT | changes)
    config = dataclasses.replace(config, other_data=True)  # the files are tiny ones of our own
    alone, killed = tmp_path / "alone", tmp_path / "killed"
    assert fork(go, config.to_json(), alone, data).wait() == 0
    kill(config, killed, data, KILLS)
    same(alone, killed)
    assert len(RunFolder(alone).rows()) == 1 + config.settings.updates // config.settings.evaluate_every


@pytest.fixture
def config() -> RunConfig:
    method, changes = RUNS["parity"]
    return RunConfig.make("parity", method, preset="quick", **SHORT | changes)


def halfway(config: RunConfig, out: Path) -> None:
    """A run that was killed after some checkpoints."""
    child = fork(go, config.to_json(), out, None)
    while len(checkpoints(out)) < 2:
        assert child.process.is_alive()
        time.sleep(0.001)
    child.kill()


def test_a_truncated_checkpoint_is_told_of_and_the_one_before_used(
    config: RunConfig, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    halfway(config, tmp_path / "run")
    newest = max((tmp_path / "run" / "checkpoints").iterdir())
    newest.write_bytes(newest.read_bytes()[:1000])
    engine.resume(tmp_path / "run", hardware=engine.Hardware(accelerator="cpu", tensorboard=False), show=False)
    assert f"{newest}: truncated or damaged" in capfd.readouterr().err
    assert fork(go, config.to_json(), tmp_path / "alone", None).wait() == 0
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == (tmp_path / "alone" / "metrics.jsonl").read_bytes()


def test_no_good_checkpoint_is_an_error_and_changes_nothing(config: RunConfig, tmp_path: Path) -> None:
    halfway(config, tmp_path)
    for path in (tmp_path / "checkpoints").glob("update-*"):
        path.write_bytes(b"not ours")
    rows = (tmp_path / "metrics.jsonl").read_bytes()
    with pytest.raises(LabError, match="no good checkpoint is left"):
        engine.resume(tmp_path, show=False)
    assert (tmp_path / "metrics.jsonl").read_bytes() == rows


def test_a_checkpoint_of_another_run_is_refused(config: RunConfig, tmp_path: Path) -> None:
    halfway(config, tmp_path)
    found = json.loads((tmp_path / "config.json").read_text())
    found["seed"] = 5
    (tmp_path / "config.json").write_text(json.dumps(found))
    with pytest.raises(LabError, match="checkpoint of another run"):
        engine.resume(tmp_path, show=False)


def small_disk(config: str, out: Path) -> None:
    """No file can grow beyond a few thousand bytes: checkpoints no longer fit."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))
    try:
        go(config, out, Path())
    except LabError as error:
        (out / "said.txt").write_text(str(error))
        os._exit(3)


def test_a_full_disk_ends_the_run_and_loses_nothing(config: RunConfig, tmp_path: Path) -> None:
    out = tmp_path / "run"
    halfway(config, out)
    good = {path.name: path.read_bytes() for path in (out / "checkpoints").glob("update-*")}
    assert fork(small_disk, config.to_json(), out).wait() == 3
    assert "the last good checkpoint is kept" in (out / "said.txt").read_text()
    assert {path.name: path.read_bytes() for path in (out / "checkpoints").iterdir()} == good
    assert fork(go, config.to_json(), out, None).wait() == 0
    assert fork(go, config.to_json(), tmp_path / "alone", None).wait() == 0
    assert (out / "model.safetensors").read_bytes() == (tmp_path / "alone" / "model.safetensors").read_bytes()


def test_two_processes_never_work_on_one_run(config: RunConfig, tmp_path: Path) -> None:
    child = fork(go, RunConfig.make("parity", "plain", preset="quick").to_json(), tmp_path, None)
    while not (tmp_path / "metrics.jsonl").exists():
        time.sleep(0.001)
    with pytest.raises(engine.Busy, match="another process is working on this run"):
        engine.resume(tmp_path, show=False)
    child.kill()


def interrupted(config: str, out: Path) -> None:
    try:
        go(config, out, Path())
    except engine.Interrupted as error:
        (out / "said.txt").write_text(str(error))
        os._exit(130)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_says_how_to_go_on(config: RunConfig, tmp_path: Path, number: signal.Signals) -> None:
    child = fork(interrupted, config.to_json(), tmp_path)
    while not checkpoints(tmp_path):
        time.sleep(0.001)
    os.kill(child.process.pid or 0, number)
    assert child.wait() == 130
    said = (tmp_path / "said.txt").read_text()
    # with the flags that it was started with, also that of the data
    assert said.endswith(
        f"saved; to resume: mollifier resume {tmp_path} --data . --accelerator cpu --threads 1 --no-tensorboard"
    )
    update = int(said.split()[3])
    assert max(checkpoints(tmp_path)).startswith(f"update-{update:09d}"), (
        "the checkpoint is not that of the last update"
    )
