"""Files of a run or a cache that are lost, foreign or planted."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from mollifier_lab import RunConfig, checkpoint, engine
from mollifier_lab.data import fetch
from mollifier_lab.errors import LabError
from mollifier_lab.files import atomic
from mollifier_lab.runs import RunFolder

HARDWARE = engine.Hardware(accelerator="cpu", threads=1, tensorboard=False)


class Halt(Exception):
    """The run is stopped here."""


@pytest.fixture
def config() -> RunConfig:
    return RunConfig.make(
        "parity", "mollified", preset="quick", bits=4, width=8, depth=2, samples=16, updates=20, evaluate_every=2, save_every=4,
    )  # fmt: skip


def halfway(config: RunConfig, out: Path) -> None:
    def observe(update: int, loss: Any, levels: Any) -> None:
        if update == 11:
            raise Halt

    with pytest.raises(Halt):
        engine.train(config, out, hardware=HARDWARE, show=False, observe=observe)


def end(out: Path) -> bytes:
    engine.resume(out, hardware=HARDWARE, show=False)
    return (out / "metrics.jsonl").read_bytes()


@pytest.fixture
def whole(config: RunConfig, tmp_path: Path) -> bytes:
    engine.train(config, tmp_path / "whole", hardware=HARDWARE, show=False)
    return (tmp_path / "whole" / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize("left", [0, 10, 40])
def test_a_lost_clock_does_not_block(left: int, config: RunConfig, whole: bytes, tmp_path: Path) -> None:
    halfway(config, tmp_path / "run")
    clock = tmp_path / "run" / "clock.jsonl"
    clock.write_bytes(clock.read_bytes()[:left])
    assert end(tmp_path / "run") == whole
    assert [row["update"] for row in RunFolder(tmp_path / "run").rows("clock.jsonl")][-1] == 20


def forge(folder: Path, change: Any) -> Path:
    """Put another in the place of the newest checkpoint, with a right checksum."""
    newest = max(folder.glob("update-*.pt"))
    state = torch.load(newest, weights_only=True)
    update = state.pop("update")
    state.pop("format")
    newest.unlink()
    change(state)
    return checkpoint.save(folder, update, state)


CHANGES = [
    lambda state: state.pop("ranks"),
    lambda state: state.update(ranks=[]),
    lambda state: state.update(identity={"precision": "64-true"}),
    lambda state: state.update(model={}),
    lambda state: state["model"].update({next(iter(state["model"])): torch.zeros(1)}),
    lambda state: state.update(optimizer=None),
    lambda state: state["optimizer"]["param_groups"][0].update(momentum=0.3),
    lambda state: state["optimizer"]["param_groups"][0].pop("momentum"),
    lambda state: next(iter(state["optimizer"]["state"].values())).update(momentum_buffer=torch.zeros(2)),
    lambda state: state.update(annealer={"other": 1}),
    lambda state: state["plain"].pop("best"),
    lambda state: state["plain"].update(best_state={}),
    lambda state: state["plain"].update(update=7),
    lambda state: state["plain"].update(first_loss="x"),
    lambda state: state.update(lengths=["a", "b"]),
    lambda state: state["ranks"][0].update(rng=torch.zeros(3)),
    lambda state: state["ranks"][0].update(loss_sum=torch.zeros(3)),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_foreign_checkpoint_with_a_right_checksum_is_passed_over(
    change: Any, config: RunConfig, whole: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    halfway(config, tmp_path / "run")
    (tmp_path / "run" / "seal.json").unlink()  # as of a run of an earlier version: what it holds must tell
    foreign = forge(tmp_path / "run" / "checkpoints", change)
    assert end(tmp_path / "run") == whole
    assert f"{foreign}: does not fit this run" in capfd.readouterr().err


def test_a_checkpoint_that_fits_and_is_not_of_this_run_is_passed_over(
    config: RunConfig, whole: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    halfway(config, tmp_path / "run")
    folder = tmp_path / "run" / "checkpoints"
    foreign = forge(folder, lambda state: [each.zero_() for each in state["model"].values()])
    assert end(tmp_path / "run") == whole
    assert f"{foreign}: this run has not saved it" in capfd.readouterr().err


def test_annealing_that_had_ended_in_a_foreign_checkpoint_goes_on(
    config: RunConfig, whole: bytes, tmp_path: Path
) -> None:
    """What is frozen after annealing must not be, if the checkpoint that said so was not taken over in the end."""
    halfway(config, tmp_path / "run")
    (tmp_path / "run" / "seal.json").unlink()

    def change(state: Any) -> None:
        state["plain"].update(finished_at=3)
        state["annealer"]["levels"] = torch.zeros_like(torch.as_tensor(state["annealer"].get("levels", 0.0)))
        state["ranks"][0].update(rng=torch.zeros(3))

    forge(tmp_path / "run" / "checkpoints", change)
    assert end(tmp_path / "run") == whole


def test_a_passed_over_checkpoint_does_not_push_out_good_ones(config: RunConfig, tmp_path: Path) -> None:
    halfway(config, tmp_path)
    folder = tmp_path / "checkpoints"
    (folder / "update-000000900-0123456789abcdef.pt").write_bytes(b"not ours")
    end(tmp_path)
    assert [path.name[:16] for path in sorted(folder.iterdir())] == ["update-000000012", "update-000000016", "update-000000900"]  # fmt: skip


def test_a_changed_environment_of_an_unfinished_run_is_refused(config: RunConfig, tmp_path: Path) -> None:
    halfway(config, tmp_path)
    path = tmp_path / "environment.json"
    path.write_text(path.read_text().replace('"torch": "', '"torch": "9'))
    with pytest.raises(LabError, match=r"damaged: environment\.json \(not what the run wrote\)"):
        end(tmp_path)


def test_if_no_checkpoint_fits_nothing_is_touched(config: RunConfig, tmp_path: Path) -> None:
    halfway(config, tmp_path / "run")
    rows = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    for path in (tmp_path / "run" / "checkpoints").glob("update-*.pt"):
        path.unlink()
    checkpoint.save(tmp_path / "run" / "checkpoints", 4, {"config": config.to_json()})
    with pytest.raises(LabError, match="no good checkpoint is left"):
        engine.resume(tmp_path / "run", hardware=HARDWARE, show=False)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == rows


def test_a_write_that_fails_names_its_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"a\.txt"), atomic(tmp_path / "a.txt"):
        raise OSError(28, "No space left on device")


def test_a_planted_link_is_not_swept_away(tmp_path: Path) -> None:
    old = tmp_path / "other"
    old.mkdir()
    os.utime(old, (0, 0))
    (tmp_path / ".fetch-1").symlink_to(old)
    (tmp_path / ".fetch-2").symlink_to(tmp_path / "nothing")
    fetch._sweep(tmp_path)
    assert old.is_dir()
    assert (tmp_path / ".fetch-1").is_symlink()
