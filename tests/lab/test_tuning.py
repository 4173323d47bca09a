"""A search for every variant, then the seeds of the best: what is shared, what is written, what is never looked at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from mollifier_lab.cli import main
from mollifier_lab.errors import LabError
from mollifier_lab.report import report
from mollifier_lab.runs import RunFolder, find_runs
from mollifier_lab.search import search
from mollifier_lab.settings import RunConfig
from mollifier_lab.study import study_command
from mollifier_lab.tasks.parity import ParityTask
from mollifier_lab.tuned import Tuned
from mollifier_lab.tuning import compare_best, found_best, tune
from tests.lab.processes import fork
from tests.lab.test_study import times, wait_for

TINY = {"bits": 6, "width": 8, "depth": 2, "samples": 64, "updates": 60, "evaluate_every": 20, "save_every": 20}
VARIANTS = ("plain:gain=1", "plain", "mollified")
FLAGS = [
    "--preset",
    "quick",
    "--quiet",
    "--threads",
    "1",
    "--set",
    *(f"{name}={value}" for name, value in TINY.items()),
]


def tiny(out: Path, variants: Any = VARIANTS, trials: int = 3, seeds: int = 2, **more: Any) -> list[RunFolder]:
    given = {"preset": "quick", "changes": TINY, "trial_changes": {"updates": 20}, "threads": 1, "show": False}
    return tune("parity", variants, trials, seeds, out, **given | more)


def trials(out: Path, variant: str) -> list[RunFolder]:
    return [RunFolder(path) for path in sorted((out / "search" / variant).glob("trial-*")) if path.is_dir()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study that nothing has happened to."""
    out = tmp_path_factory.mktemp("whole")
    tiny(out)
    return out


def test_all_variants_get_as_many_trials_with_the_same_draws(whole: Path) -> None:
    found = {
        name: [run.config().settings for run in trials(whole, name)] for name in ("plain_gain=1", "plain", "mollified")
    }
    assert {name: len(each) for name, each in found.items()} == {"plain_gain=1": 3, "plain": 3, "mollified": 3}
    assert len({tuple(settings.lr for settings in each) for each in found.values()}) == 1
    assert [each.gain for each in found["plain"]] == [each.gain for each in found["mollified"]]
    assert {each.gain for each in found["plain_gain=1"]} == {1.0}
    assert {each.updates for settings in found.values() for each in settings} == {20}


def test_the_best_trial_is_what_is_compared(whole: Path) -> None:
    for variant in ("plain_gain=1", "plain", "mollified"):
        values = {
            run.json("result.json")["final"]["train_nll"]: run.config().settings for run in trials(whole, variant)
        }
        best = values[min(values)]
        for seed in range(2):
            run = RunFolder(whole / variant / f"seed-{seed}")
            settings = run.config().settings
            assert (settings.lr, settings.gain, settings.k, settings.updates) == (best.lr, best.gain, best.k, 60)
            assert "test_error" in run.json("result.json")["final"]


def test_what_was_searched_is_written_and_shown(whole: Path) -> None:
    facts = json.loads((whole / "study.json").read_text())
    tuned = facts["tuned"]["mollified"]
    assert (tuned["trials"], list(tuned["ranges"])) == (3, ["lr", "gain", "k", "c"])
    assert tuned["chosen"].keys() == tuned["ranges"].keys()
    assert "--search 3 --search-set updates=20" in facts["command"]
    made = report(whole)
    assert [(row.variant, row.tuned) for row in made.rows] == [
        ("plain", "lr, gain on 3 trials"),
        ("plain, gain=1", "lr on 3 trials"),
        ("mollified", "lr, gain, k, c on 3 trials"),
    ]
    assert {row.done for row in made.rows} == {2}  # the trials are no seeds
    assert "3 trials with updates=20: lr " in made.page.read_text()
    assert "lr, gain on 3 trials" in (whole / "table.csv").read_text()


def test_a_trial_never_looks_at_the_test_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    plain = ParityTask.evaluate

    def watched(task: Any, model: nn.Module, split: str, device: torch.device) -> dict[str, float]:
        asked.append(split)
        return plain(task, model, split, device)

    monkeypatch.setattr(ParityTask, "evaluate", watched)
    search("parity", "mollified", 2, tmp_path, preset="quick", changes=TINY, threads=1, show=False)
    assert set(asked) == {"train"}
    for path in tmp_path.glob("trial-*/*"):
        if path.suffix in (".json", ".jsonl") and path.name not in ("config.json", "environment.json"):
            assert "test" not in path.read_text(), path
    assert RunFolder(tmp_path / "trial-0000").config().trial
    assert not RunConfig.from_json((tmp_path / "best.json").read_text()).trial


