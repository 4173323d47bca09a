from __future__ import annotations

import hashlib
import os

import pytest

from mollifier_lab import files


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")

    def fail() -> None:
        with files.atomic(path) as part:
            part.write_bytes(b"half")
            assert path.read_bytes() == b"old"
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert os.listdir(tmp_path) == ["a.bin"]
    assert path.read_bytes() == b"old"


def test_a_good_write_replaces_and_can_be_read_by_others(tmp_path):
    path = tmp_path / "new" / "a.bin"
    before = os.umask(0o022)
    try:
        with files.atomic(path) as part:
            part.write_bytes(b"new")
    finally:
        os.umask(before)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o644
    assert os.listdir(path.parent) == ["a.bin"]


@pytest.mark.parametrize("algorithm", ["sha256", "sha1", "md5"])
def test_checksums(tmp_path, algorithm):
    path = tmp_path / "a"
    path.write_bytes(b"x" * 3_000_000)
    right = hashlib.new(algorithm, b"x" * 3_000_000).hexdigest()
    assert files.matches(path, f"{algorithm}:{right}")
    path.write_bytes(b"x" * 2_999_999 + b"y")
    assert not files.matches(path, f"{algorithm}:{right}")
