"""The studies of the reproduction: each can be run as it is written, and `mollifier reproduce` runs it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mollifier_lab import reproduction
from mollifier_lab.cli import main
from mollifier_lab.reproduction import CONTROLS, STUDIES, Study
from mollifier_lab.runs import RunFolder, find_runs
from mollifier_lab.search import search_space
from mollifier_lab.settings import TASKS
from mollifier_lab.settings.reported import in_paper
from mollifier_lab.variants import parse_changes, parse_variants


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_and_its_smoke_version_can_be_run(name: str) -> None:
    for study in (STUDIES[name], STUDIES[name].smoke_version()):
        common, short = parse_changes(study.changes, study.task), parse_changes(study.trial_changes, study.task)
        for variant in parse_variants(study.methods, study.task):
            variant.config(study.task, study.seeds - 1, study.preset, common)
            variant.config(study.task, 0, study.preset, common | short)
            if study.trials:
                drawn = search_space(study.task, variant.method, {**common, **variant.changes})
                assert not set(drawn) & set(short)
    full, small = STUDIES[name], STUDIES[name].smoke_version()
    assert small.methods == full.methods
    assert bool(small.trials) == bool(full.trials)
    assert small.changes["updates"] < 20


def test_the_studies_are_what_was_asked_for() -> None:
    assert {study.task for study in STUDIES.values()} == set(TASKS) - {"adding"}  # which the paper does not have
    for name in ("pentomino", "parity-1000", "parity-10000", "parity-variable-20", "mnist-72", "mnist-appendix"):
        assert set(CONTROLS) <= set(STUDIES[name].methods)
    for task, kind in TASKS.items():
        run = {method for study in STUDIES.values() if study.task == task for method in study.methods}
        assert set(in_paper(kind)) <= run
    assert all(8 <= study.trials <= 16 for study in STUDIES.values() if study.trials)
    assert STUDIES["parity-printed"].trials == 0
    added = {
        "pentomino-fixed": 1.1,
        "mnist-fixed": 1.1,
        "parity-prefix-20": 0.9,
        "parity-prefix-40": 0.9,
        "ptb-2-same-rate": 1.2,
        "ptb-3-same-rate": 0.6,
    }
    assert sum(study.estimate for study in STUDIES.values() if study.here and study.name not in added) < 26
    assert sum(STUDIES[name].estimate for name in ("pentomino-fixed", "mnist-fixed")) < 1.1
    assert all(STUDIES[name].estimate < hours for name, hours in added.items())


def test_the_list_gives_the_hours(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce"]) == 0
    told = capsys.readouterr().out
    assert all(name in told for name in STUDIES)
    line = next(line for line in told.splitlines() if line.strip().startswith("pentomino"))
    # 7 methods × (5 seeds + 8 trials of a quarter) × 0.2 hours on two cores
    assert line.split()[-1] == "4.9"


def test_studies_are_run_and_those_without_data_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parity = replace(STUDIES["parity-1000"], methods=("plain:gain=1", "mollified"))
    after = Study(
        name="after", task="parity", claim="with what was found", methods=("mollified",), seeds=1, hours=0.0, trials=0,
        best_of=parity.name, smoke=parity.smoke,
    )  # fmt: skip
    few = {study.name: study for study in (parity, after, STUDIES["ptb-2"])}
    monkeypatch.setattr("mollifier_lab.commands.reproduce.STUDIES", few)
    words = ["--smoke", "--quiet", "--workers", "1", "--data", str(tmp_path / "none"), "--out", str(tmp_path / "out")]
    assert main(["reproduce", "all", *words]) == 0
    told = capsys.readouterr()
    assert "studies: 2 done, 0 with failed runs, 1 skipped" in told.out
    assert "skipped: ptb-2: Penn Treebank" in told.out
    assert "ptb.train.txt, ptb.valid.txt, ptb.test.txt not found. To download: mollifier data ptb" in told.out
    assert "skipped: ptb-2" in told.err
    assert "lr on 2 trials" in told.out
    runs = [run.path.relative_to(tmp_path / "out").as_posix() for run in find_runs(tmp_path / "out")]
    assert runs == [
        "parity/after/mollified/seed-0",
        *(f"parity/parity-1000/{name}/seed-{seed}" for name in ("mollified", "plain_gain=1") for seed in range(2)),
    ]
    first, again = (
        RunFolder(tmp_path / "out" / "parity" / name / "mollified/seed-0").config().settings
        for name in ("after", "parity-1000")
    )
    assert (first.lr, first.k) == (again.lr, again.k)
    command = json.loads((tmp_path / "out/parity/parity-1000/study.json").read_text())["command"]
    assert (
        command
        == f"mollifier reproduce parity-1000 --smoke --out {tmp_path / 'out'} --data {tmp_path / 'none'} --workers 1"
    )
    assert main(["reproduce", "ptb-2", *words]) == 2
    assert "mollifier data ptb" in capsys.readouterr().err
    assert main(["reproduce", "parity-100"]) == 2
    assert "parity-1000" in capsys.readouterr().err


def test_the_makefile_runs_the_smoke_version_of_all() -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    assert "mollifier reproduce all --smoke" in makefile.partition("results-quick: ")[2].partition("\n\n")[0]
    assert reproduction.CORES == 2
