"""Verdicts on the paper's claims, from run folders whose numbers are known."""

import json
import math
import statistics
from pathlib import Path

import pytest
import scipy.stats  # type: ignore[import-untyped]

from mollifier_lab.claims import BEGIN, CLAIMS, END, Verdict, markdown, verdicts, write_verdicts
from mollifier_lab.cli import main
from mollifier_lab.reproduction import STUDIES
from mollifier_lab.settings import RunConfig
from mollifier_lab.tuned import Tuned
from mollifier_lab.variants import Variant
from tests.lab.report.folders import write_lines, write_run


def write_finals(results: Path, study: str, method: str, finals: list[float]) -> None:
    row = STUDIES[study]
    variant = Variant.parse(method, row.task)
    for seed, final in enumerate(finals):
        config = variant.config(row.task, seed, row.preset, dict(row.changes))
        write_run(results / row.task / study / variant.slug / f"seed-{seed}", config, rows=2, final=final)


def write_curves(results: Path, study: str, method: str, curves: list[list[float]]) -> None:
    write_finals(results, study, method, [curve[-1] for curve in curves])
    for seed, curve in enumerate(curves):
        write_curve(results / STUDIES[study].task / study / method / f"seed-{seed}", curve)


def write_curve(folder: Path, curve: list[float], **end: object) -> None:
    column = RunConfig.from_json((folder / "config.json").read_text()).settings.curve
    write_lines(folder / "metrics.jsonl", [{"update": 100 * i, column: value} for i, value in enumerate(curve)])
    result = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps(result | {"updates": 100 * (len(curve) - 1)} | end))


def found(results: Path, text: str) -> Verdict:
    return next(each for each in verdicts(results) if each.claim.text == text)


PENTOMINO = "Pentomino: mollified above residual"


@pytest.mark.parametrize(
    ("mollified", "verdict"),
    [
        ([0.25, 0.26, 0.27, 0.26, 0.25], "reproduced"),
        ([0.35, 0.36, 0.37, 0.36, 0.35], "not reproduced"),
        ([0.25, 0.36, 0.27, 0.36, 0.25], "undecided"),
        ([0.25, 0.26, 0.27, 0.26], "not run"),
    ],
)
def test_the_interval_of_the_paired_difference_decides(tmp_path: Path, mollified: list[float], verdict: str) -> None:
    write_finals(tmp_path, "pentomino", "residual", [0.30, 0.31, 0.32, 0.31, 0.30])
    write_finals(tmp_path, "pentomino", "mollified-residual", mollified)
    assert found(tmp_path, PENTOMINO).verdict == verdict


def test_the_numbers_stand_beside_the_verdict(tmp_path: Path) -> None:
    write_finals(tmp_path, "pentomino", "residual", [0.30, 0.31, 0.32, 0.31, 0.31])
    write_finals(tmp_path, "pentomino", "mollified-residual", [0.25, 0.26, 0.27, 0.26, 0.26])
    row = found(tmp_path, PENTOMINO)
    assert row.found == "26.00 % (25.12 – 26.88 %) against 31.00 % (30.12 – 31.88 %)"
    assert row.difference == "-5.00 % (-5.00 – -5.00 %; n = 5)"


def test_what_is_undecided_says_what_it_would_take(tmp_path: Path) -> None:
    write_finals(tmp_path, "pentomino", "residual", [0.30, 0.30, 0.30, 0.30, 0.30])
    write_finals(tmp_path, "pentomino", "mollified-residual", [0.31, 0.29, 0.30, 0.28, 0.31])
    row = found(tmp_path, PENTOMINO)
    deviation = statistics.stdev([0.01, -0.01, 0.0, -0.02, 0.01])
    needed = next(n for n in range(2, 1000) if scipy.stats.t.ppf(0.975, n - 1) * deviation / math.sqrt(n) < 0.002)
    assert row.verdict == "undecided"
    assert row.remark == f"would take about {needed} seeds"
    write_finals(tmp_path, "cifar10-reduced", "residual", [0.09])
    write_finals(tmp_path, "cifar10-reduced", "mollified-residual", [0.08])
    row = found(tmp_path, "CIFAR-10 (20 layers, 30 epochs here): mollified above ResNet")
    assert (row.verdict, row.remark) == ("undecided", "one seed has no interval, would take at least 2")
    write_finals(tmp_path / "decided", "pentomino", "residual", [0.30, 0.30, 0.30, 0.30, 0.30])
    write_finals(tmp_path / "decided", "pentomino", "mollified-residual", [0.35, 0.36, 0.37, 0.36, 0.35])
    assert found(tmp_path / "decided", PENTOMINO).remark == ""


