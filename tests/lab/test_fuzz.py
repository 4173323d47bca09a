"""A few hundred of the mutations that `make fuzz` draws without end, always the same ones."""

import random
from pathlib import Path

import pytest

from mollifier_lab import cli
from tests.lab.fuzz import FLAGS, Fuzz


@pytest.fixture(scope="module")
def fuzz(tmp_path_factory: pytest.TempPathFactory) -> Fuzz:
    return Fuzz(tmp_path_factory.mktemp("fuzz"))


def test_command_lines(fuzz: Fuzz) -> None:
    for seed in range(180):
        fuzz.mistype(list(FLAGS)[seed % len(FLAGS)], random.Random(seed))
    assert fuzz.found.wrong == []


@pytest.mark.parametrize(("kind", "count"), [("run", 16), ("half", 16), ("search", 3), ("study", 2)])
def test_files(kind: str, count: int, fuzz: Fuzz) -> None:
    for seed in range(count):
        fuzz.damage(kind, random.Random(seed))
    assert fuzz.found.wrong == []


def test_the_invariant_can_fail(fuzz: Fuzz, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(cli, "parse", lambda args: {}["none"])
        fuzz.call("tasks")
    assert len(fuzz.found.wrong) == 1
    fuzz.found.wrong.clear()
