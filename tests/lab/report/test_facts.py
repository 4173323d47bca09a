"""Settings, environment and commands."""

import dataclasses
import json
import shlex
from pathlib import Path

import pytest

from mollifier_lab.commands.train import Train
from mollifier_lab.report import report
from mollifier_lab.report.facts import (
    environment_rows,
    full_name,
    outcome,
    recorded_commands,
    setting_rows,
    train_command,
    unlike_default,
    what_was_run,
)
from mollifier_lab.report.reading import Run, VariantRuns, read, variants
from mollifier_lab.report.summary import table
from mollifier_lab.runs import find_runs
from mollifier_lab.settings import RunConfig
from tests.lab.report.conftest import Written
from tests.lab.report.folders import ENVIRONMENT, write_run


def both(root: Path) -> tuple[list[Run], list[VariantRuns]]:
    write_run(root / "plain" / "seed-0", RunConfig.make("parity", "plain", preset="quick", lr=0.25), rows=2)
    other = write_run(root / "it's" / "seed-3", RunConfig.make("parity", "mollified", 3, "quick", loss_average=0.9), rows=2)  # fmt: skip
    (other / "environment.json").write_text(json.dumps(ENVIRONMENT | {"torch": "2.8.0", "command": ["worker.py"]}))
    runs = read(find_runs(root))[0]
    return runs, variants(runs)[0]


def test_settings_that_differ_come_first(tmp_path: Path) -> None:
    changed, same = setting_rows(both(tmp_path)[1])
    assert changed == [("lr", ["0.25", "1"]), ("loss_average", ["0.99", "0.9"])]
    assert ("width", ["100", "100"]) in same
    assert not {"lr", "loss_average"} & {name for name, _ in same}


def test_what_is_not_the_papers_setting_is_said(tmp_path: Path) -> None:
    assert unlike_default(both(tmp_path)[1]) == [
        "batch=100 (128)", "updates=2000 (102000)", "k=10 (100)", "samples=1000 (2000)", "width=100 (200)",
    ]  # fmt: skip


def test_the_environment_with_the_runs_that_differ(tmp_path: Path) -> None:
    found = dict(environment_rows(both(tmp_path)[0]))
    assert found["torch"] == ["2.8.0 (1 run)", "2.9.0 (1 run)"]
    assert found["machine.cores"] == ["2"]
    assert "command" not in found


def test_commands_that_a_shell_reads_as_they_are_meant(tmp_path: Path) -> None:
    runs, _ = both(tmp_path)
    assert recorded_commands(runs) == ["mollifier compare parity --preset quick --seeds 5"]
    assert [train_command(run, tmp_path) for run in runs] == [
        "mollifier train parity --method mollified --preset quick --loss-average 0.9 --seed 3 --out 'it'\"'\"'s/seed-3'",
        "mollifier train parity --method plain --preset quick --lr 0.25 --seed 0 --out plain/seed-0",
    ]
    assert train_command(runs[1], runs[1].folder.path).endswith("--out seed-0")


def test_a_command_makes_the_same_run(study: Written) -> None:
    for run in read(find_runs(study.root))[0][::5]:
        words = shlex.split(train_command(run, study.root))
        assert words[:2] == ["mollifier", "train"]
        assert Train.parse(words[2:], "mollifier train").run_config() == run.config


def test_the_lead_says_what_was_run_and_not_the_default(tmp_path: Path) -> None:
    for number, depth in enumerate((2, 2, 3, 4, 5)):
        config = RunConfig.make("parity", "plain", preset="quick", bits=8, width=16, depth=depth, lr=0.1 + number)
        write_run(tmp_path / str(number), config, rows=2)
    found = variants(read(find_runs(tmp_path))[0])[0]
    assert what_was_run(found[:1]) == "8-bit parity, 2×16 sigmoid MLP"
    assert what_was_run(found).count("8-bit parity") == 3
    assert what_was_run(found).endswith("and 1 more like these")


def test_a_full_name_has_every_setting_that_differs(tmp_path: Path) -> None:
    found = both(tmp_path)[1]
    assert full_name(found[0], found) == "plain; lr=0.25, loss_average=0.99"


def test_a_trial_is_judged_by_its_curve_not_by_the_test_set_that_it_never_sees(tmp_path: Path) -> None:
    config = dataclasses.replace(RunConfig.make("mnist", "plain"), trial=True)
    folder = write_run(tmp_path / "trial-0000", config, rows=2)
    result = json.loads((folder / "result.json").read_text()) | {"final": {"valid_error": 0.25}}
    (folder / "result.json").write_text(json.dumps(result))
    row = report(tmp_path).rows[0]
    assert (row.metric, row.final.mean, row.diverged, row.reported) == ("valid_error", 0.25, 0, "–")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"plain": (0.5, 0.52), "mollified": (0.1, 0.11)}, "mollified, 0.105; the baseline, plain, has 0.510. The 95 % interval of their paired difference excludes 0."),
        ({"plain": (0.5, 0.1), "mollified": (0.1, 0.4)}, "mollified, 0.250; the baseline, plain, has 0.300. The 95 % interval of their paired difference includes 0."),
        ({"plain": (0.1,), "mollified": (0.5,)}, "plain, 0.100. It is the baseline: the best that anneals nothing."),
        ({"plain": (0.5,), "mollified": (0.1,)}, "mollified, 0.100; the baseline, plain, has 0.500. Too few seeds to tell them apart."),
        ({"copy": (0.5,), "mollified": (0.1,)}, "mollified, 0.100."),
        ({"mollified": (0.1, 0.2)}, ""),
    ],
)  # fmt: skip
def test_the_outcome_in_a_sentence(values: dict[str, tuple[float, ...]], said: str, tmp_path: Path) -> None:
    for method, finals in values.items():
        for seed, final in enumerate(finals):
            config = RunConfig.make("parity", method, seed, "quick")
            write_run(tmp_path / "study" / method / f"seed-{seed}", config, rows=2, final=final)
    assert outcome(table(find_runs(tmp_path))) == (said and f"Lowest training NLL at the end: {said}")