def test_the_difference_to_a_control_stands_beside_the_verdict(tmp_path: Path) -> None:
    write_finals(tmp_path, "ptb-2", "plain", [120.0, 122.0, 121.0])
    write_finals(tmp_path, "ptb-2", "mollified", [113.0, 114.0, 115.0])
    row = found(tmp_path, "PTB, 2 layers: mollified above plain")
    assert (row.verdict, row.remark) == ("reproduced", "")
    (control,) = STUDIES["ptb-2-same-rate"].methods
    write_finals(tmp_path, "ptb-2-same-rate", control, [113.5, 114.5, 115.5])
    row = found(tmp_path, "PTB, 2 layers: mollified above plain")
    assert row.verdict == "reproduced"
    assert row.remark == "against the control `ptb-2-same-rate` -0.5 (-0.5 – -0.5; n = 3)"


def test_the_command_has_the_precision_of_the_runs(tmp_path: Path) -> None:
    for method in ("residual", "mollified-residual"):
        write_finals(tmp_path, "cifar10-reduced", method, [0.09])
    text = "CIFAR-10 (20 layers, 30 epochs here): mollified above ResNet"
    assert found(tmp_path, text).command == "mollifier reproduce cifar10-reduced"
    for file in tmp_path.rglob("environment.json"):
        environment = json.loads(file.read_text())
        file.write_text(json.dumps(environment | {"identity": {"precision": "bf16-mixed"}}))
    row = found(tmp_path, text)
    assert row.command == "mollifier reproduce cifar10-reduced --precision bf16-mixed"
    assert f"| `{row.command}` |" in markdown([row])


def test_who_never_reaches_the_target_took_all_updates_and_diverging_early_is_not_fast(tmp_path: Path) -> None:
    slow, never = [0.7, 0.6, 0.5, 0.1], [0.7, 0.7, 0.7, 0.7]
    write_curves(tmp_path, "parity-1000", "mollified", [slow] * 5)
    write_curves(tmp_path, "parity-1000", "residual-bn", [never] * 5)
    write_curve(tmp_path / "parity/parity-1000/residual-bn/seed-0", never[:2], diverged=True)
    row = found(tmp_path, "Parity: mollified is faster than residual + batch norm")
    assert row.found == "300 updates (5 of 5 get there) against 50,000 updates (0 of 5 get there)"
    assert row.verdict == "reproduced"


@pytest.mark.parametrize(("reached", "verdict"), [(0, "reproduced"), (5, "not reproduced"), (2, "undecided")])
def test_learning_is_counted_at_the_end(tmp_path: Path, reached: int, verdict: str) -> None:
    learnt, lost = [0.7, 0.1, 0.1], [0.7, 0.1, 0.69]  # having been there does not count
    write_curves(tmp_path, "parity-1000", "plain", [learnt] * reached + [lost] * (5 - reached))
    row = found(tmp_path, "Parity: the plain network does not learn, at its best gain")
    assert row.verdict == verdict
    assert f"{reached} of 5 seeds reach the target" in row.found