def test_what_is_done_is_not_run_again_and_more_seeds_are_added(whole: Path) -> None:
    before = {path: at for path, at in times(whole).items() if path.name in ("result.json", "metrics.jsonl")}
    tiny(whole, seeds=3)
    after = {path: at for path, at in times(whole).items() if path.name in ("result.json", "metrics.jsonl")}
    assert before.items() <= after.items()
    assert len(after) - len(before) == 3 * 2  # a new seed of each variant
    with pytest.raises(LabError, match="contains a different run"):
        tiny(whole, search_seed=7)


def test_killed_in_the_search_and_run_again_it_is_bit_for_bit_the_same(whole: Path, tmp_path: Path) -> None:
    killed = fork(tiny, tmp_path)
    wait_for(lambda: (tmp_path / "search" / "plain" / "trial-0001" / "metrics.jsonl").exists())
    killed.kill()
    killed.wait()
    assert not (tmp_path / "plain").exists()
    tiny(tmp_path)
    names = [
        path.relative_to(tmp_path)
        for path in tmp_path.rglob("*")
        if path.name in ("metrics.jsonl", "tuned.json", "best.json")
    ]
    assert len(names) == 9 + 6 + 3 + 3
    assert all((tmp_path / name).read_bytes() == (whole / name).read_bytes() for name in names)


def test_where_all_trials_diverge_the_table_says_so(tmp_path: Path) -> None:
    tiny(tmp_path, ["plain:activation=relu,lr=1e30"], trials=2, seeds=1)
    found = Tuned.read(tmp_path / "plain_activation=relu_lr=1e+30")
    assert found is not None
    assert (found.chosen, found.summary) == ({}, "gain on 2 trials: all diverged, none chosen")
    row = report(tmp_path).rows[0]
    assert (row.average, row.tuned) == ("diverged", found.summary)


def test_compare_takes_what_a_search_found(tmp_path: Path) -> None:
    found = search(
        "parity", "mollified", 2, tmp_path / "s", preset="quick", changes=TINY | {"updates": 20}, threads=1, show=False
    )
    words = ["compare", "parity", *FLAGS, "--methods", "mollified", "mollified:k=5", "plain", "--seeds", "1"]
    assert main([*words, "--best", str(found.path), "--out", str(tmp_path / "out")]) == 0
    drawn = {name: getattr(found.config.settings, name) for name in ("lr", "gain", "k", "c")}
    whole, fixed, plain = (
        RunFolder(tmp_path / "out" / name / "seed-0").config().settings
        for name in ("mollified", "mollified_k=5", "plain")
    )
    assert {name: getattr(whole, name) for name in drawn} == drawn
    assert (fixed.k, fixed.lr, plain.lr, whole.updates) == (5.0, drawn["lr"], 1.0, 60)
    tuned = {row.variant: row.tuned for row in report(tmp_path / "out").rows}
    assert tuned == {
        "plain": "",
        "mollified": "lr, gain, k, c on 2 trials",
        "mollified, k=5": "lr, gain, c on 2 trials",
    }
    assert f"--best {found.path}" in json.loads((tmp_path / "out" / "study.json").read_text())["command"]


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    words = ["compare", "parity", *FLAGS, "--methods", "plain", "--seeds", "1", "--out", str(out)]
    assert main([*words, "--search", "2", "--search-set", "updates=20"]) == 0
    assert "lr, gain on 2 trials" in capsys.readouterr().out
    assert len(find_runs(out)) == 1
    assert len(find_runs(out / "search" / "plain")) == 2  # asked for, they are shown
    for wrong, message in (
        (["--search", "2", "--best", "x"], "expected one of them"),
        (["--search-set", "updates=2"], "expected it together with --search N"),
        (["--best", str(out / "none.json")], "expected the best.json of"),
        (["--search", "2", "--search-set", "lr=2"], "the trials are meant to find it"),
    ):
        assert main([*words, *wrong]) == 2
        assert message in capsys.readouterr().err


def test_files_that_are_not_of_a_search(tmp_path: Path) -> None:
    path = tmp_path / "best.json"
    path.write_text(RunConfig.make("parity", "plain").to_json())
    with pytest.raises(LabError, match=r"search\.json does not exist"):
        found_best(path, "parity")
    (tmp_path / "search.json").write_text("{}")
    with pytest.raises(LabError, match="not what `mollifier search` writes"):
        found_best(path, "parity")
    made = search("parity", "plain", 1, tmp_path / "s", preset="quick", changes=TINY, threads=1, show=False)
    with pytest.raises(LabError, match="belongs to task 'parity', not 'mnist'"):
        found_best(made.path, "mnist")
    with pytest.raises(LabError, match="belongs to method 'plain', which is not compared"):
        compare_best("parity", ["mollified"], 1, tmp_path / "out", best=[made.path])


def test_the_command_says_all() -> None:
    command = study_command(
        "parity", ["plain"], 2, "out", trials=4, trial_changes=["updates=9"], search_seed=3, best=["a.json"]
    )
    assert command.endswith("--search 4 --search-set updates=9 --search-seed 3 --best a.json --out out")
