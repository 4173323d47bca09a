"""Tables on narrow terminals: no broken word, nothing lost."""

import io

import pytest
from rich.console import Console

from mollifier_lab.commands.lists import Methods, Tasks
from mollifier_lab.commands.output import table
from mollifier_lab.report.summary import HEADINGS, columns
from mollifier_lab.report.terminal import terminal_tables
from tests.lab.report.conftest import Written


def printed(what: object, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(what)
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_table_of_results_breaks_no_word_and_loses_none(study: Written, width: int) -> None:
    text = "".join(printed(each, width) for each in terminal_tables(study.report.rows))
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text.replace("levels 0", "")
    words = set(text.split())
    for row in study.report.rows:
        for place in columns([each for each in study.report.rows if each.task == row.task]):  # those that say something
            if HEADINGS[place] != "updates/s":  # which a terminal has no room for
                assert set(row.cells()[place].split()) <= words, HEADINGS[place]


def test_a_label_without_a_space_is_cut(many: Written) -> None:
    text = "".join(printed(each, 80) for each in terminal_tables(many.report.rows))
    assert max(map(len, text.splitlines())) <= 80
    assert "xx…" in text


@pytest.mark.parametrize("command", [Tasks(), Methods(), Methods("ptb"), Tasks("ptb")])
def test_the_lists_at_80_columns(
    command: Tasks | Methods, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def words() -> set[str]:
        command.run()
        return {word for word in capsys.readouterr().out.split() if "──" not in word}

    wide = words()
    monkeypatch.setattr("mollifier_lab.commands.lists.console", lambda: Console(width=80, force_terminal=False))
    assert words() == wide


def test_a_table_that_fits_is_left_as_it_is() -> None:
    found = table("task", "what")
    found.add_row("parity", "is the number of ones odd?")
    assert len(printed(found, 80).strip().splitlines()) == 3


@pytest.mark.parametrize("width", [60, 80, 120])
def test_numbers_are_not_taken_apart(study: Written, width: int) -> None:
    """Lines break in names, not in `-0.247 – 0.526`."""
    text = "".join(printed(each, width) for each in terminal_tables(study.report.rows))
    for row in study.report.rows:
        cells = dict(zip(HEADINGS, row.cells(), strict=True))
        for heading in ("95 % interval", "difference to baseline", "updates to target"):
            assert cells[heading] in text, heading
