"""Annealing that does not end in time: said at the start, in the last line, in the table and on the page."""

from pathlib import Path

import pytest

import mollifier
from mollifier.schedules import solve_k
from mollifier_lab import engine
from mollifier_lab.annealing_forecast import forecast
from mollifier_lab.cli import main
from mollifier_lab.commands.output import result_line
from mollifier_lab.models import mlp
from mollifier_lab.report import report
from mollifier_lab.runs import RunFolder
from mollifier_lab.settings import RunConfig
from mollifier_lab.study import compare, describe

HERE = engine.Hardware(accelerator="cpu", threads=1, tensorboard=False)
TINY = {"bits": 6, "width": 8, "depth": 3, "samples": 32, "batch": 8, "updates": 20, "evaluate_every": 10, "lr": 0.01}


def annealer(**options: object) -> mollifier.Annealer:
    return mollifier.Annealer(mollifier.mollify(mlp(4, 1, width=8, depth=3)), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("v", [0.3, 2.0])
def test_the_slowest_k_that_ends_in_time_is_that_of_solve_k(v: float) -> None:
    k = solve_k(1000, 3, v, 0.15)
    assert forecast(annealer(k=0.999 * k), 1000, v) == ""
    assert f"falls below {0.5 * v:.3g} (it starts at {v:.3g})" in forecast(annealer(k=2.0 * k), 1000, v)


def test_what_is_known_without_a_loss() -> None:
    assert forecast(annealer(schedule="cosine", horizon=100), 100, None) == ""
    assert "its horizon is 101 updates, the run has 100" in forecast(
        annealer(schedule="cosine", horizon=101), 100, None
    )
    assert "its horizon is 101 updates" in forecast(annealer(horizon=101), 100, None)
    assert "stop_at is 0" in forecast(annealer(k=1.0, stop_at=0.0), 100, None)
    assert "k=100 is too slow for 100 updates" in forecast(annealer(k=100.0, loss_average=None), 100, None)
    assert forecast(annealer(k=1.0, loss_average=None), 100, None) == ""
    assert forecast(annealer(k=1e6), 100, None) == ""  # it depends on the loss
    for v in (None, 0.7):  # so does this one, all the way
        assert forecast(annealer(schedule="adaptive"), 5, v) == ""
        assert forecast(annealer(schedule="adaptive", horizon=101), 100, v) == ""


def test_the_clock_and_the_lowest_level_count() -> None:
    k = solve_k(1000, 3, 1.0, 0.15)
    assert forecast(annealer(k=0.9 * k, every=1), 1000, 1.0) == ""
    assert forecast(annealer(k=0.9 * k, every=2), 1000, 1.0) != ""
    assert forecast(annealer(k=1000.0, p_min=0.9), 1000, 1.0) == ""
    assert forecast(annealer(k=3000.0, p_min=0.9), 1000, 1.0) != ""


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"k": 1000.0}, "annealing ends before the run does only if the loss average falls below 0.00"),
        ({"schedule": "linear", "horizon": 30.0}, "its horizon is 30 updates, the run has 20"),
        ({"k": 0.01}, ""),
    ],
)
def test_train_warns_once_at_the_start_and_says_it_at_the_end(
    changes: dict[str, object], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = RunConfig.make("parity", "mollified", preset="quick", **TINY | changes)
    result = engine.train(config, tmp_path, hardware=HERE)
    err = capsys.readouterr().err
    assert err.count("warning: ") == bool(said)
    assert said in err
    line = result_line("parity", result, tmp_path)
    assert ("annealing had not ended: levels " in line) == bool(said)


def test_train_warns_though_it_is_quiet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "train parity --preset quick --bits 4 --width 8 --depth 2 --samples 16 --updates 4 --schedule linear --horizon 30 --quiet --threads 1"
    assert main([*line.split(), "--out", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().err == (
        "warning: annealing will not have ended when the run does: its horizon is 30 updates, the run has 4\n"
    )


def test_the_table_the_page_and_the_csv_say_it(tmp_path: Path) -> None:
    runs = compare(
        "parity", ["plain", "mollified"], 2, tmp_path, preset="quick", changes=TINY | {"k": 50.0}, show=False
    )
    made = report(tmp_path)
    plain, mollified = made.rows
    assert plain.seeds == "2 done"
    assert mollified.unannealed == 2
    levels = [level for run in runs[2:] for level in run.json("result.json")["annealing"]["levels"]]
    shown = f"levels {min(levels):.2f}…{max(levels):.2f}"
    assert mollified.seeds == f"2 done (2 before annealing had ended: {shown})"
    assert mollified.seeds in made.page.read_text()
    assert "<td>annealing had not ended: levels " in made.page.read_text()
    assert shown in (tmp_path / "table.csv").read_text()


def test_a_comparison_says_it_as_each_run_ends(tmp_path: Path) -> None:
    from mollifier_lab.job import Job, Outcome

    config = RunConfig.make("parity", "mollified", preset="quick", **TINY | {"k": 50.0})
    engine.train(config, tmp_path, hardware=HERE, show=False)
    assert RunFolder(tmp_path).status == "done"
    assert "annealing had not ended: levels 0." in describe(Outcome(Job(config, tmp_path), "done"))


def test_no_loss_is_promised_where_none_would_do() -> None:
    assert forecast(annealer(k=1e25), 6, 0.6) == (
        "annealing will not have ended when the run does: k=1e+25 is too slow for 6 updates, whatever the loss does"
    )
    assert "k=1 is too slow for 6 updates, 100 to a tick of its clock" in forecast(annealer(k=1.0, every=100), 6, 0.6)


@pytest.mark.filterwarnings("ignore:Annealer")
@pytest.mark.parametrize("optimizer", ["sgd", "nesterov", "rmsprop", "adam"])
def test_the_largest_numbers_that_are_accepted_run(optimizer: str, tmp_path: Path) -> None:
    """They end as diverged or not, but in no fault."""
    for name in ("lr", "weight_decay", "clip", "gain", "c", "k"):
        config = RunConfig.make("parity", "mollified", **TINY | {"optimizer": optimizer, "updates": 3, name: 1e30})
        assert engine.train(config, tmp_path / name, hardware=HERE, show=False)["updates"] >= 1
