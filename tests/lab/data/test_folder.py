from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mollifier_lab.data.folder import DataError, cache_folder, check, data_folder, locate
from mollifier_lab.data.sources import source
from mollifier_lab.errors import LabError
from tests.lab.data import makers


def test_the_command_line_starts_without_heavy_imports():
    code = (
        "import sys, mollifier_lab.data.folder, mollifier_lab.data.sources\n"
        "print(sorted({'torch', 'numpy', 'pooch', 'requests', 'rich'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_who_names_the_data_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data_folder() == tmp_path / "mollifier" / "data"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert data_folder() == tmp_path / "me" / ".cache" / "mollifier" / "data"
    monkeypatch.setenv("MOLLIFIER_DATA", "~/sets")
    assert data_folder() == tmp_path / "me" / "sets"
    assert data_folder(Path("given")) == Path("given")


def test_who_names_the_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("MOLLIFIER_CACHE", str(tmp_path / "a"))
    assert cache_folder() == tmp_path / "a"
    monkeypatch.delenv("MOLLIFIER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "mollifier"


@pytest.mark.parametrize("place", [".", "cifar10", "cifar-10-batches-bin", "cifar10/cifar-10-batches-bin"])
def test_files_are_found_wherever_users_put_them(tmp_path, place):
    makers.cifar10(tmp_path / place)
    found = locate("cifar10", tmp_path)
    assert found.samefile(tmp_path / place)
    assert locate("cifar10", found).samefile(found)
    assert locate("cifar10", found / "test_batch.bin").samefile(found)


def test_the_place_with_all_files_wins_over_one_with_some(tmp_path):
    makers.mnist(tmp_path / "mnist")
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    makers.mnist(tmp_path)
    assert locate("mnist", tmp_path) == tmp_path


def test_missing_files_are_named_with_places_and_commands(tmp_path):
    makers.mnist(tmp_path / "mnist")
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError) as error:
        locate("mnist", tmp_path)
    text = str(error.value)
    assert isinstance(error.value, LabError)
    assert "t10k-labels-idx1-ubyte.gz" in text
    assert "train-labels" not in text
    for part in (str(tmp_path / "mnist"), "mollifier data mnist", "--from FOLDER", "MOLLIFIER_DATA"):
        assert part in text


def test_check_tells_good_missing_and_wrong_apart(tmp_path):
    good, damaged = b"a good file", b"a damaged file"
    facts = replace(
        source("mnist"),
        files=(
            makers.file("good", good),
            makers.file("bits", damaged),
            makers.file("short", good),
            makers.file("gone", b""),
        ),
    )
    (tmp_path / "good").write_bytes(good)
    (tmp_path / "bits").write_bytes(damaged.upper())
    (tmp_path / "short").write_bytes(good[:-1])
    reports = check("mnist", tmp_path, facts)
    assert [report.status for report in reports] == ["ok", "wrong", "wrong", "missing"]
    assert "sha256" in reports[1].detail
    assert "10 bytes, expected 11" in reports[2].detail
    assert reports[2].path == tmp_path / "short"


def test_check_of_an_empty_folder_says_where_files_would_go(tmp_path):
    reports = check("cifar10", tmp_path / "none")
    assert {report.status for report in reports} == {"missing"}
    assert reports[0].path == tmp_path / "none" / "cifar10" / "cifar-10-batches-bin" / "data_batch_1.bin"


def test_a_real_file_of_wrong_content_is_told_by_the_published_checksum(tmp_path):
    (tmp_path / "ptb.train.txt").write_bytes(b"x" * 5_101_618)
    assert [report.status for report in check("ptb", tmp_path)] == ["wrong", "missing", "missing"]


@pytest.mark.parametrize(
    "name", ["glove.6B.100d.txt", "glove.6B.100d.subset.txt", "enwiki_20180420_500d.txt", "cc.en.vec"]
)
def test_word_vectors_of_any_origin(tmp_path, name):
    (tmp_path / name).write_text(makers.vectors(5, 7)[2])
    assert locate("word-vectors", tmp_path) == tmp_path / name
    assert locate("word-vectors", tmp_path / name) == tmp_path / name
    (report,) = check("word-vectors", tmp_path)
    assert (report.status, report.name) == ("ok", name)
    assert "7 numbers" in report.detail
    (tmp_path / name).write_text("the 1 2\nof 1 x\n")
    (report,) = check("word-vectors", tmp_path)
    assert report.status == "wrong"
    assert "line 2" in report.detail


def test_the_publishers_own_vectors_come_first_and_two_others_are_a_question(tmp_path):
    for name in ("glove.a.txt", "glove.b.txt"):
        (tmp_path / name).write_text("the 1 2\n")
    with pytest.raises(DataError, match=r"glove\.a\.txt, glove\.b\.txt; name the one to use"):
        locate("word-vectors", tmp_path)
    (tmp_path / "glove.6B.100d.txt").write_text("the 1 2\n")
    assert locate("word-vectors", tmp_path).name == "glove.6B.100d.txt"


def test_no_word_vectors_at_all(tmp_path):
    with pytest.raises(DataError, match=r"glove\.6B\.100d\.txt not found"):
        locate("word-vectors", tmp_path)
