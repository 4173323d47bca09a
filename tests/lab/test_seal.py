"""Records that were damaged are named, and never become a number."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mollifier_lab import engine, seal
from mollifier_lab.cli import main
from mollifier_lab.errors import LabError
from mollifier_lab.runs import RunFolder
from tests.lab.test_identity import CONFIG, here, stopped


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    engine.train(CONFIG, out, hardware=here(), show=False)
    return out


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


def test_a_run_that_is_done_is_sealed(run: Path) -> None:
    assert seal.damage(run) == {}
    known = json.loads((run / "seal.json").read_text())["files"]
    assert set(known) == {"config.json", "environment.json", "metrics.jsonl", "clock.jsonl", "result.json"}


def cut(text: str) -> str:
    return "".join(text.splitlines(keepends=True)[:-1])


def digit(text: str) -> str:
    return text.replace("0.6", "0.1", 1) if "0.6" in text else text.replace("0", "1", 1)


@pytest.mark.parametrize("name", ["config.json", "environment.json", "metrics.jsonl", "clock.jsonl", "result.json"])
@pytest.mark.parametrize(
    ("change", "said"), [(cut, "cut short: "), (digit, "not what the run wrote"), (None, "missing")]
)
def test_every_damage_is_named(run: Path, name: str, change: Callable[[str], str] | None, said: str) -> None:
    path = run / name
    if change is not None:
        path.write_text(change(path.read_text()))
    elif name == "result.json":
        return  # without it the run is not done
    else:
        path.unlink()
    assert seal.damage(run)[name].startswith(said)
    with pytest.raises(LabError, match=f"damaged: .*{name}"):
        seal.refuse(run)


def test_a_lost_or_broken_seal_is_damage_too(run: Path) -> None:
    (run / "seal.json").write_text("{")
    assert seal.damage(run) == {"seal.json": "cannot be read"}
    (run / "seal.json").unlink()
    assert seal.damage(run) == {"seal.json": "missing"}


def test_a_row_too_many_is_damage_once_the_run_is_done(run: Path) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"update": 30}\n')
    assert seal.damage(run) == {"metrics.jsonl": "not what the run wrote"}


def test_resume_and_train_do_not_believe_a_damaged_result(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads((run / "result.json").read_text())
    del found["final"]
    (run / "result.json").write_text(json.dumps(found))
    assert main(["resume", str(run)]) == 2
    assert "damaged: result.json" in capsys.readouterr().err
    assert main(["train", "parity", "--config", str(run / "config.json"), "--out", str(run)]) == 2
    assert "damaged: result.json" in capsys.readouterr().err
    with pytest.raises(LabError, match=r"damaged: result\.json"):
        engine.resume(run)


def test_an_unfinished_run_is_sealed_up_to_its_checkpoint_and_may_grow(tmp_path: Path) -> None:
    stopped(tmp_path)
    assert seal.damage(tmp_path) == {}
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"update": 15}\n')
    assert seal.damage(tmp_path) == {}
    path = tmp_path / "metrics.jsonl"
    path.write_text(digit(path.read_text()))
    assert seal.damage(tmp_path) == {"metrics.jsonl": "not what the run wrote"}


def test_rows_that_were_changed_are_not_gone_on_with(tmp_path: Path) -> None:
    stopped(tmp_path)
    path = tmp_path / "metrics.jsonl"
    changed = digit(path.read_text())
    path.write_text(changed)
    with pytest.raises(LabError, match=r"damaged: metrics\.jsonl \(not what the run wrote\)"):
        engine.resume(tmp_path, hardware=here(), show=False)
    assert path.read_text() == changed


@pytest.mark.parametrize("lost", [True, False])
def test_a_damaged_clock_is_told_of_and_does_not_block(
    lost: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped(tmp_path)
    clock = tmp_path / "clock.jsonl"
    if lost:
        clock.unlink()
    else:
        clock.write_text(clock.read_text().replace("0", "7"))
    engine.resume(tmp_path, hardware=here(), show=False)
    assert "damaged: clock.jsonl" in capsys.readouterr().err
    assert [row["update"] for row in RunFolder(tmp_path).rows("clock.jsonl")] == [15, 20]
    assert seal.damage(tmp_path) == {}


def test_killed_between_the_seal_and_the_result_it_goes_on(run: Path, whole: Path) -> None:
    (run / "result.json").unlink()
    assert seal.damage(run) == {}
    engine.resume(run, hardware=here(), show=False)
    assert seal.damage(run) == {}
    assert (run / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()


def test_a_run_of_the_version_before_is_unchecked(run: Path) -> None:
    (run / "seal.json").unlink()
    found = json.loads((run / "result.json").read_text())
    del found["sealed"]
    (run / "result.json").write_text(json.dumps(found))
    assert seal.damage(run) == {}
