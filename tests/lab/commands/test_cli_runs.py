"""The commands from end to end, on parity of six bits."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mollifier_lab.cli import main
from mollifier_lab.data.sources import source
from mollifier_lab.runs import RunFolder

TINY = {"bits": 6, "width": 8, "depth": 2, "samples": 64, "batch": 16, "updates": 40, "evaluate_every": 10}
SET = [f"{name}={value}" for name, value in TINY.items()]


def test_ctrl_c_saves_and_says_how_to_go_on_and_resume_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    line = [sys.executable, "-m", "mollifier_lab", "train", "parity", "--method", "plain", "--out", str(out)]
    longer = {**TINY, "updates": 600, "evaluate_every": 50}
    flags = [word for name, value in longer.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    flags += ["--threads", "1", "--no-tensorboard"]
    process = subprocess.Popen([*line, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not RunFolder(out).rows():
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    told, error = process.communicate(timeout=120)
    assert process.returncode == 130, error
    assert f"mollifier resume {out}" in error
    assert "Traceback" not in error
    assert "\x1b" not in told + error
    assert told.startswith("parity, plain, seed 0: update 0/600 ")

    assert main(["resume", str(out), "--quiet", "--no-tensorboard", "--threads", "1"]) == 0
    assert capsys.readouterr().out.startswith(f"done: {out}: training NLL ")
    assert RunFolder(out).json("result.json")["updates"] == 600
    assert [row["update"] for row in RunFolder(out).rows()] == list(range(0, 601, 50))


def test_compare_runs_what_is_missing_and_shows_the_table_and_where_the_page_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    line = [
        "compare",
        "parity",
        "--preset",
        "quick",
        "--methods",
        "plain",
        "mollified:k=5",
        "--threads",
        "1",
        "--set",
        *SET,
    ]
    assert main([*line, "--seeds", "1", "--quiet"]) == 0
    out, _ = capsys.readouterr()
    (where,) = Path("runs", "compare").iterdir()
    assert where.name.startswith("parity-quick_batch=16_bits=6_")
    assert f"page: {where / 'report.html'}" in out
    assert f"{where / 'curves.png'}" in out
    assert (where / "report.html").stat().st_size > 0
    rows = [row for row in out.splitlines() if row.strip().startswith(("plain", "mollified, k=5"))]
    assert len(rows) == 2
    assert all("1 done" in row for row in rows)
    assert "\x1b" not in out
    assert RunFolder(where / "mollified_k=5" / "seed-0").config().settings.k == 5.0

    first = (where / "plain" / "seed-0" / "result.json").stat().st_mtime_ns
    assert main([*line, "--seeds", "1,"]) == 0
    told = capsys.readouterr().out
    assert "plain, seed 1: update 40/40" in told
    assert "plain, seed 0" not in told
    assert (where / "plain" / "seed-0" / "result.json").stat().st_mtime_ns == first
    assert (where / "plain" / "seed-1" / "result.json").exists()

    assert main(["report", str(where), "--out", "page"]) == 0
    assert "2 done" in capsys.readouterr().out
    assert Path("page", "report.html").stat().st_size > 0


def test_missing_data_is_said_once_before_anything_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    study = tmp_path / "study"
    flags = ["--data", str(tmp_path / "empty"), "--out", str(study)]
    for line in (["compare", "mnist", "--methods", "plain", "--seeds", "3"], ["search", "mnist", "--trials", "3"]):
        assert main([*line, *flags, "--workers", "2"]) == 2
        err = capsys.readouterr().err
        assert err.count("not found. Looked in") == 1
        assert "FAILED" not in err
        assert not study.exists()


def test_compare_ends_with_1_if_a_run_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data").mkdir()
    for file in source("mnist").files:
        (tmp_path / "data" / file.name).write_text("no idx file")
    line = [
        "compare",
        "mnist",
        "--methods",
        "plain",
        "--seeds",
        "1",
        "--data",
        str(tmp_path / "data"),
        "--allow-other-data",
    ]
    assert main([*line, "--out", str(tmp_path / "study"), "--quiet"]) == 1
    err = capsys.readouterr().err
    assert "FAILED" in err
    assert str(tmp_path / "study" / "plain" / "seed-0" / "failure.txt") in err


@pytest.mark.parametrize("seeds", ["0", "x", "1,1", "3,x"])
def test_compare_refuses_seeds_it_does_not_understand(
    seeds: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "parity", "--seeds", seeds, "--out", str(tmp_path / "study")]) == 2
    assert "seeds" in capsys.readouterr().err
    assert not (tmp_path / "study").exists()


def test_search_writes_a_config_that_train_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = [
        "search",
        "parity",
        "--method",
        "plain",
        "--preset",
        "quick",
        "--trials",
        "2",
        "--out",
        str(tmp_path / "search"),
    ]
    assert main([*line, "--threads", "1", "--set", *SET]) == 0
    told = capsys.readouterr().out
    best = Path(told.partition("--config ")[2].split()[0])
    assert json.loads(best.read_text())["settings"]["bits"] == 6
    assert (
        main(["train", "parity", "--config", str(best), "--seed", "9", "--out", str(tmp_path / "run"), "--quiet"]) == 0
    )
    settings = RunFolder(tmp_path / "run").config().settings
    assert settings.lr == json.loads(best.read_text())["settings"]["lr"] != 1.0


def test_data_checks_a_folder_and_tells_how_to_use_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "characters", "--from", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out.startswith("missing ")
    assert "1 of 1 files" in err
    (tmp_path / "glove.6B.100d.txt").write_text("".join(f"word{i} {i} 1.5 -2\n" for i in range(20)))
    assert main(["data", "characters", "--from", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("ok      ")
    assert f"export MOLLIFIER_DATA={tmp_path}" in out
    assert main(["data", "word-vectors", "--data", str(tmp_path)]) == 0
    assert f"ready: {tmp_path / 'glove.6B.100d.txt'}" in capsys.readouterr().out
    assert main(["data", "mnist", "--from", str(tmp_path / "nowhere")]) == 2
    assert "there is no such folder" in capsys.readouterr().err


def test_data_that_is_made_here_needs_no_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "parity"]) == 0
    assert "needs no files" in capsys.readouterr().out
    assert main(["data", "pentomino"]) == 0
    assert "train 80,000, valid 10,000, test 10,000" in capsys.readouterr().out


def test_figures_are_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["figures", "schedules", "linearisation", "--out", str(tmp_path), "--dpi", "40"]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / name) for name in ("schedules.png", "linearisation.png")]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in tmp_path.iterdir())
