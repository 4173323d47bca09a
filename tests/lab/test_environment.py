"""The commit that a run records: found without touching the repository."""

import os
import subprocess
from pathlib import Path

import pytest
import torch

from mollifier_lab import environment


def test_the_commit_is_found_without_writing_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is killed while git rewrites the index would leave its lock behind."""

    def git(*words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        return subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    file = tmp_path / "src" / "mollifier_lab" / "environment.py"
    file.parent.mkdir(parents=True)
    file.write_text("1")
    results = tmp_path / "results.csv"
    results.write_text("1")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "first")
    commit = git("rev-parse", "HEAD").strip()
    file.touch()  # git would note the new time in its index
    monkeypatch.setattr(environment, "__file__", str(file))
    before = (tmp_path / ".git" / "index").read_bytes()
    assert environment._commit() == commit
    assert (tmp_path / ".git" / "index").read_bytes() == before
    results.write_text("2")
    assert environment._commit() == commit
    file.write_text("2")
    assert environment._commit() == f"{commit}-dirty"


def test_variables_that_change_numbers_are_recorded_without_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(environment.CHOOSING)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("MKL_DYNAMIC", "")
    monkeypatch.setenv("HOME_OF_SECRETS", "1")
    monkeypatch.setenv("LD_PRELOAD", "/home/ann/one.so /opt/two.so")
    found = environment.environment(torch.device("cpu"), 1)["machine"]["variables"]
    assert found == {"LD_PRELOAD": "one.so two.so", "OMP_NUM_THREADS": "3"}
