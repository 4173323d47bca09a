"""The rows of a run, cut to what a checkpoint knows of."""

from pathlib import Path

import pytest

from mollifier_lab.errors import LabError
from mollifier_lab.records import Records
from mollifier_lab.runs import RunFolder, find_runs
from mollifier_lab.settings import RunConfig


def test_rows_after_the_checkpoint_are_cut(tmp_path: Path) -> None:
    records = Records(tmp_path, None, False, 0)
    records.write({"update": 10, "train_loss": 0.5}, 1.0)
    lengths = records.lengths
    records.write({"update": 20, "train_loss": None}, 2.0)
    records.close()
    assert RunFolder(tmp_path).rows()[-1] == {"update": 20, "train_loss": None}
    again = Records(tmp_path, lengths, False, 10)
    assert RunFolder(tmp_path).rows() == [{"update": 10, "train_loss": 0.5}]
    assert RunFolder(tmp_path).rows("clock.jsonl") == [{"update": 10, "seconds": 1.0}]
    again.close()


def test_a_new_run_starts_with_empty_files(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"update": 10}\n')
    Records(tmp_path, None, False, 0).close()
    assert RunFolder(tmp_path).rows() == []


def test_rows_that_were_lost_are_told(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    with pytest.raises(LabError, match="3 bytes, but it had 30 when the checkpoint was made"):
        Records(tmp_path, [30, 0], False, 10)
    assert (tmp_path / "metrics.jsonl").read_text() == "{}\n"


def test_a_line_that_is_not_whole_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"update": 1}\n{"upd')
    assert RunFolder(tmp_path).rows() == [{"update": 1}]


def test_events_hold_the_same_numbers(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    records = Records(tmp_path, None, True, 0)
    records.write({"update": 10, "train_loss": 0.5, "levels": [0.25, 0.75]}, 1.0)
    records.close()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [(10, 0.5)]
    assert events.Scalars("level/2")[0].value == 0.75


def test_runs_are_found_wherever_they_are(tmp_path: Path) -> None:
    for name in ("b/seed-0", "a/seed-1", "a/seed-0"):
        RunFolder(tmp_path / name).write("config.json", RunConfig.make("parity", "plain").to_json())
    assert [str(run.path.relative_to(tmp_path)) for run in find_runs(tmp_path)] == ["a/seed-0", "a/seed-1", "b/seed-0"]
    with pytest.raises(LabError, match="no run in it"):
        find_runs(tmp_path / "c")


def test_a_folder_without_a_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"no run here \(config.json is missing\); start one with mollifier train"):
        RunFolder(tmp_path).config()


def test_a_row_that_a_full_disk_refuses_is_told_of_once(tmp_path: Path) -> None:
    records = Records(tmp_path, None, tensorboard=False, update=0)
    records._files[0].close()
    records._files[0] = Path("/dev/full").open("ab")  # noqa: SIM115  closed below
    with pytest.raises(OSError, match="No space"):
        records.write({"update": 0}, 0.0)
    records.close()  # the row is still in the buffer, and cannot be written now either
    assert all(file.closed for file in records._files)
