from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from mollifier_lab.data.fetch import fetch
from mollifier_lab.data.folder import DataError
from mollifier_lab.data.sources import Archive, Source
from tests.lab.data import makers
from tests.lab.data.server import serve

FILES = {"one.bin": os.urandom(300_000), "two.bin": os.urandom(5)}
PACKED = makers.tar(("../evil", b"x"), *((f"set/{name}", data) for name, data in FILES.items()))


@pytest.fixture(scope="module")
def server():
    with serve({**FILES, "set.tar.gz": PACKED}) as server:
        yield server


@pytest.fixture(autouse=True)
def _fresh_log(server):
    server.asked.clear()


@pytest.fixture
def single(server):
    """Facts of a set whose files are served one by one, with these manners in turn."""

    def make(*manners: str) -> Source:
        files = tuple(makers.file(name, data) for name, data in FILES.items())
        return Source("tiny", "A tiny set", files, "", mirrors=tuple(server.address(manner) for manner in manners))

    return make


@pytest.fixture
def packed(server):
    """The same out of an archive."""

    def make(*manners: str) -> Source:
        files = tuple(makers.file(name, data) for name, data in FILES.items())
        addresses = tuple(server.address(manner) + "set.tar.gz" for manner in manners)
        box = Archive("set.tar.gz", addresses, f"sha256:{makers.sha256(PACKED)}", prefix="set/")
        return Source("tiny", "A tiny set", files, "", archive=box, subfolder="set")

    return make


def bring(facts: Source, folder, **options):
    return fetch("tiny", folder, sources=facts, timeout=0.5, **{"progress": False} | options)


def contents(folder) -> dict[str, bytes]:
    return {name: data for name, (data, _) in makers.state(folder).items()}


def test_files_one_by_one(single, server, tmp_path):
    place = bring(single("good"), tmp_path / "new" / "data")
    assert place == tmp_path / "new" / "data" / "tiny"
    assert contents(place) == FILES
    assert sorted(os.listdir(place)) == sorted(FILES)  # no temporary folder stays, empty or not
    assert server.accepted == {"identity"}  # a .gz must not be unpacked on its way


def test_an_archive(packed, tmp_path):
    place = bring(packed("good"), tmp_path)
    assert place == tmp_path / "tiny" / "set"
    assert contents(tmp_path) == {f"tiny/set/{name}": data for name, data in FILES.items()}


def test_good_files_are_never_fetched_again(single, server, tmp_path):
    bring(single("good"), tmp_path)
    before, asked = makers.state(tmp_path), len(server.asked)
    bring(single("good"), tmp_path)
    assert makers.state(tmp_path) == before
    assert len(server.asked) == asked == 2
    (tmp_path / "tiny" / "two.bin").unlink()
    bring(single("good"), tmp_path)
    assert server.asked[asked:] == ["/good/two.bin"]
    assert makers.state(tmp_path)["tiny/one.bin"] == before["tiny/one.bin"]


def test_missing_files_go_beside_those_that_are_there(single, tmp_path):
    (tmp_path / "one.bin").write_bytes(FILES["one.bin"])
    assert bring(single("good"), tmp_path) == tmp_path
    assert contents(tmp_path) == FILES


@pytest.mark.parametrize(
    ("manner", "message"),
    [
        ("other", "bytes that are not the published"),
        ("cut", r"(?i)incomplete|connection broken"),
        ("stalled", r"(?i)timed out"),
        ("none", "404"),
    ],
)
def test_a_bad_server_is_an_error_and_nothing_is_left(single, packed, tmp_path, manner, message):
    for facts in (single(manner), packed(manner)):
        with pytest.raises(DataError, match=message) as error:
            bring(facts, tmp_path)
        assert contents(tmp_path) == {}
        assert "could not be downloaded; nothing was changed" in str(error.value)
        assert "mollifier data tiny --from" in str(error.value)


def test_the_next_mirror_is_tried(single, packed, server, tmp_path):
    assert contents(bring(single("none", "other", "cut", "good"), tmp_path / "a")) == FILES
    assert contents(bring(packed("none", "cut", "good"), tmp_path / "b")) == FILES
    assert server.asked[-3:] == ["/none/set.tar.gz", "/cut/set.tar.gz", "/good/set.tar.gz"]


def test_all_failures_are_told_at_once(single, server, tmp_path):
    with pytest.raises(DataError) as error:
        bring(single("none", "other", "cut"), tmp_path)
    for manner in ("none", "other", "cut"):
        assert server.address(manner) + "one.bin" in str(error.value)


