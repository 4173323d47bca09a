"""`mollifier train`: which settings a line means, and what it does with a folder that contains a run."""

import dataclasses
import json
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from mollifier_lab import TASKS, LabError, RunConfig
from mollifier_lab.cli import main, parse
from mollifier_lab.commands.train import Train
from mollifier_lab.hardware import Hardware
from mollifier_lab.runs import RunFolder
from mollifier_lab.settings import settings_for

TINY = (
    "--bits 6 --width 8 --depth 2 --samples 64 --batch 16 --updates 40 --evaluate-every 10 --threads 1 --no-tensorboard"
)


def config(*args: str) -> RunConfig:
    found = parse(["train", *args])
    assert isinstance(found, Train)
    return found.run_config()


@pytest.mark.parametrize("task", TASKS)
def test_without_flags_it_is_the_preset_named_paper(task: str) -> None:
    assert config(task) == RunConfig.make(task, "mollified")


def test_flags_come_over_the_file_over_the_preset_over_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "best.json"
    file.write_text(json.dumps({"method": "plain", "seed": 3, "settings": {"k": 3, "lr": 0.5}}))
    found = config("parity", "--preset", "quick", "--config", str(file), "--lr", "0.25")
    assert found == RunConfig.make("parity", "plain", 3, "quick", k=3.0, lr=0.25)
    assert (found.settings.width, found.settings.momentum) == (100, 0.92)
    assert type(found.settings.k) is float


def test_the_config_of_a_run_gives_the_same_run(tmp_path: Path) -> None:
    made = RunConfig.make("ptb", "gates", 7, "quick", "a label", layers=3)
    (tmp_path / "config.json").write_text(made.to_json())
    assert config("ptb", "--config", str(tmp_path / "config.json")) == made


def other(value: Any, hint: Any) -> Any:
    """Another value of a setting."""
    if get_origin(hint) is Literal:
        return next(choice for choice in get_args(hint) if choice != value)
    if hint is bool:
        return not value
    return value + 1 if hint is int else value * 0.5 + 0.01


@pytest.mark.parametrize("task", TASKS)
def test_every_setting_of_a_task_has_a_flag(task: str) -> None:
    kind = TASKS[task]
    hints = get_type_hints(kind)
    given = settings_for(task, "quick")
    changed = {each.name: other(getattr(given, each.name), hints[each.name]) for each in dataclasses.fields(kind)}
    changed |= {"horizon": 5.0, "updates": 7, "v": "one"} | ({"train": 9} if "train" in changed else {})
    changed |= {"time": "position"} if "carry_time" in changed else {}
    flags = []
    for name, value in changed.items():
        flag = name.replace("_", "-")
        switch = f"--{flag}" if value else f"--no-{flag}"
        flags += [switch] if hints[name] is bool else [f"--{flag}", str(value)]
    assert config(task, "--preset", "quick", *flags).settings == kind(**changed)


def test_switches_take_no_word_after_them() -> None:
    found = config("--no-copy", "--no-flush-denormal", "ptb", "--unbiased-gates", "--preset", "quick")
    assert found == RunConfig.make(
        "ptb", "mollified", 0, "quick", copy=False, flush_denormal=False, unbiased_gates=True
    )


def test_no_setting_takes_the_name_of_a_flag_of_the_command() -> None:
    taken = {each.name for kind in (Train, Hardware) for each in dataclasses.fields(kind)}
    for task, kind in TASKS.items():
        assert not taken & {each.name for each in dataclasses.fields(kind)}, task


@pytest.mark.parametrize(
    "line", ["mnist --preset quick --quiet", "--quiet --preset quick mnist", "--preset=quick mnist --quiet"]
)
def test_the_order_of_words_does_not_matter(line: str) -> None:
    found = parse(["train", *line.split()])
    assert isinstance(found, Train)
    assert found.quiet
    assert found.run_config() == RunConfig.make("mnist", "mollified", preset="quick")


