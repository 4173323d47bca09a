"""`mollifier ls`, tags and notes, and one page of several folders."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mollifier_lab import RunConfig
from mollifier_lab.cli import main
from mollifier_lab.errors import LabError
from mollifier_lab.notes import Notes, above, add, read
from mollifier_lab.runs import RunFolder


def run(path: Path, seed: int = 0, **settings: float) -> RunFolder:
    """A run that has just begun."""
    folder = RunFolder(path)
    config = RunConfig.make("parity", "plain", seed, "quick", **settings)
    folder.write("config.json", config.to_json())
    folder.write("metrics.jsonl", json.dumps({"update": 50, "epoch": 5.0, "train_nll": 0.5}) + "\n")
    return folder


def test_runs_with_what_differs_and_what_people_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path / "study" / "a", lr=0.5)
    failed = run(tmp_path / "study" / "b", lr=0.25)
    failed.write("failure.txt", "ValueError: no")
    assert main(["note", str(tmp_path / "study"), "first try", "--tags", "old, slow"]) == 0
    assert main(["note", str(failed.path), "of course", "--tags", "bad"]) == 0
    assert main(["ls", str(tmp_path)]) == 0
    rows = capsys.readouterr().out.splitlines()
    (one,) = [row for row in rows if str(tmp_path / "study" / "a") in row]
    (other,) = [row for row in rows if str(failed.path) in row]
    for word in ("unfinished, update 50 of 2,000", "train_nll 0.500", "lr=0.5", "old, slow", "first try"):
        assert word in one
    for word in ("failed", "lr=0.25", "old, slow, bad", "first try; of course"):
        assert word in other
    assert "gain" not in one
    assert main(["ls", str(tmp_path), "--tag", "bad"]) == 0
    assert str(tmp_path / "study" / "a") not in capsys.readouterr().out


def test_what_can_not_be_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path / "a")
    run(tmp_path / "b").write("config.json", "[]")
    assert main(["ls", str(tmp_path)]) == 0
    out, error = capsys.readouterr()
    assert str(tmp_path / "a") in out
    assert f"note: {tmp_path / 'b'}/config.json: this is not the config of a run" in error
    assert main(["ls", str(tmp_path / "none")]) == 2


def test_what_is_damaged_has_no_result_and_other_data_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run(tmp_path / "a")
    folder.write("result.json", json.dumps({"format": 1, "updates": 50}))
    RunFolder(tmp_path / "b").write("config.json", replace(RunConfig.make("mnist", "plain"), other_data=True).to_json())
    assert main(["ls", str(tmp_path)]) == 0
    one, other = (row for row in capsys.readouterr().out.splitlines() if str(tmp_path) in row)
    assert "damaged" in one
    assert "0.500" not in one
    assert "unfinished, update 0, other data" in other


def test_notes_that_never_end_are_named(tmp_path: Path) -> None:
    (tmp_path / "notes.json").symlink_to("/dev/zero")
    with pytest.raises(LabError, match=r"notes.json: more than 16 MB"):
        read(tmp_path)


def test_notes_add_up_and_bad_ones_are_named(tmp_path: Path) -> None:
    add(tmp_path, "a,b", "one")
    add(tmp_path, "b,c", "two")
    assert read(tmp_path) == Notes(("a", "b", "c"), ("one", "two"))
    assert above(tmp_path / "x" / "y", tmp_path) == read(tmp_path)
    assert above(tmp_path, tmp_path / "elsewhere") == read(tmp_path)
    (tmp_path / "notes.json").write_text("[]")
    with pytest.raises(LabError, match=r"notes.json: expected an object.*; remove it, or correct it"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("line", "told"), [(["note", "nowhere", "x"], "there is no such folder"), (["note", "."], "nothing to note")]
)
def test_a_note_needs_a_folder_and_something_to_say(
    line: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line) == 2
    assert told in capsys.readouterr().err


def test_one_page_of_several_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    run(first / "a", lr=0.5)
    run(second / "b", lr=0.25)
    assert main(["report", str(first), str(second)]) == 0
    told = capsys.readouterr().out
    assert "lr=0.5" in told
    assert "lr=0.25" in told
    assert f"page: {tmp_path / 'report' / 'report.html'}" in told
    lines = (tmp_path / "report" / "curves.csv").read_text().splitlines()
    assert any("first/a" in line for line in lines)
    assert any("second/b" in line for line in lines)
    assert main(["report"]) == 2
