"""The report as a whole."""

import subprocess
import sys
from pathlib import Path

import pytest

from mollifier_lab.errors import LabError
from mollifier_lab.report import report
from mollifier_lab.settings import RunConfig
from tests.lab.report.conftest import Written
from tests.lab.report.folders import write_run

NAMES = ["report.html", "curves.png", "levels.png", "table.csv", "curves.csv"]


def test_the_same_runs_give_the_same_bytes(study: Written, tmp_path: Path) -> None:
    again = report(study.root, tmp_path / "new" / "place")
    assert [path.name for path in again.files] == NAMES
    assert again.page == tmp_path / "new" / "place" / "report.html"
    for path in again.files:
        assert path.read_bytes() == (study.root / path.name).read_bytes()
    assert sorted(path.name for path in again.page.parent.iterdir()) == sorted(NAMES)


def test_importing_it_loads_nothing_heavy() -> None:
    heavy = "{'torch', 'numpy', 'scipy', 'matplotlib', 'plotly', 'jinja2'}"
    code = f"import sys, mollifier_lab.report, mollifier_lab.report.formats; sys.exit(str({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip() == "set()"


def test_what_could_not_be_read_is_in_the_notes(odd: Written) -> None:
    unread, failed = odd.report.notes
    assert str(odd.root / "broken" / "config.json") in unread
    assert failed.startswith(f"{odd.root / 'b'}: failed: ")


def test_a_folder_without_runs(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="no run in it"):
        report(tmp_path)


def test_a_folder_in_which_nothing_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(LabError, match=r"none of its runs can be read:\n.*config\.json"):
        report(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_out_that_is_a_file(tmp_path: Path) -> None:
    write_run(tmp_path / "run", RunConfig.make("parity", "plain"), rows=2)
    (tmp_path / "out").write_text("mine")
    with pytest.raises(LabError, match="this is a file"):
        report(tmp_path, tmp_path / "out")
    assert (tmp_path / "out").read_text() == "mine"
