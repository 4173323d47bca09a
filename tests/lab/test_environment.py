"""The commit that a run records: found without touching the repository."""

import subprocess
from pathlib import Path

import pytest

from mollifier_lab import environment


def test_the_commit_is_found_without_writing_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is killed while git rewrites the index would leave its lock behind."""

    def git(*words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        return subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    file = tmp_path / "environment.py"
    file.write_text("1")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "first")
    commit = git("rev-parse", "HEAD").strip()
    file.touch()  # git would note the new time in its index
    monkeypatch.setattr(environment, "__file__", str(file))
    before = (tmp_path / ".git" / "index").read_bytes()
    assert environment._commit() == commit
    assert (tmp_path / ".git" / "index").read_bytes() == before
    file.write_text("2")
    assert environment._commit() == f"{commit}-dirty"