def test_the_command_writes_the_table_between_the_marks_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_finals(tmp_path, "pentomino", "residual", [0.30, 0.31, 0.32, 0.31, 0.30])
    write_finals(tmp_path, "pentomino", "mollified-residual", [0.35, 0.36, 0.37, 0.36, 0.35])
    page = tmp_path / "README.md"
    page.write_text(f"# Before\n\n{BEGIN}\nold\n{END}\n\nAfter\n")
    assert main(["reproduce", "--verdicts", "--out", str(tmp_path)]) == 0
    assert "not reproduced" in capsys.readouterr().out
    first = page.read_text()
    assert first.startswith("# Before\n\n")
    assert first.endswith(f"{END}\n\nAfter\n")
    assert "old" not in first
    rows = [line for line in first.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == len(CLAIMS)
    assert rows[0].startswith(f"| {PENTOMINO} |")
    assert "**not reproduced**" in rows[0]
    picture = tmp_path / "claims.png"
    drawn = picture.read_bytes()
    write_verdicts(tmp_path)
    assert page.read_text() == first
    assert picture.read_bytes() == drawn
    picture.unlink()
    page.write_text("no marks\n")
    write_verdicts(tmp_path)
    assert page.read_text() == "no marks\n"
    assert not picture.exists()


def test_the_relative_difference_is_a_fraction_of_the_second_variant(tmp_path: Path) -> None:
    write_finals(tmp_path, "pentomino", "residual", [0.30, 0.32, 0.28, 0.31, 0.29])
    write_finals(tmp_path, "pentomino", "mollified-residual", [0.27, 0.30, 0.25, 0.28, 0.25])
    relative = found(tmp_path, PENTOMINO).relative
    assert relative is not None
    assert relative.mean == pytest.approx(-0.03 / 0.30)
    assert relative.low < relative.mean < relative.high < 0


def test_every_claim_is_of_a_study_that_runs_its_variants() -> None:
    for claim in CLAIMS:
        assert {claim.ours, claim.theirs or claim.ours} <= set(STUDIES[claim.study].methods)
        assert not claim.control or len(STUDIES[claim.control].methods) == 1


def test_a_variant_that_was_searched_and_not_yet_run_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "pentomino/pentomino/residual").mkdir(parents=True)
    (tmp_path / "pentomino/pentomino/residual/tuned.json").write_text("{}")
    assert found(tmp_path, PENTOMINO).verdict == "not run"


def test_the_page_gets_the_table_of_each_comparison_that_it_has_marks_for(tmp_path: Path) -> None:
    write_finals(tmp_path, "pentomino", "residual", [0.30, 0.31, 0.32])
    write_finals(tmp_path, "pentomino", "plain", [0.50, 0.50, 0.50])
    write_finals(tmp_path, "pentomino", "mollified-residual", [0.35, 0.36, 0.37])
    folder = tmp_path / "pentomino" / "pentomino"
    Tuned("mollified-residual", 8, {"lr": (0.1, 1.0, "log")}, {"lr": 0.25}, "valid_error", 0.3).write(
        folder / "mollified-residual"
    )
    for seed, ended in enumerate((100, 300, None)):
        path = folder / "mollified-residual" / f"seed-{seed}" / "result.json"
        result = json.loads(path.read_text())
        levels = {"finished": ended is not None, "finished_at": ended, "levels": [0.0 if ended else 0.5]}
        path.write_text(json.dumps(result | {"annealing": levels}))
    page = tmp_path / "README.md"
    marks = "<!-- table of pentomino/pentomino -->", "<!-- end of pentomino/pentomino -->"
    page.write_text(f"Before\n{marks[0]}\nold\n{marks[1]}\nAfter <!-- table of ptb/ptb-2 --> unclosed\n")
    write_verdicts(tmp_path)
    lines = page.read_text().splitlines()
    assert lines[0] == "Before"
    assert lines[-1] == "After <!-- table of ptb/ptb-2 --> unclosed"
    assert lines[1] == marks[0]
    assert lines[-2] == marks[1]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    assert [row[0] for row in rows[2:]] == ["residual", "mollified + residual", "plain"]
    columns = dict(zip(rows[0], rows[3], strict=True))
    assert columns["seeds"] == "3"
    assert columns["chosen in 8 trials"] == "lr 0.250"
    assert columns["test error, 95 % interval"].startswith("36.00 % (")
    assert columns["paired difference to residual"] == "+5.00 % (5.00 – 5.00 %; n=3)"
    assert columns["annealing ends at update"] == "300, not ended in 1 of 3"
