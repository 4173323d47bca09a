"""Networks that no machine can hold are refused before they are built, runs of days are warned of, and a refusal leaves no folder behind."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
from rich.console import Console

from mollifier_lab import LabError, RunConfig, engine, memory, tasks
from mollifier_lab.cli import main
from mollifier_lab.hardware import Hardware
from mollifier_lab.progress import Progress
from mollifier_lab.settings import TASKS
from tests.lab.files import TINY

SMALL = [
    "--bits",
    "4",
    "--width",
    "4",
    "--depth",
    "2",
    "--samples",
    "8",
    "--batch",
    "4",
    "--updates",
    "2",
    "--k",
    "1",
    "--threads",
    "1",
    "--no-tensorboard",
    "--quiet",
]


@pytest.mark.parametrize("flags", [["--depth", "1000000"], ["--depth", "100000000", "--width", "1"]])
def test_a_network_beyond_the_memory_is_refused_with_an_estimate(flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    assert main(["train", "parity", *flags, "--threads", "1", "--out", str(tmp_path / "a" / "b")]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: not enough memory for bits=40, depth={flags[1]}, width=")
    assert " GB or more, and there are " in error
    assert error.endswith("choose a smaller network\n")
    assert not list(tmp_path.iterdir())


def test_a_comparison_says_it_once_before_anything_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ("depth=1000000", "updates=1")
    line = ["compare", "parity", "--methods", "plain", "mollified", "--seeds", "2", "--set", *sizes, "--threads", "1"]
    assert main([*line, "--out", str(tmp_path / "study")]) == 2
    error = capsys.readouterr().err
    assert error.count("not enough memory") == error.count("\n") == 1
    assert not list(tmp_path.rglob("failure.txt"))


@pytest.mark.parametrize("task", TASKS)
def test_the_estimate_is_below_the_true_number_of_weights(task: str, tiny_folder: Path) -> None:
    """More than the true number would refuse what can be trained."""
    sizes = {name: value for name, value in TINY[task].items() if name != "width"} | {"width": 32}
    config = RunConfig.make(task, "plain", **sizes)
    layers, weights = config.settings.network_size()
    true = sum(each.numel() for each in tasks.make(config, tiny_folder).model().parameters())
    assert layers >= 1
    assert 0.3 * true < weights <= true
    memory.check_memory(config.settings, memory=10**9)


def test_an_unknown_memory_refuses_nothing() -> None:
    settings = RunConfig.make("parity", "plain", depth=1_000_000).settings
    memory.check_memory(settings, memory=0)
    with pytest.raises(LabError, match="need 670 GB or more, and there are 669 GB"):
        memory.check_memory(settings, memory=669 * 10**9)
    memory.check_memory(settings, memory=671 * 10**9)


def test_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "memory.max").write_text("1048576\n")
    (tmp_path / "no limit").write_text("max\n")
    monkeypatch.setattr(memory, "LIMITS", (str(tmp_path / "no limit"), str(tmp_path / "none")))
    assert memory.physical_memory() > 2**28
    monkeypatch.setattr(memory, "LIMITS", (str(tmp_path / "memory.max"),))
    assert memory.physical_memory() == 2**20


def test_a_run_of_days_is_warned_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said, clock = io.StringIO(), iter([0.0, 100.0, 101.0, 107.0, 113.0, 119.0])
    monkeypatch.setattr("mollifier_lab.progress.time.perf_counter", lambda: next(clock))
    progress = Progress("a run", 0, 1_000_000, show=False, warn=True)
    progress._console = Console(file=said)
    for update in range(1, 6):
        progress.step(update, torch.tensor(1.0), None)
    expected = "warning: the last updates took 3.5 s each: at that speed the run takes another 40.5 days\n"
    assert said.getvalue() == expected


@pytest.mark.parametrize("case", ["data", "logger", "batch"])
def test_a_refused_run_leaves_no_folder(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    (tmp_path / "data").mkdir()
    out = tmp_path / "runs" / "a"
    line = ["train", "parity", *SMALL]
    if case == "data":
        line = ["train", "mnist", "--data", str(tmp_path / "data"), "--threads", "1"]
    elif case == "logger":
        (tmp_path / "data" / "wandb.py").write_text("from json import nothing_of_that_name")
        monkeypatch.syspath_prepend(str(tmp_path / "data"))
        line += ["--logger", "wandb"]
    else:
        line[line.index("--bits") + 1] = "1000000000000"
    assert main([*line, "--out", str(out), "--tags", "a,b", "--note", "a note"]) == 2
    assert capsys.readouterr().err.startswith("error: ")
    assert not (tmp_path / "runs").exists()


def test_what_was_there_before_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither an empty folder of the user's, nor a run that has begun."""
    out = tmp_path / "mine"
    out.mkdir()
    refused = ["train", "mnist", "--data", str(tmp_path / "none"), "--out", str(out)]
    assert main(refused) == 2
    assert out.is_dir()

    def stop(update: int, *_: object) -> None:
        raise KeyboardInterrupt

    config = RunConfig.make("parity", "plain", bits=4, width=4, depth=2, samples=8, batch=4, updates=4)
    with pytest.raises(KeyboardInterrupt):
        engine.train(config, tmp_path / "b", hardware=Hardware(threads=1, tensorboard=False), show=False, observe=stop)
    assert (tmp_path / "b" / "config.json").exists()
    assert (tmp_path / "b" / "metrics.jsonl").exists()
