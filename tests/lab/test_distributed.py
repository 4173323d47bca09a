"""Two processes train as one does with the same batch, started by torchrun and by Fabric."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from mollifier_lab import engine
from mollifier_lab.errors import LabError
from mollifier_lab.runs import RunFolder
from mollifier_lab.settings import RunConfig
from tests.lab.files import fill

ROOT = Path(__file__).parents[2]
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
SIZES: dict[str, dict[str, Any]] = {
    "parity": {"bits": 8, "width": 16, "depth": 3, "samples": 64, "lr": 0.5},
    "mnist": {"width": 16, "depth": 3},
}
SHORT = {"batch": 8, "updates": 30, "evaluate_every": 10, "k": 10.0}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("data"))


def start(launcher: list[str], config: RunConfig, out: Path, data: Path, devices: int) -> list[list[list[float]]]:
    """Run it; what each rank saw."""
    given = out.with_suffix(".json")
    given.write_text(config.to_json())
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("COV_", "PYTEST"))}
    subprocess.run(
        [sys.executable, *launcher, "-m", "tests.lab.rank", str(given), str(out), str(data), str(devices)],
        cwd=ROOT, check=True, timeout=300, env=clean | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    return [json.loads(path.read_text()) for path in sorted(out.parent.glob(f"{out.name}.rank-*.json"))]


@pytest.mark.parametrize("launcher", ["torchrun", "fabric"])
@pytest.mark.parametrize("task", SIZES)
def test_two_processes_train_as_one(task: str, launcher: str, data: Path, tmp_path: Path) -> None:
    config = RunConfig.make(task, "mollified-deterministic", preset="quick", **SHORT | SIZES[task])
    config = dataclasses.replace(config, other_data=True)  # the files are tiny ones of our own
    devices = 1 if launcher == "torchrun" else 2
    seen = start(TORCHRUN if launcher == "torchrun" else [], config, tmp_path / "two", data, devices)
    assert len(seen) == 2
    assert len(seen[0]) == SHORT["updates"]
    assert seen[0] == seen[1], "the levels of the two ranks differ"
    engine.train(
        config, tmp_path / "one", data=data, hardware=engine.Hardware(accelerator="cpu", threads=1), show=False
    )
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name, weight in one.items():
        assert (weight - two[name]).abs().max() <= 1e-5 * weight.abs().max(), name
    for alone, together in zip(*(RunFolder(tmp_path / name).rows() for name in ("one", "two")), strict=True):
        assert alone.keys() == together.keys()
        assert together["levels"] == pytest.approx(alone["levels"], abs=1e-5)
        if "train_loss" in alone:
            assert together["train_loss"] == pytest.approx(alone["train_loss"], rel=1e-5)


def test_with_noise_the_levels_are_still_the_same(data: Path, tmp_path: Path) -> None:
    config = RunConfig.make("parity", "mollified", preset="quick", **SHORT | SIZES["parity"])
    seen = start(TORCHRUN, config, tmp_path / "two", data, 1)
    assert seen[0] == seen[1]
    assert len({tuple(levels) for levels in seen[0]}) > 20, "the levels do not move"


def test_a_batch_that_cannot_be_shared_is_refused(tmp_path: Path) -> None:
    config = RunConfig.make("parity", "plain", preset="quick", **SHORT | SIZES["parity"] | {"batch": 7})
    given = tmp_path / "config.json"
    given.write_text(config.to_json())
    found = subprocess.run(
        [sys.executable, "-m", "tests.lab.rank", str(given), str(tmp_path / "run"), str(tmp_path), "2"],
        cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert found.returncode != 0
    assert "batch=7: expected a multiple of the 2 processes" in found.stderr


def test_a_run_is_resumed_with_as_many_processes(tmp_path: Path) -> None:
    from mollifier_lab import checkpoint

    config = RunConfig.make("parity", "plain", preset="quick", **SHORT | SIZES["parity"])
    RunFolder(tmp_path).write("config.json", config.to_json())
    checkpoint.save(tmp_path / "checkpoints", 10, {"config": config.to_json(), "ranks": [{}, {}]})
    with pytest.raises(LabError, match="made by 2 processes, but now there are 1; resume it with the same number"):
        engine.resume(tmp_path, show=False)
