"""Processes that end before their time, and what is said and kept then; with real processes and signals."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from mollifier_lab import RunConfig
from mollifier_lab.cli import main, parse
from mollifier_lab.commands.resume import Resume
from mollifier_lab.hardware import Hardware, resume_command
from mollifier_lab.runs import RunFolder
from tests.lab.processes import fork

LAB = [sys.executable, "-m", "mollifier_lab"]
LONG = [
    "--preset",
    "quick",
    "--bits",
    "8",
    "--width",
    "16",
    "--depth",
    "2",
    "--samples",
    "64",
    "--batch",
    "8",
    "--updates",
    "1000000",
    "--evaluate-every",
    "20",
]
SET = [
    "--preset",
    "quick",
    "--set",
    "bits=8",
    "width=16",
    "depth=2",
    "samples=64",
    "updates=1000000",
    "evaluate_every=20",
]


def start(*words: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("COV_", "PYTEST"))}
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": ":".join(filter(None, sys.path))}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(
        [*LAB, *words], **pipes, text=True, env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(4800):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("waited for four minutes")


def test_ctrl_c_while_it_imports_is_one_line(tmp_path: Path) -> None:
    for number in range(2):
        child = start("train", "parity", *LONG, "--quiet", "--out", str(tmp_path / str(number)))
        wait_for(lambda child=child, after=0.3 + 0.6 * number: psutil.Process(child.pid).cpu_times().user > after)
        child.send_signal(signal.SIGINT)
        _out, err = child.communicate(timeout=120)
        assert child.returncode == 130, err
        assert err == "interrupted\n" or "to resume: mollifier resume" in err
        assert err.count("\n") == 1, err


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_rank_ends_the_others_with_a_sentence(victim: int, tmp_path: Path) -> None:
    out = tmp_path / "a run"
    child = start("train", "parity", *LONG, "--quiet", "--devices", "2", "--accelerator", "cpu", "--threads", "1", "--out", str(out))  # fmt: skip
    wait_for(lambda: (out / "metrics.jsonl").exists() or child.poll() is not None)
    other = next(each for each in psutil.Process(child.pid).children() if "mollifier_lab.__main__" in each.cmdline())
    (psutil.Process(child.pid), other)[victim].send_signal(signal.SIGKILL)
    _, err = child.communicate(timeout=120)
    wait_for(lambda: not other.is_running() or other.status() == psutil.STATUS_ZOMBIE)
    assert "Traceback" not in err, err
    assert "another process of this run has ended" in err
    command = f"mollifier resume {shlex.quote(str(out))} --accelerator cpu --devices 2 --threads 1"
    assert f"To resume: {command}" in err
    assert child.returncode == (-9 if victim == 0 else 2)


def test_workers_die_with_their_parent(tmp_path: Path) -> None:
    child = start("compare", "parity", *SET, "--methods", "plain", "--seeds", "2", "--workers", "2", "--quiet", "--out", str(tmp_path / "out"))  # fmt: skip
    rows = [tmp_path / "out" / "plain" / f"seed-{seed}" / "metrics.jsonl" for seed in range(2)]
    wait_for(lambda: all(path.exists() for path in rows) or child.poll() is not None)
    family = psutil.Process(child.pid).children(recursive=True)
    assert len(family) >= 2
    child.kill()
    child.communicate()
    _, alive = psutil.wait_procs(family, timeout=20)
    assert not [each for each in alive if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]


def test_workers_that_are_just_starting_die_with_their_parent(tmp_path: Path) -> None:
    child = start("compare", "parity", *SET, "--methods", "plain", "--seeds", "2", "--workers", "2", "--quiet", "--out", str(tmp_path / "out"))  # fmt: skip
    workers: list[psutil.Process] = []

    def born() -> bool:
        with contextlib.suppress(psutil.Error):
            found = psutil.Process(child.pid).children(recursive=True)
            workers[:] = [each for each in found if "LokyProcess" in " ".join(each.cmdline())]
        return bool(workers) or child.poll() is not None

    wait_for(born)
    child.kill()  # long before a worker has imported anything
    assert workers
    _, alive = psutil.wait_procs(workers, timeout=90)
    assert not [each for each in alive if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
    child.communicate()


def test_the_hint_is_a_command_that_means_the_same(tmp_path: Path) -> None:
    hardware = Hardware(accelerator="cpu", devices=2, precision="64-true", threads=3, tensorboard=False)
    for seed in range(20):
        name = "".join(random.Random(seed).choices("ab '\"$;&\\*é", k=8)).strip() or "a"
        command = resume_command(tmp_path / name, tmp_path / f"data {name}", hardware)
        found = parse(shlex.split(command)[1:])
        assert found == Resume(tmp_path / name, tmp_path / f"data {name}", hardware=hardware)


def test_under_torchrun_the_hint_is_torchruns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert resume_command(Path("run"), None, Hardware()) == "torchrun --nproc-per-node 2 -m mollifier_lab resume run"


def test_an_interrupted_run_says_how_to_go_on_with_all_of_its_flags(tmp_path: Path) -> None:
    out = tmp_path / "a run"
    flags = ["--precision", "64-true", "--threads", "1", "--no-tensorboard"]
    child = start("train", "parity", *LONG, "--quiet", "--data", str(tmp_path / "my data"), "--out", str(out), *flags)
    wait_for(lambda: bool(RunFolder(out).rows()) or child.poll() is not None)  # then it heeds signals
    child.send_signal(signal.SIGTERM)
    _, err = child.communicate(timeout=120)
    assert child.returncode == 130
    expected = shlex.join(["mollifier", "resume", str(out), "--data", str(tmp_path / "my data"), *flags])
    assert f"to resume: {expected}\n" in err


def test_a_study_that_was_interrupted_names_its_data(tmp_path: Path) -> None:
    from mollifier_lab.study import study_command

    command = study_command("parity", ["plain"], 1, tmp_path / "an out", data=tmp_path / "my data", threads=2)
    assert shlex.split(command)[-6:] == ["--out", str(tmp_path / "an out"), "--data", str(tmp_path / "my data"), "--threads", "2"]  # fmt: skip


def on_a_full_disk(limit: int, words: list[str], said: Path) -> None:
    """No file can grow beyond some bytes; a command in this process, and what it says."""
    import mollifier_lab.trials  # noqa: F401  what is imported from here on may be compiled, and can not be written

    err = io.StringIO()
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    # pytest keeps what is printed in a file, which is no larger than others may be
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
        code = main(words)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    said.write_text(err.getvalue())
    os._exit(code)


def test_a_full_disk_is_named_by_every_command(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.write("config.json", RunConfig.make("parity", "plain", preset="quick", bits=4, width=8, depth=2).to_json())
    run.write("metrics.jsonl", json.dumps({"update": 0, "epoch": 0.0, "train_nll": 0.7}) + "\n")
    shutil.copytree(run.path, tmp_path / "other")
    small = [
        "--preset",
        "quick",
        "--set",
        "bits=4",
        "width=8",
        "depth=2",
        "samples=16",
        "updates=4",
        "--quiet",
        "--threads",
        "1",
    ]
    lines = {
        "train": (1500, ["train", "parity", "--preset", "quick", "--quiet", "--no-tensorboard"]),
        "resume": (1500, ["resume", str(tmp_path / "other"), "--no-tensorboard", "--quiet"]),
        "report": (2000, ["report", str(run.path)]),
        "figures": (2000, ["figures", "schedules"]),
        "compare": (100, ["compare", "parity", "--methods", "plain", "--seeds", "1", *small]),
        "search": (5000, ["search", "parity", "--method", "plain", "--trials", "2", *small]),
    }  # fmt: skip
    for name, (limit, words) in lines.items():
        out = [] if name in ("resume", "report") else ["--out", str(tmp_path / name)]
        code = fork(on_a_full_disk, limit, [*words, *out], tmp_path / f"{name}.txt").wait()
        err = (tmp_path / f"{name}.txt").read_text()
        assert code == 2, (name, err)
        assert str(tmp_path) in err, (name, err)
        assert err.count("\n") == 1, (name, err)
        assert "this is a bug in mollifier" not in err, (name, err)
