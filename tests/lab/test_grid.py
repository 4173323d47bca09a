"""Grids, folders that name themselves, dry runs, and what a config file may be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mollifier_lab import RunConfig
from mollifier_lab.cli import main, parse
from mollifier_lab.commands.default_folders import run_folder
from mollifier_lab.commands.train import Train
from mollifier_lab.errors import LabError
from mollifier_lab.grid import expand
from mollifier_lab.variants import parse_variants

SET = ["bits=4", "width=8", "depth=2", "samples=16", "batch=8", "updates=4", "evaluate_every=2"]


@pytest.mark.parametrize(
    ("methods", "grids", "wanted"),
    [
        (["plain", "mollified"], ["k=1,2"], ["plain", "mollified:k=1", "mollified:k=2"]),
        (["mollified:k=5", "copy"], ["k=1"], ["mollified:k=5", "copy:k=1"]),
        (["copy", "mollified"], ["c=1"], ["copy", "mollified:c=1"]),
        (["plain", "mollified"], ["then=plain,hold"], ["plain", "mollified:then=plain", "mollified:then=hold"]),
        (["noisy-activation", "copy"], ["push=odds"], ["noisy-activation:push=odds", "copy"]),
        (["residual"], ["width=4,8"], ["residual:width=4", "residual:width=8"]),
    ],
)
def test_a_method_is_varied_only_in_what_it_has(methods: list[str], grids: list[str], wanted: list[str]) -> None:
    assert [str(each) for each in expand(parse_variants(methods, "parity"), grids, "parity")] == wanted


@pytest.mark.parametrize(
    ("grid", "told"),
    [
        ("k", "--grid k: expected name=value,value"),
        ("k=", "expected name=value,value"),
        ("k=1,1.0", "1.0 is given twice"),
        ("k=fast", "k=fast: expected a finite number"),
        ("kk=1", "parity has no setting 'kk'"),
        (f"k={','.join(map(str, range(1, 10_002)))}", "10,002 variants; expected at most 10,000"),
        ("survival=0.5", "--grid survival: none of plain, mollified uses it"),
    ],
)
def test_a_grid_that_makes_no_sense_is_refused(grid: str, told: str) -> None:
    with pytest.raises(LabError) as caught:
        expand(parse_variants(["plain", "mollified"], "parity"), [grid], "parity")
    assert told in str(caught.value)


def test_compare_runs_a_grid_and_a_dry_run_tells_it_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    line = ["compare", "parity", "--methods", "plain", "mollified", "--grid", "k=1,2", "--grid", "lr=0.5"]
    line += ["--seeds", "1", "--set", *SET, "--quiet", "--threads", "1", "--out", "out"]
    assert main([*line, "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert "dry run: 3 runs; nothing was run or written" in told
    assert "out/mollified_k=2_lr=0.5/seed-0: mollified, k=2, lr=0.5, seed 0: empty" in told
    assert '"k": 2.0' in told
    assert not list(tmp_path.iterdir())
    assert main([*line, "--tags", "grid", "--note", "two values"]) == 0
    capsys.readouterr()
    assert {path.parent.parent.name for path in tmp_path.glob("out/*/*/result.json")} == {
        "plain_lr=0.5", "mollified_k=1_lr=0.5", "mollified_k=2_lr=0.5",
    }  # fmt: skip
    assert main([*line, "--dry-run", "--set", "gain=2"]) == 2
    assert "contains a different run: gain is 1.0 there, 2.0 is requested" in capsys.readouterr().out

    assert main(["ls", "out", "--tag", "grid"]) == 0
    rows = capsys.readouterr().out.splitlines()
    (row,) = [row for row in rows if "mollified_k=2" in row]
    assert [word in row for word in ("done", "k=2", "grid", "two values", "train_nll")] == [True] * 5
    assert main(["ls", "out", "--tag", "other"]) == 2


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ("--seeds 99999999999", "seeds=99999999999: expected at most 10000"),
        ("--pruner median", "expected it together with --search N"),
        ("--search-set updates=2", "expected it together with --search N"),
        ("--search 2 --best best.json", "--search and --best: expected one of them"),
    ],
)
def test_a_dry_run_refuses_what_the_run_would(flags: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "parity", "--dry-run", *flags.split()]) == 2
    assert told in capsys.readouterr().err


def test_train_and_search_dry_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--dry-run", "parity", "--preset", "quick", "--lr", "0.25"]) == 0
    told = capsys.readouterr().out
    printed = told[told.index("{") : told.rindex("}") + 1]
    assert RunConfig.from_json(printed) == RunConfig.make("parity", "mollified", preset="quick", lr=0.25)
    assert "runs/parity/mollified-quick_lr=0.25/seed-0" in told
    assert main(["search", "parity", "--trials", "3", "--dry-run"]) == 0
    assert "3 times, with lr from 0.001 to 3 (log), gain from 1 to 4 (linear), k from 1 to 1000 (log)" in capsys.readouterr().out  # fmt: skip
    assert not list(tmp_path.iterdir())


def test_yaml_and_the_task_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("task: mnist\nmethod: plain\npreset: quick\nsettings:\n  lr: 1e-3\n  depth: 4\n")
    (tmp_path / "a.json").write_text(
        json.dumps({"task": "mnist", "method": "plain", "preset": "quick", "settings": {"lr": 1e-3, "depth": 4}})
    )
    for name in ("a.yaml", "a.json"):
        for line in (["--config", str(tmp_path / name)], ["mnist", "--config", str(tmp_path / name)]):
            found = parse(["train", *line, "--width", "7"])
            assert isinstance(found, Train)
            wanted = RunConfig.make("mnist", "plain", preset="quick", lr=1e-3, depth=4, width=7)
            assert found.run_config() == wanted


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: [", "not YAML"),
        ("", "expected an object"),
        ("!!python/object/apply:os.system ['true']", "not YAML"),
        ("seed: one", "seed='one': expected a whole number"),
        ("imports: [1]", "imports: expected objects with source and sha256"),
        ("method: plain", "needs a task"),
    ],
)
def test_a_yaml_file_that_is_not_understood(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(text)
    with pytest.raises(LabError) as caught:
        parse(["train", "--config", str(tmp_path / "a.yml")])
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_of_long_settings_stay_short_and_differ() -> None:
    changes = {
        "bits": 4,
        "width": 8,
        "depth": 2,
        "samples": 16,
        "batch": 8,
        "evaluate_every": 2,
        "momentum": 0.12345,
        "gain": 1.5,
    }
    names = [run_folder(RunConfig.make("parity", "plain", **changes, lr=lr)).parent.name for lr in (0.1, 0.2)]
    assert names[0] != names[1]
    assert max(map(len, names)) < 120