def test_a_server_that_is_not_there(single, tmp_path):
    facts = replace(single("good"), mirrors=("http://127.0.0.1:1/",))
    with pytest.raises(DataError, match=r"127\.0\.0\.1"):
        bring(facts, tmp_path)


def test_one_file_of_two_is_not_half_a_set(single, server, tmp_path):
    facts = single("good")
    facts = replace(facts, files=(facts.files[0], makers.file("unserved.bin", b"x")))
    with pytest.raises(DataError, match=r"unserved\.bin could not be downloaded"):
        bring(facts, tmp_path)
    assert contents(tmp_path) == {}


def test_the_archive_is_the_last_way(single, packed, server, tmp_path):
    facts = replace(single("none"), archive=packed("good").archive)
    assert contents(bring(facts, tmp_path)) == FILES
    assert server.asked == ["/none/one.bin", "/none/two.bin", "/good/set.tar.gz"]


def test_an_archive_at_hand_is_used(packed, server, tmp_path):
    (tmp_path / "set.tar.gz").write_bytes(PACKED)
    assert contents(bring(packed("none"), tmp_path)) == FILES
    assert server.asked == []


def test_a_damaged_archive_at_hand_is_not_used_and_not_touched(packed, tmp_path):
    (tmp_path / "set.tar.gz").write_bytes(PACKED[:-10])
    before = makers.state(tmp_path)
    assert contents(bring(packed("good"), tmp_path)) == FILES
    assert makers.state(tmp_path)["set.tar.gz"] == before["set.tar.gz"]


@pytest.mark.parametrize("wrong", [b"mine", FILES["one.bin"][::-1]])
def test_a_wrong_file_is_never_replaced_unasked(single, server, tmp_path, wrong):
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "one.bin").write_bytes(wrong)
    before = makers.state(tmp_path)
    with pytest.raises(DataError, match="left as they are") as error:
        bring(single("good"), tmp_path)
    assert str(tmp_path / "tiny" / "one.bin") in str(error.value)
    assert "--force" in str(error.value)
    assert makers.state(tmp_path) == before
    assert server.asked == []
    with pytest.raises(DataError, match="could not be downloaded"):
        bring(single("other"), tmp_path, force=True)
    assert makers.state(tmp_path) == before
    assert contents(bring(single("good"), tmp_path, force=True)) == FILES


def test_a_broken_file_of_another_origin_is_not_replaced_either(tmp_path):
    path = tmp_path / "glove.mine.txt"
    path.write_text("the 1 2\nof 1\n")
    before = makers.state(tmp_path)
    for force in (False, True):
        with pytest.raises(DataError, match=r"glove\.mine\.txt"):
            fetch("word-vectors", tmp_path, progress=False, force=force)
    assert makers.state(tmp_path) == before


def test_a_folder_that_is_a_file(single, tmp_path):
    path = tmp_path / "data"
    path.write_bytes(b"mine")
    with pytest.raises(DataError, match="is a file"):
        bring(single("good"), path)
    with pytest.raises(DataError, match="cannot write"):
        bring(single("good"), path / "below")
    assert path.read_bytes() == b"mine"


def test_a_process_killed_in_the_middle_leaves_no_file(single, server, tmp_path):
    facts = single("stalled")
    code = (
        "from pathlib import Path\n"
        "from mollifier_lab.data.fetch import fetch\n"
        "from mollifier_lab.data.sources import *\n"
        f"fetch('tiny', Path({str(tmp_path)!r}), sources={facts!r}, progress=False)"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        while not server.asked and process.poll() is None:
            time.sleep(0.05)
        time.sleep(0.1)  # the first half arrives
        process.kill()
    assert server.asked == ["/stalled/one.bin"]
    (left,) = (tmp_path / "tiny").iterdir()
    assert left.name.startswith(".fetch-")
    assert (left / "one.bin").exists() is False

    assert contents(bring(single("good"), tmp_path)).items() >= FILES.items()
    assert left.exists()  # it might still be at work
    os.utime(left, (0, 0))
    (tmp_path / "tiny" / "two.bin").unlink()
    assert contents(bring(single("good"), tmp_path)) == FILES
    assert not left.exists()


def test_progress_is_drawn_on_the_error_stream(single, tmp_path, capsys):
    bring(single("none", "good"), tmp_path, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "one.bin" in err
    assert "two.bin" in err
