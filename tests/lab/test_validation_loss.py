"""Annealing driven by the validation loss: what it sees, and that it resumes and is shared like any other run."""

import dataclasses
import itertools
from pathlib import Path

import pytest

from mollifier_lab import engine
from mollifier_lab.runs import RunFolder
from mollifier_lab.settings import RunConfig
from tests.lab.test_distributed import TORCHRUN, start

HERE = engine.Hardware(accelerator="cpu", threads=1, tensorboard=False)
TINY = {"width": 8, "depth": 3, "batch": 8, "updates": 30, "evaluate_every": 10, "save_every": 4, "k": 5.0, "lr": 0.01}


def make(method: str = "mollified", **changes: object) -> RunConfig:
    config = RunConfig.make("mnist", method, preset="quick", **TINY | {"v": "valid"} | changes)
    return dataclasses.replace(config, other_data=True)  # the files are tiny ones of our own


def test_the_average_is_that_of_the_last_validation_losses(tiny_folder: Path, tmp_path: Path) -> None:
    engine.train(make(loss_average=0.9), tmp_path, data=tiny_folder, hardware=HERE, show=False)
    rows = RunFolder(tmp_path).rows()
    average = 0.0
    for number, (row, after) in enumerate(itertools.pairwise(rows), start=1):
        for _ in range(10):
            average = 0.9 * average + 0.1 * row["valid_loss"]
        assert after["loss_average"] == pytest.approx(average / (1 - 0.9 ** (10 * number)), rel=1e-4)
        assert after["loss_average"] != pytest.approx(after["train_loss"], rel=1e-3)


def test_v_fixed_to_1(tiny_folder: Path, tmp_path: Path) -> None:
    engine.train(make(v="one"), tmp_path, data=tiny_folder, hardware=HERE, show=False)
    assert {row["loss_average"] for row in RunFolder(tmp_path).rows()} == {1.0}


@pytest.mark.parametrize("at", [3, 9, 14, 23])
def test_it_resumes_bit_for_bit(at: int, tiny_folder: Path, tmp_path: Path) -> None:
    def stop(update: int, *_: object) -> None:
        if update == at:
            raise KeyboardInterrupt

    alone, stopped = tmp_path / "alone", tmp_path / "stopped"
    engine.train(make(), alone, data=tiny_folder, hardware=HERE, show=False)
    with pytest.raises(KeyboardInterrupt):
        engine.train(make(), stopped, data=tiny_folder, hardware=HERE, show=False, observe=stop)
    engine.resume(stopped, data=tiny_folder, hardware=HERE, show=False)
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (alone / name).read_bytes() == (stopped / name).read_bytes()


def test_two_processes_have_the_same_levels_as_one(tiny_folder: Path, tmp_path: Path) -> None:
    config = make("mollified-deterministic", optimizer="sgd")
    seen = start(TORCHRUN, config, tmp_path / "two", tiny_folder, 1)
    assert len(seen) == 2
    assert seen[0] == seen[1]
    engine.train(config, tmp_path / "one", data=tiny_folder, hardware=HERE, show=False)
    for alone, together in zip(*(RunFolder(tmp_path / name).rows() for name in ("one", "two")), strict=True):
        assert together["levels"] == pytest.approx(alone["levels"], abs=1e-5)
        assert together["valid_loss"] == pytest.approx(alone["valid_loss"], rel=1e-5)
