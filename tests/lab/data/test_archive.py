from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import zipfile

import pytest

from mollifier_lab.data.archive import extract
from mollifier_lab.data.folder import DataError
from mollifier_lab.data.sources import Archive, File
from tests.lab.data import makers

GOOD = b"what was published " * 1000
WANTED = (makers.file("a.bin", GOOD),)


def archive(name: str = "set.tar.gz", limit: int = 1 << 20) -> Archive:
    return Archive(name, (), "sha256:none", prefix="set/", limit=limit)


@pytest.fixture
def run(tmp_path):
    """Unpack these bytes as an archive, into tmp_path/deep/out."""
    out = tmp_path / "deep" / "out"
    out.mkdir(parents=True)

    def run(data: bytes, wanted=WANTED, facts=None):
        facts = facts or archive()
        path = tmp_path / "archive"
        path.write_bytes(data)
        extract(path, facts, wanted, out)
        return out

    yield run
    # whatever was tried: nothing may lie anywhere else
    found = {path.name for path in tmp_path.rglob("*") if not path.is_dir()}
    assert found <= {"archive", "a.bin"}


def link(kind: bytes, name: str, target: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def zipped(*members: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in members:
            packed.writestr(name, data)
    return out.getvalue()


def test_only_the_named_members_of_a_tar_come_out(run):
    out = run(
        makers.tar(
            ("../evil", b"x"),
            ("/tmp/mollifier-evil", b"x"),
            ("set/other", b"x"),
            ("./set/a.bin", GOOD),
            ("set/../../a.bin", b"x"),
        )
    )
    assert os.listdir(out) == ["a.bin"]
    assert (out / "a.bin").read_bytes() == GOOD
    assert not os.path.exists("/tmp/mollifier-evil")


def test_only_the_named_members_of_a_zip_come_out(run):
    data = zipped(("../evil", b"x"), ("/tmp/mollifier-evil", b"x"), ("set/a.bin", GOOD))
    assert (run(data, facts=archive("set.zip")) / "a.bin").read_bytes() == GOOD


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_what_is_no_plain_file_is_refused(run, kind):
    with pytest.raises(DataError, match="not a regular file"):
        run(makers.tar(link(kind, "set/a.bin", "/etc/passwd")))


def test_a_file_below_a_linked_folder_stays_inside(run, tmp_path):
    (tmp_path / "outside").mkdir()
    out = run(makers.tar(link(tarfile.SYMTYPE, "set", str(tmp_path / "outside")), ("set/a.bin", GOOD)))
    assert os.listdir(out) == ["a.bin"]
    assert os.listdir(tmp_path / "outside") == []


def test_a_link_in_a_zip_is_refused(run):
    info = zipfile.ZipInfo("set/a.bin")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with pytest.raises(DataError, match="not a regular file"):
        run(zipped((info, b"/etc/passwd")), facts=archive("set.zip"))


def test_a_member_that_is_too_big_or_too_small_is_refused(run):
    with pytest.raises(DataError, match="bigger than 19,000 bytes"):
        run(makers.tar(("set/a.bin", GOOD + b"x")))
    with pytest.raises(DataError, match="has 18,999 bytes, expected 19,000"):
        run(makers.tar(("set/a.bin", GOOD[:-1])))


def test_a_member_of_unknown_size_is_stopped_at_the_limit(run):
    bomb = bytes(2_000_000)
    wanted = (File("a.bin"),)
    with pytest.raises(DataError, match=r"more than 1,048,576 bytes|bigger than 1,048,576 bytes"):
        run(makers.tar(("set/a.bin", bomb)), wanted)
    with pytest.raises(DataError, match="bigger than 1,048,576 bytes"):
        run(zipped(("set/a.bin", bomb)), wanted, archive("set.zip"))


def test_a_bomb_before_the_wanted_member_is_not_read_through(run):
    with pytest.raises(DataError, match="unpacks to more than 1,048,576 bytes"):
        run(makers.tar(("bomb", bytes(2_000_000)), ("set/a.bin", GOOD)))


def test_a_bomb_in_a_header_does_not_fill_the_memory(run):
    """A pax header is read into memory as a whole: its size is whatever the archive says."""
    info = tarfile.TarInfo("header")
    info.type, info.size = tarfile.XHDTYPE, 2_000_000
    with pytest.raises(DataError, match="unpacks to more than"):
        run(gzip.compress(info.tobuf(tarfile.USTAR_FORMAT) + bytes(2_000_512)))


def test_a_sparse_file_that_says_it_is_huge_is_stopped(run):
    info = tarfile.TarInfo("set/a.bin")
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[156:157] = tarfile.GNUTYPE_SPARSE
    header[483:495] = b"77777777777\0"  # the size after unpacking: 8 GB of nothing
    header[148:156] = b"        "
    header[148:156] = b"%06o\0 " % sum(header)
    with pytest.raises(DataError, match="bigger than"):
        run(gzip.compress(bytes(header) + bytes(1024)))


def test_a_zip_that_lies_about_its_size(run):
    data = bytearray(zipped(("set/a.bin", GOOD)))
    at = data.rindex(b"PK\x01\x02") + 24
    assert int.from_bytes(data[at : at + 4], "little") == len(GOOD)
    data[at : at + 4] = (5).to_bytes(4, "little")
    with pytest.raises(DataError, match="damaged archive"):
        run(bytes(data), facts=archive("set.zip"))


def test_other_bytes_of_the_right_size_are_refused(run, tmp_path):
    with pytest.raises(DataError, match="published checksum"):
        run(makers.tar(("set/a.bin", GOOD[::-1])))
    assert os.listdir(tmp_path / "deep" / "out") == []


def test_what_is_not_there_is_named(run):
    with pytest.raises(DataError, match=r"has no set/a\.bin"):
        run(makers.tar(("a.bin", GOOD)))
    with pytest.raises(DataError, match=r"has no set/a\.bin"):
        run(zipped(("a.bin", GOOD)), facts=archive("set.zip"))


@pytest.mark.parametrize("name", ["set.tar.gz", "set.zip"])
def test_damaged_archives(run, name):
    random = os.urandom(50_000)
    wanted = (makers.file("a.bin", random),)
    data = makers.tar(("set/a.bin", random)) if name == "set.tar.gz" else zipped(("set/a.bin", random))
    middle = len(data) // 2
    for broken in (data[:middle], b"not an archive", b"", data[:middle] + bytes(64) + data[middle + 64 :]):
        with pytest.raises(DataError, match=r"damaged archive|published checksum|has no"):
            run(broken, wanted, archive(name))
