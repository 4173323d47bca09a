"""The table in a terminal."""

import io

from rich.console import Console

from mollifier_lab.report.terminal import terminal_tables
from tests.lab.report.conftest import NASTY, Written


def printed(written: Written) -> str:
    console = Console(file=io.StringIO(), width=240)
    for each in terminal_tables(written.report.rows):
        console.print(each)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_table(study: Written) -> None:
    text = printed(study)
    assert "parity: training NLL" in text
    assert "target: training NLL ≤ 0.200" in text
    line = next(line for line in text.splitlines() if "residual + batch norm" in line)
    assert "3 done, 1 failed, 1 unfinished" in line
    assert "full size only" not in text  # columns that say nothing
    assert "tuned" not in text
    assert "Student's t" in text
    assert "baseline: " in text


def test_one_table_a_task_and_labels_as_they_are(odd: Written) -> None:
    text = printed(odd)
    assert "parity: training NLL" in text
    assert "cifar10: test error" in text
    assert NASTY.split()[0] in text
