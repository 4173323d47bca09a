"""What a run and a study show on terminals of 80 and 120 columns."""

import io
import json
import logging
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

from mollifier_lab import overview as overview_module, progress
from mollifier_lab.job import Job, Outcome
from mollifier_lab.overview import Overview, Pace
from mollifier_lab.progress import Progress, notes_to, print_line, telling
from mollifier_lab.settings import RunConfig

LOSS = torch.tensor(0.1234)


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Console:
    console = Console(file=io.StringIO(), force_terminal=True, width=request.param, color_system=None)
    monkeypatch.setattr("rich.console.Console", lambda **_: console)
    monkeypatch.setattr(progress, "REFRESH", 0.0)
    return console


def last(console: Console, lines: int = 2) -> list[str]:
    """The last lines that were drawn, without what moves the cursor."""
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return [line.rsplit("\x1b[2K", 1)[-1] for line in text.rstrip("\n").splitlines()][-lines:]


@pytest.mark.parametrize("screen", [80, 120], indirect=True)
def test_bar_count_rate_and_time_left_are_there_at_any_width(screen: Console) -> None:
    shown = Progress("parity, " + "a very long label " * 20 + ", seed 3", 0, 102_000, show=True)
    with shown:
        shown.row({"update": 0, **{f"valid_metric_{n}": 0.5 for n in range(20)}})
        shown._began -= 10
        shown.step(51_000, LOSS, None)
        bar, below = last(screen)
    assert all(len(line) <= screen.width for line in (bar, below))
    assert bar.startswith("parity, ")
    for part in ("seed 3", "━━", "51000/102000", "/s", " left"):
        assert part in bar
    assert below.strip().startswith("loss 0.1234")
    assert below.rstrip().endswith("…")


@pytest.mark.parametrize("screen", [80], indirect=True)
def test_a_long_evaluation_says_so(screen: Console) -> None:
    with Progress("parity", 0, 10, show=True) as shown:
        shown.busy("evaluating")
        assert last(screen, 1)[0].strip() == "evaluating …"
        shown._busy = time.perf_counter() - 20
        shown.row({"update": 0})
        shown.step(1, LOSS, None)
        assert "evaluating" not in last(screen, 1)[0]
        shown.busy("evaluating")
        assert last(screen, 1)[0].strip() == "evaluating …"


def test_a_long_evaluation_has_a_line_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    shown = Progress("parity", 0, 10, show=True)
    shown.busy("evaluating")
    assert capsys.readouterr().out == ""  # nobody knows yet that it will be long
    shown._busy = time.perf_counter() - 20
    shown.row({"update": 0})
    capsys.readouterr()
    shown.busy("evaluating")
    assert capsys.readouterr().out == "parity: evaluating (the last time this took 20 s)\n"


def test_what_is_done_once_per_machine_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    library = logging.getLogger("mollifier")
    with telling(True), notes_to(tmp_path / "note"):
        library.info("compiling the native kernels, once for this machine")
        assert json.loads((tmp_path / "note").read_text())["phase"] == "compiling"
    library.info("nobody listens")
    assert capsys.readouterr().err == "compiling the native kernels, once for this machine …\n"
    assert not (tmp_path / "note").exists()


def jobs(root: Path, count: int) -> list[Job]:
    (root / "plain").mkdir()
    return [Job(RunConfig.make("parity", "plain", seed), root / "plain" / f"seed-{seed}") for seed in range(count)]


@pytest.mark.parametrize("screen", [80, 120], indirect=True)
def test_a_study_shows_each_run_under_way_and_what_is_left_of_all(
    screen: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(time=lambda: 0.0, perf_counter=lambda: 100.0)
    monkeypatch.setattr(overview_module, "time", clock)
    wanted = jobs(tmp_path, 4)
    overview = Overview(screen, wanted, done=1, workers=2)
    overview._bar.start()
    overview.look()
    assert last(screen, 1)[0].rstrip().endswith("starting")  # processes take seconds for that
    for job in wanted[:2]:
        job.notes.write_text(json.dumps({"update": 0, "total": 1000, "rate": 0.0, "phase": "compiling"}))
    overview.look()
    assert "compiling" in last(screen, 1)[0]
    clock.perf_counter = lambda: 110.0
    for job, update in zip(wanted, (500, 900), strict=False):
        job.notes.write_text(json.dumps({"update": update, "total": 1000, "rate": 50.0, "phase": ""}))
    overview.look()
    whole, first, second = last(screen, 3)
    assert all(len(line) <= screen.width for line in (whole, first, second))
    assert "1/5" in whole
    # 10 s and 1.1 s are left of these, two of 15.6 s wait: 42 s of work for two
    assert whole.rstrip().endswith("0:21 left")
    for line, parts in ((first, ("plain, seed 0", "500/1000", "50/s", "0:10 left")), (second, ("seed 1", "900/1000"))):
        assert all(part in line for part in parts)
    wanted[0].notes.unlink()
    overview.ended(Outcome(wanted[0], "done"))
    overview.look()
    assert "2/5" in last(screen, 2)[0]
    overview._bar.stop()


def test_a_note_of_a_study_that_was_killed_is_not_believed(tmp_path: Path) -> None:
    job = jobs(tmp_path, 1)[0]
    job.notes.write_text(json.dumps({"update": 5, "total": 10, "rate": 1.0, "phase": ""}))
    os.utime(job.notes, (1, 1))
    overview = Overview(Console(file=io.StringIO()), [job], 0, 2)
    assert overview.under_way() == {}
    job.notes.write_text("{")
    assert overview.under_way() == {}


def test_the_pace_of_a_study() -> None:
    pace = Pace(workers=2)
    assert pace.left({}, ["plain"]) is None
    assert pace.left({}, []) == 0
    pace.ended("plain", 10.0)
    pace.ended("plain", 20.0)
    assert pace.left({"mollified": [(20.0, 10.0)]}, ["plain", "mollified"]) == (10 + 15 + 30) / 2
    assert pace.left({"mollified": [(20.0, 100.0)]}, []) == 100  # the slowest is waited for


def test_a_line_on_a_terminal_is_broken_between_words() -> None:
    text = "12/15  residual + batch norm, seed 0: training NLL 0.305, 36.5 s; annealing had not ended: levels 0.01…0.96"
    for terminal, lines in ((True, 2), (False, 1)):
        said = Console(file=io.StringIO(), width=80, force_terminal=terminal)
        print_line(said, text)
        shown = said.file.getvalue()  # type: ignore[attr-defined]
        assert shown.split() == text.split()
        assert len(shown.splitlines()) == lines
    said = Console(file=io.StringIO(), width=80, force_terminal=True)
    print_line(said, path := "/a/path" * 20)  # to be copied as one
    assert said.file.getvalue() == f"{path}\n"  # type: ignore[attr-defined]
