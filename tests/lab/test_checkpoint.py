"""Checkpoints: whole or absent, known for what they are."""

import os
import pickle
import signal
from pathlib import Path

import pytest
import torch

from mollifier_lab import checkpoint, files
from mollifier_lab.errors import LabError
from tests.lab.processes import fork


def state(value: float) -> dict[str, object]:
    return {"config": "mine", "weights": torch.full((1000,), value)}


def test_the_last_two_are_kept_and_the_newest_is_read(tmp_path: Path) -> None:
    for update in (10, 20, 30):
        checkpoint.save(tmp_path, update, state(update))
    assert [path.name[:16] for path in sorted(tmp_path.iterdir())] == ["update-000000020", "update-000000030"]
    found = checkpoint.load(tmp_path, "mine")
    assert found is not None
    assert (found.update, float(found.state["weights"][0]), found.problems) == (30, 30.0, [])


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert checkpoint.load(tmp_path) is None
    assert checkpoint.load(tmp_path / "missing") is None


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "renamed"])
def test_a_damaged_one_is_named_and_the_one_before_is_used(tmp_path: Path, damage: str) -> None:
    checkpoint.save(tmp_path, 10, state(1.0))
    newest = checkpoint.save(tmp_path, 20, state(2.0))
    data = newest.read_bytes()
    if damage == "truncated":
        newest.write_bytes(data[: len(data) // 2])
    elif damage == "flipped":
        newest.write_bytes(data[:2000] + bytes([data[2000] ^ 1]) + data[2001:])
    elif damage == "empty":
        newest.write_bytes(b"")
    else:
        newest.rename(tmp_path / "update-000000020-latest.pt")
    found = checkpoint.load(tmp_path, "mine")
    assert found is not None
    assert found.update == 10
    assert len(found.problems) == 1
    assert "update-000000020" in found.problems[0]


def test_one_of_another_run_is_not_used(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 10, state(1.0))
    checkpoint.save(tmp_path, 20, state(2.0) | {"config": "theirs"})
    found = checkpoint.load(tmp_path, "mine")
    assert found is not None
    assert found.update == 10
    assert "another run" in found.problems[0]


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch evil",)


def test_a_foreign_file_is_never_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = pickle.dumps({"format": 1, "update": 20, "x": Evil()})
    (tmp_path / f"update-000000020-{checkpoint._digest(data)}.pt").write_bytes(data)
    with pytest.raises(LabError, match=r"not a checkpoint of the laboratory.*no good checkpoint is left"):
        checkpoint.load(tmp_path)
    assert not (tmp_path / "evil").exists()


def test_a_format_of_the_future_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "FORMAT", 2)
    checkpoint.save(tmp_path, 10, state(1.0))
    monkeypatch.undo()
    with pytest.raises(LabError, match="format 2, this version reads 1"):
        checkpoint.load(tmp_path)


def _killed_before_its_name(folder: Path) -> None:
    files.os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
    checkpoint.save(folder, 20, state(2.0))


def test_killed_in_the_middle_of_a_write(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 10, state(1.0))
    assert fork(_killed_before_its_name, tmp_path).wait() == -signal.SIGKILL
    assert len(list(tmp_path.glob(".update-*"))) == 1, "the write was not under way"
    found = checkpoint.load(tmp_path, "mine")
    assert found is not None
    assert found.update == 10
    assert len(list(tmp_path.iterdir())) == 1, "the rest of the killed write is still there"


def _small_disk(folder: Path) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
    checkpoint.save(folder, 20, {"weights": torch.zeros(100_000)})


def test_a_write_that_does_not_fit_leaves_the_old_one(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 10, state(1.0))
    assert fork(_small_disk, tmp_path).wait() != 0
    assert [path.name[:16] for path in tmp_path.iterdir()] == ["update-000000010"]
