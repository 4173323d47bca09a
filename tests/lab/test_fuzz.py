"""A few hundred of the mutations that `make fuzz` draws without end, always the same ones; and one run through many damages and stops in a row."""

import random
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from mollifier_lab import cli, engine
from mollifier_lab.errors import LabError
from mollifier_lab.runs import RunFolder
from tests.lab.fuzz import QUIET, Fuzz, numbers, stop_at
from tests.lab.mutations import FLAGS, mutate


@pytest.fixture(scope="module")
def fuzz(tmp_path_factory: pytest.TempPathFactory) -> Fuzz:
    return Fuzz(tmp_path_factory.mktemp("fuzz"))


def test_command_lines(fuzz: Fuzz) -> None:
    for seed in range(220):
        fuzz.mistype(list(FLAGS)[seed % len(FLAGS)], random.Random(seed))
    assert fuzz.found.wrong == []


@pytest.mark.parametrize(("kind", "count"), [("run", 20), ("half", 40), ("config", 20), ("search", 6), ("study", 3)])
def test_files(kind: str, count: int, fuzz: Fuzz) -> None:
    for seed in range(count):
        fuzz.damage(kind, random.Random(seed))
    assert fuzz.found.wrong == []


def test_the_invariant_can_fail(fuzz: Fuzz, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(cli, "parse", lambda args: {}["none"])
        fuzz.call("tasks")
    folder = fuzz.copy("run")
    with monkeypatch.context() as patch:
        patch.setattr("mollifier_lab.seal.damage", lambda folder: {})  # records are believed
        result = folder / "result.json"
        result.write_text(result.read_text().replace('"updates": 4', '"updates": 3'))
        fuzz._run(folder, result, random.Random(3))
    assert [each.split()[0] for each in fuzz.found.wrong] == ["2", "silently"]
    fuzz.found.wrong.clear()


def test_one_run_through_many_damages_and_stops(fuzz: Fuzz) -> None:
    """Whatever happens to its folder between two stops, a run that comes to its end has the numbers of one that was left alone."""
    hardware = engine.Hardware(threads=1, tensorboard=False)

    class OneRun(RuleBasedStateMachine):
        @initialize()
        def copy(self) -> None:
            self.folder = fuzz.copy("half")

        @rule(seed=st.integers(0, 2**32))
        def damage(self, seed: int) -> None:
            # not the seal: without it nobody can tell a forged checkpoint from a good one
            files = sorted(path for path in self.folder.rglob("*") if path.is_file() and path.name != "seal.json")
            if files and RunFolder(self.folder).status == "started":
                path = random.Random(seed).choice(files)
                mutate(path, random.Random(seed))

        @rule(update=st.integers(7, 12))
        def stop(self, update: int) -> None:
            """Go on, and be stopped; what is refused is as it was."""
            try:
                stop_at(None, self.folder, hardware, update)
            except (LabError, OSError):
                shutil.rmtree(self.folder)
                self.folder = fuzz.copy("half")

        @rule()
        def end(self) -> None:
            if fuzz.call("resume", str(self.folder), *QUIET) == 0:
                fuzz.hold(numbers(self.folder) == numbers(fuzz.good / "whole"), "resumed to other numbers")
            assert fuzz.found.wrong == []
            self.folder = fuzz.copy("half")

    options = settings(
        max_examples=12, stateful_step_count=8, derandomize=True, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    run_state_machine_as_test(OneRun, settings=options)


def test_the_folders_are_made_whole(fuzz: Fuzz) -> None:
    assert RunFolder(fuzz.good / "half").status == "started"
    assert len(list((fuzz.good / "half" / "checkpoints").glob("update-*.pt"))) == 2
    assert RunFolder(fuzz.good / "run").status == "done"
    assert Path(fuzz.good / "search" / "best.json").exists()
