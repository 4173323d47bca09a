"""The data of a run are the published files, or the run says that they are not."""

import dataclasses
import json
import os
import shutil
from pathlib import Path

import pytest

from mollifier_lab import engine, files
from mollifier_lab.commands.output import result_line
from mollifier_lab.data import checksums
from mollifier_lab.data.checksums import check_data, digest
from mollifier_lab.data.folder import DataError, cache_folder
from mollifier_lab.data.sources import source
from mollifier_lab.runs import RunFolder
from mollifier_lab.settings import RunConfig
from tests.lab.data import makers

HERE = engine.Hardware(accelerator="cpu", threads=1, tensorboard=False)
PTB = {"width": 4, "steps": 2, "batch": 1, "updates": 2, "layers": 2}


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' files are young."""
    monkeypatch.setattr(checksums, "SETTLED", -1)


def test_other_files_are_refused_named_and_nothing_is_written(tmp_path: Path) -> None:
    makers.ptb(tmp_path / "ptb", train=" a b c <unk> d e \n" * 9)
    config = RunConfig.make("ptb", "plain", preset="quick", **PTB)
    with pytest.raises(DataError, match=r"(?s)ptb\.test\.txt: its sha256 is not the published one.*--allow-other-data"):
        engine.train(config, tmp_path / "run", data=tmp_path, hardware=HERE, show=False)
    assert RunFolder(tmp_path / "run").status == "empty"


def test_a_run_on_other_files_says_so_for_ever(tmp_path: Path) -> None:
    makers.ptb(tmp_path / "ptb", train=" a b c <unk> d e \n" * 9)
    config = dataclasses.replace(RunConfig.make("ptb", "plain", preset="quick", **PTB), other_data=True)
    result = engine.train(config, tmp_path / "run", data=tmp_path, hardware=HERE, show=False)
    assert "; on data other than the published files: ptb.train.txt, " in result_line("ptb", result, tmp_path)
    folder = RunFolder(tmp_path / "run")
    assert folder.config().other_data
    found = folder.json("environment.json")["identity"]
    assert found["other_data"] == ["ptb.train.txt", "ptb.valid.txt", "ptb.test.txt"]
    assert found["data"]["ptb.test.txt"] == f"sha256:{files.digest(tmp_path / 'ptb' / 'ptb.test.txt')}"


def test_the_published_files_pass_and_one_changed_byte_does_not(tmp_path: Path) -> None:
    makers.ptb(tmp_path)
    named = [makers.file(f"ptb.{part}.txt", (tmp_path / f"ptb.{part}.txt").read_bytes()) for part in ("train", "test")]
    facts = dataclasses.replace(source("ptb"), files=tuple(named))
    assert check_data("ptb", tmp_path, facts=facts).other == ()
    path = tmp_path / "ptb.test.txt"
    before = path.stat()
    path.write_text(path.read_text().replace("dog", "cog"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # a forged date does not help
    with pytest.raises(DataError, match=r"ptb\.test\.txt"):
        check_data("ptb", tmp_path, facts=facts)
    assert check_data("ptb", tmp_path, facts=facts, allow_other=True).other == ("ptb.test.txt",)


def test_the_checksum_of_cifar_is_its_own_kind(tmp_path: Path) -> None:
    makers.cifar10(tmp_path)
    with pytest.raises(DataError, match=r"data_batch_1\.bin: its sha1 is not the published one"):
        check_data("cifar10", tmp_path)


def test_word_vectors_of_any_origin_are_taken_by_their_checksum(tmp_path: Path) -> None:
    path = tmp_path / "glove.tiny.txt"
    path.write_text(makers.vectors(5, 3)[2])
    first = check_data("characters", tmp_path)
    assert (list(first.files), first.other) == (["glove.tiny.txt"], ())
    path.write_text(makers.vectors(5, 3, seed=1)[2])
    assert check_data("characters", tmp_path).files != first.files


def test_a_file_is_read_once_and_again_when_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"one")
    first = digest(path, "sha256")
    with monkeypatch.context() as patch:
        patch.setattr(files, "digest", lambda *_: pytest.fail("it was read again"))
        assert digest(path, "sha256") == first
    path.unlink()
    path.write_bytes(b"two")
    assert digest(path, "sha256") != first
    other = tmp_path / "b.bin"
    other.write_bytes(b"six")
    shutil.copystat(path, other)
    os.replace(other, path)  # size and date of the file before
    assert digest(path, "sha256") == f"sha256:{makers.sha256(b'six')}"


def test_a_young_file_is_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksums, "SETTLED", 10**12)
    (tmp_path / "a.bin").write_bytes(b"one")
    digest(tmp_path / "a.bin", "sha256")
    assert not (cache_folder() / "sums").exists()


@pytest.mark.parametrize("planted", ["link", "nonsense", "number"])
def test_what_was_planted_in_the_cache_is_not_believed(tmp_path: Path, planted: str) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"one")
    right = digest(path, "sha256")
    (kept,) = (cache_folder() / "sums").iterdir()
    text = json.loads(kept.read_text()) | {"sum": 5 if planted == "number" else "sha256:lie"}
    kept.unlink()
    if planted == "link":
        (tmp_path / "elsewhere").write_text(json.dumps(text))
        kept.symlink_to(tmp_path / "elsewhere")
    else:
        kept.write_text("[" if planted == "nonsense" else json.dumps(text))
    assert digest(path, "sha256") == right
