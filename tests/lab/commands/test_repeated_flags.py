"""A flag that is given twice: its values add up, or the line is refused. Nothing is dropped silently."""

from pathlib import Path

import pytest

from mollifier_lab.cli import main, parse
from mollifier_lab.commands.compare import Compare
from mollifier_lab.commands.train import Train


@pytest.mark.parametrize(
    "line",
    [
        "parity --methods plain --set lr=0.5 --methods mollified:k=5 copy --quiet --set gain=2",
        "parity --methods=plain --set=lr=0.5 --methods mollified:k=5 copy --set=gain=2 --quiet",
    ],
)
def test_lists_add_up(line: str) -> None:
    found = parse(["compare", *line.split()])
    assert isinstance(found, Compare)
    assert found.methods == ("plain", "mollified:k=5", "copy")
    assert found.changes == ("lr=0.5", "gain=2")
    assert found.quiet


def test_the_files_and_the_settings_of_a_search_add_up() -> None:
    found = parse(
        [
            "compare",
            "parity",
            "--best",
            "a.json",
            "--search-set",
            "updates=2",
            "--best",
            "b.json",
            "--search_set",
            "bits=4",
        ]
    )
    assert isinstance(found, Compare)
    assert found.best == (Path("a.json"), Path("b.json"))
    assert found.search_set == ("updates=2", "bits=4")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("compare parity --seeds 3 --seeds 5", "--seeds is given twice (--seeds 3 and --seeds)"),
        ("train parity --lr 0.1 --lr=0.2", "--lr is given twice (--lr 0.1 and --lr=0.2)"),
        ("train parity --method plain --method mollified", "--method is given twice"),
        ("train parity --copy --no-copy", "--copy is given twice (--copy and --no-copy)"),
        ("train parity --evaluate-every 2 --evaluate_every 3", "--evaluate-every is given twice"),
    ],
)
def test_a_flag_of_one_value_is_refused(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.yaml", "task: parity\nsettings: {lr: 1, lr: 2}"), ("a.json", '{"task": "parity", "settings": {"lr": 1, "lr": 2}}')],
)  # fmt: skip
def test_a_setting_that_a_file_has_twice_is_refused(
    name: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    assert main(["train", "--config", str(tmp_path / name), "--dry-run"]) == 2
    assert "'lr' is given twice; expected it once" in capsys.readouterr().err


def test_a_setting_of_all_runs_that_is_in_the_grid_too_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "parity", "--set", "k=2", "--grid", "k=1,3", "--dry-run"]) == 2
    assert "--grid and --set both name k" in capsys.readouterr().err


def test_a_value_that_begins_with_a_minus_is_no_flag() -> None:
    found = parse(["train", "parity", "--stop-at", "-1", "--method", "mollified"])
    assert isinstance(found, Train)
    assert found.settings.stop_at == -1.0
