"""Given or chosen: every setting has a source, every source that the paper is named for is in the paper, and the docs say the same."""

import dataclasses
from pathlib import Path

import pytest

from mollifier_lab.cli import main
from mollifier_lab.settings import TASKS, settings_for
from mollifier_lab.settings.source_table import COMMON, GIVEN, PRESETS
from mollifier_lab.settings.sources import markdown, sources, table

DOCS = Path(__file__).parents[3] / "docs" / "settings.md"

# What the first version of the paper prints, read by hand: section or appendix, setting, value.
PRINTED = {
    "parity": {"bits": 40, "depth": 6, "activation": "sigmoid", "optimizer": "nesterov", "lr": 1e-3, "momentum": 0.92},
    "pentomino": {"train": 80_000, "width": 200, "depth": 6, "activation": "sigmoid", "optimizer": "sgd", "lr": 1e-3, "epochs": 100},
    "mnist": {"width": 100, "init": "glorot", "optimizer": "rmsprop", "lr": 4e-4, "batch": 500},
    "cifar10": {"depth": 110, "epochs": 500},
    "ptb": {"layers": 2, "gates": "hard-sigmoid", "weight_decay": 0.0},
    "characters": {"valid": 10_000, "depth": 5, "gates": "hard-sigmoid", "optimizer": "rmsprop", "lr": 6e-4, "momentum": 0.92, "batch": 64},
    "adding": {},
}  # fmt: skip
OF_THE_METHOD = {"schedule", "v", "anneal_every", "copy", "push", "unbiased_gates", "gain"}


@pytest.mark.parametrize("task", TASKS)
def test_every_setting_has_a_source_and_no_source_is_left_over(task: str) -> None:
    names = {each.name for each in dataclasses.fields(TASKS[task])}
    assert set(sources(task)) == names
    assert set(GIVEN[task]) <= names
    assert all(source.why for source in sources(task).values())
    assert set(PRESETS.get(task, {})) == set(TASKS[task].presets.get("published", {}))
    every = {each.name for kind in TASKS.values() for each in dataclasses.fields(kind)}
    assert set(COMMON) <= every


@pytest.mark.parametrize("task", TASKS)
def test_what_is_said_to_be_the_papers_is_what_the_paper_prints(task: str) -> None:
    given = {name for name, source in sources(task).items() if source.origin == "paper"}
    assert given - OF_THE_METHOD == set(PRINTED[task])
    settings = settings_for(task)
    assert {name: getattr(settings, name) for name in PRINTED[task]} == PRINTED[task]


@pytest.mark.parametrize("task", TASKS)
def test_the_docs_have_the_table(task: str) -> None:
    """To write it anew: mollifier tasks TASK --markdown."""
    section = DOCS.read_text().partition(f"\n## {task}\n\n")[2].partition("\n\n## ")[0]
    assert section.rstrip("\n") == markdown(task).rstrip("\n")


@pytest.mark.parametrize("task", TASKS)
def test_the_command_shows_it(task: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", task]) == 0
    out = capsys.readouterr().out
    for row in table(task):
        line = next(line for line in out.splitlines() if line.strip().startswith(f"{row.setting} "))
        assert row.value in line
        assert row.origin in line
    assert "chosen: ours" in out
    assert main(["tasks", task, "--markdown"]) == 0
    assert capsys.readouterr().out == markdown(task)


def test_a_task_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "pbt"]) == 2
    assert "no task 'pbt' (did you mean 'ptb'?)" in capsys.readouterr().err
    assert main(["tasks", "--markdown"]) == 2
    assert "--markdown needs a task" in capsys.readouterr().err
