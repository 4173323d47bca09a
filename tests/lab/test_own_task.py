"""The guide's own task with two processes, with Dask and with Ray: killed by SIGKILL, run again, and the same bytes as without all that."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from mollifier_lab import imports
from mollifier_lab.backends import Backend
from mollifier_lab.study import compare
from tests.lab import guide
from tests.lab.processes import fork

TINY = {"samples": 100, "updates": 200, "evaluate_every": 50, "save_every": 25}
METHODS = ["plain", "half-time"]


def study(code: Path, out: Path, **where: Any) -> None:
    imports.load(code)
    runs = compare("spirals", METHODS, 2, out, changes=TINY, threads=1, show=False, **where)
    assert [run.status for run in runs] == ["done"] * 4


def contents(out: Path) -> dict[str, bytes]:
    names = ("config.json", "metrics.jsonl", "model.safetensors")
    return {str(path.relative_to(out)): path.read_bytes() for name in names for path in out.rglob(name)}


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return guide.save(tmp_path_factory.mktemp("code"))


@pytest.fixture(scope="module")
def here(code: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """From this process, one after the other, with nothing happening to it."""
    out = tmp_path_factory.mktemp("here")
    with guide.as_before(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(imports, "trust", lambda source: None)
        study(code, out)
    found = contents(out)
    assert len(found) == 12
    return found


@pytest.fixture(autouse=True)
def workers_find_the_tests(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PYTHONPATH", ":".join(filter(None, sys.path)))
    monkeypatch.setattr(imports, "trust", lambda source: None)
    with guide.as_before():
        yield


def until_killed(code: Path, out: Path, path: str, where: dict[str, Any]) -> None:
    os.environ["PYTHONPATH"] = path
    imports.trust = lambda source: None
    os.setsid()
    study(code, out, **where)


@pytest.mark.parametrize("backend", ["loky", "dask", "ray"])
def test_killed_and_run_again_it_is_the_same(
    backend: Backend, code: Path, here: dict[str, bytes], tmp_path: Path
) -> None:
    where = {"backend": backend, "workers": 2}
    child = fork(until_killed, code, tmp_path, os.environ["PYTHONPATH"], where)
    while not list(tmp_path.glob("*/*/checkpoints/update-*.pt")):
        assert child.process.is_alive(), "it ended before it was killed"
        time.sleep(0.005)
    assert child.process.pid is not None
    study_itself = psutil.Process(child.process.pid)
    for each in [*study_itself.children(recursive=True), study_itself]:
        # workers of Ray end by themselves as soon as their raylet is killed
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    child.process.join()
    left = list(tmp_path.glob("*/*/result.json"))
    assert len(left) < 4, "nothing was left to do"
    study(code, tmp_path, **where)
    assert contents(tmp_path) == here