def test_help_shows_the_defaults_of_the_preset(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "parity", "--preset", "quick", "--help"]) == 0
    words = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "--lr FLOAT Learning rate. (default: 1.0)" in words
    assert "--samples INT Size of the fixed training set (the paper does not give it). (default: 1000)" in words
    assert "Presets: paper, quick, variable, prefix." in words
    assert " TASK " in words


def test_hardware_flags_are_those_of_the_engine() -> None:
    line = "--accelerator cpu --devices 2 --nodes 3 --strategy ddp --precision bf16-mixed --threads 4 --no-tensorboard"
    found = parse(["train", "parity", *line.split()])
    assert isinstance(found, Train)
    asked = Hardware(
        accelerator="cpu", devices=2, nodes=3, strategy="ddp", precision="bf16-mixed", threads=4, tensorboard=False
    )
    assert Hardware(**dataclasses.asdict(found.hardware)) == asked


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file"),
        ("{", "not JSON"),
        ("[1]", "expected an object"),
        ('{"format": 2}', "expected format 1"),
        ('{"task": "ptb"}', "--config is for task 'ptb', but the command names 'parity'"),
        ('{"sed": 1}', "'sed' is not known (did you mean 'seed'"),
        ('{"seed": "1"}', "seed='1': expected a whole number"),
        ('{"seed": true}', "seed=True: expected a whole number"),
        ('{"settings": {"lrr": 1}}', "no setting 'lrr' (did you mean 'lr'"),
        ('{"settings": {"lr": "fast"}}', "lr=fast: expected a finite number"),
        ('{"settings": {"lr": -1}}', "lr=-1.0: expected a positive number"),
        ('{"settings": [1]}', "settings=[1]: expected an object"),
        ('{"preset": "quik"}', "no preset of parity 'quik' (did you mean 'quick'?)"),
        ('{"method": "plane"}', "no method 'plane' (did you mean 'plain'"),
    ],
)
def test_a_file_that_is_not_understood(text: str | None, said: str, tmp_path: Path) -> None:
    file = tmp_path / "some.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(LabError) as raised:
        config("parity", "--config", str(file))
    assert said in str(raised.value)


def test_a_run_is_made_once_and_never_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    line = ["train", "parity", "--method", "plain", "--seed", "2", *TINY.split()]
    assert main([*line, "--quiet"]) == 0
    told = capsys.readouterr().out
    changed = "plain_batch=16_bits=6_depth=2_evaluate_every=10_samples=64_updates=40_width=8"
    where = Path("runs", "parity", changed, "seed-2")
    assert told.startswith(f"done: {where}: training NLL ")
    assert f"mollifier report {where}" in told
    before = {path: path.read_bytes() for path in where.rglob("*") if path.is_file()}

    assert main(line) == 0
    assert capsys.readouterr().out == "done already" + told.splitlines(keepends=True)[0].removeprefix("done")
    assert main([*line, "--lr", "0.5", "--out", str(where)]) == 2
    assert "contains a different run (lr 0.001 there, 0.5 here); nothing was changed" in capsys.readouterr().err
    (where / "result.json").rename(tmp_path / "aside")
    assert main(line) == 2
    assert f"mollifier resume {where}" in capsys.readouterr().err
    (tmp_path / "aside").rename(where / "result.json")
    assert main(["resume", str(where)]) == 0
    assert capsys.readouterr().out.startswith(f"done already: {where}: ")
    assert {path: path.read_bytes() for path in where.rglob("*") if path.is_file()} == before


def test_the_second_process_of_a_run_may_find_the_firsts_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Asked by the first, the same folder is refused; a process of higher rank leaves that to the engine, where all agree."""
    folder = RunFolder(tmp_path)
    folder.write("config.json", config("parity", *TINY.split()).to_json())
    line = ["train", "parity", *TINY.split(), "--out", str(tmp_path)]
    assert main(line) == 2
    assert "nothing was changed" in capsys.readouterr().err
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr("mollifier_lab.engine.train", lambda *args, **keywords: {"updates": 0, "seconds": 0.0})
    assert main(line) == 0
    assert capsys.readouterr().out == ""
