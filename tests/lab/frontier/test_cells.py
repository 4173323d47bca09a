"""The map: which cells are run, what is chosen, and what the table says about it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mollifier_lab.cli import main
from mollifier_lab.errors import LabError
from mollifier_lab.frontier import cells, maps
from mollifier_lab.frontier.cells import Cell, best_of, edge, frontier, lost
from mollifier_lab.frontier.ways import ACTIVATIONS, BY_NAME, COMMON, DEPTHS, TRIALS, WAYS, hours
from mollifier_lab.runs import RunFolder
from mollifier_lab.settings import RunConfig


def cell(way: str = "residual", depth: int = 30, error: float = 0.04, seed: int = 0, activation: str = "tanh") -> Cell:
    return Cell(way, activation, depth, seed, error, error, TRIALS, 1e-3, 1.0, 1000.0, 6000, 60.0)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_every_way_can_be_run_at_every_depth_with_the_same_trials(way):
    for activation in way.activations:
        for depth in DEPTHS:
            found = way.variants(depth, activation)
            assert len({str(variant) for variant in found}) == TRIALS
            for variant in found:
                settings = variant.config("mnist", 0, "paper", COMMON).settings
                assert (settings.depth, settings.activation, settings.updates) == (depth, activation, COMMON["updates"])
                assert (settings.clip, settings.lr_end) == (0.5, 0.1)
    rates = {tuple(variant.changes["lr"] for variant in each.variants(6, "tanh")) for each in WAYS}
    assert len(rates) == 1


def test_the_ways_are_what_they_are_called():
    def settings(name: str):
        return BY_NAME[name].variants(6, "sigmoid")[0].config("mnist", 0, "paper", COMMON).settings

    assert settings("paper").schedule == "exponential"
    assert settings("paper").horizon == 0
    assert settings("front").horizon == 0.8 * COMMON["updates"]
    assert settings("adaptive").schedule == "adaptive"
    assert settings("plain, gain 1").gain == 1.0
    assert len({variant.changes["gain"] for variant in BY_NAME["plain, best gain"].variants(6, "relu")}) == TRIALS
    assert settings("lsuv").init == "lsuv"


def test_a_way_is_lost_after_two_depths():
    way = BY_NAME["residual"]
    assert not lost(way, [cell(depth=6, error=0.9)])
    assert not lost(way, [cell(depth=6, error=0.9), cell(depth=10, error=0.3)])
    assert lost(way, [cell(depth=10, error=0.9), cell(depth=6, error=0.02), cell(depth=20, error=0.6)])


def test_the_frontier_is_the_greatest_depth_at_which_every_seed_trains():
    found = [cell(depth=6), cell(depth=30), cell(depth=72, error=0.05), cell(depth=72, error=0.3, seed=1)]
    assert frontier("residual", "tanh", found) == 30
    assert frontier("front", "tanh", found) == 0
    assert edge("residual", "tanh", found, DEPTHS) == [72]
    assert edge("residual", "tanh", [*found[:2], cell(depth=50, error=0.9)], DEPTHS) == [30, 50]


def run(folder: Path, valid: float, test: float, diverged: bool = False) -> RunFolder:
    made = RunFolder(folder)
    folder.mkdir()
    made.write("config.json", RunConfig.make("mnist", "plain", lr=valid).to_json())
    final = {"valid_error": valid, "test_error": test}
    made.write("result.json", json.dumps({"updates": 10, "final": final, "diverged": diverged, "seconds": 1.0}))
    return made


def test_the_trial_with_the_lowest_validation_error_is_reported(tmp_path: Path):
    runs = [run(tmp_path / "a", 0.05, 0.01), run(tmp_path / "b", 0.04, 0.06), run(tmp_path / "c", 0.01, 0.01, True)]
    best = best_of("plain, gain 1", runs, 0)
    assert (best.valid_error, best.test_error, best.lr, best.trials) == (0.04, 0.06, 0.04, 3)


def test_the_map_is_written_and_read_and_newer_cells_replace_older_ones(tmp_path: Path):
    cells.write([cell(), cell(depth=6)], tmp_path)
    cells.write([cell(error=0.5), cell(activation="relu")], tmp_path)
    found = cells.read(tmp_path)
    assert {(each.activation, each.depth, each.test_error) for each in found} == {
        ("tanh", 6, 0.04), ("tanh", 30, 0.5), ("relu", 30, 0.04),
    }  # fmt: skip
    (tmp_path / cells.MAP).write_text("way\nresidual\n")
    with pytest.raises(LabError, match="not a map of the frontier"):
        cells.read(tmp_path)


def test_the_table_marks_single_runs_and_what_was_not_run():
    text = maps.table([cell(), cell(seed=1, error=0.05), cell("front", 6, 0.02), cell("paper", 6, 0.9)])
    assert "| residual (stays) | **30** (4.5 %, -1.9 to 10.9, 2 seeds, the deepest that was tried) |" in text
    assert "| mollified, front | **6** (2.0 %, single run, the deepest that was tried) |" in text
    assert "| mollified, paper's schedule | none (90.0 % at 6, single run) |" in text
    assert "| LSUV | not run |" in text


def test_the_command_draws_from_the_data_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    cells.write([cell(depth=depth, error=0.01 * depth) for depth in (6, 10, 200)], tmp_path)
    assert main(["frontier", "--draw", "--out", str(tmp_path)]) == 0
    assert "**6** (6.0 %" in capsys.readouterr().out
    assert (tmp_path / maps.PICTURE).read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / maps.TABLE).read_text().startswith("| way | tanh |")


def test_the_list_gives_the_hours(capsys: pytest.CaptureFixture[str]):
    assert main(["frontier"]) == 0
    told = capsys.readouterr().out
    assert f"at most {hours():.1f} for each activation" in told
    assert all(name in told for name in ACTIVATIONS)
    assert main(["frontier", "sigmoidd"]) == 2
    assert "sigmoid" in capsys.readouterr().err


def test_without_a_map_nothing_is_drawn_or_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["frontier", "--draw", "--out", str(tmp_path / "none")]) == 2
    assert "no map.csv with results" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
