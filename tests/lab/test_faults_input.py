"""Whatever is given, the answer is one sentence and exit code 2, never a traceback."""

import contextlib
import json
import math
import pwd
from pathlib import Path
from typing import Any

import pytest

from mollifier_lab import RunConfig, cli, interrupts
from mollifier_lab.cli import main
from mollifier_lab.errors import LabError
from mollifier_lab.hardware import MOST, Hardware
from mollifier_lab.runs import RunFolder
from mollifier_lab.settings import SEEDS
from mollifier_lab.signals import Stop

CONFIG = RunConfig.make("parity", "mollified", preset="quick", bits=4, width=8, depth=2, samples=16, updates=4)
RESULT = {
    "format": 1, "updates": 4, "seconds": 1.0, "updates_per_second": 4.0, "final": {"train_nll": 0.5}, "best": {"train_nll": 0.5},
    "annealing": {"finished": True, "finished_at": 3, "levels": [0.0]}, "diverged": False, "divergence": None, "converged": False,
}  # fmt: skip
ROW = {"update": 0, "epoch": 0.0, "train_nll": 0.7, "levels": [1.0], "loss_average": 0.7}


def sentence(capsys: pytest.CaptureFixture[str]) -> str:
    """What was said: one line, and no fault of the program's own."""
    err = capsys.readouterr().err.rstrip("\n")
    assert err.startswith("error: ")
    assert cli.BUG not in err
    assert "\n" not in err
    return err


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = RunFolder(tmp_path / "run")
    folder.write("config.json", CONFIG.to_json())
    folder.write("result.json", json.dumps(RESULT))
    folder.write("metrics.jsonl", json.dumps(ROW) + "\n")
    return folder.path


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--gain inf", "gain=inf: expected a finite number"),
        ("--epochs inf --updates 0", "epochs=inf: expected a finite number"),
        ("--weight-decay nan", "weight_decay=nan: expected a finite number"),
        ("--lr 1e99", "lr=1e+99: expected a number of at most 1e+30"),
        ("--width 99999999999999999999", "width=99999999999999999999: expected a number of at most 1e+15"),
        ("--seed 18446744073709551615", f"expected a whole number from 0 to {SEEDS - 1}"),
        ("--threads -1", f"threads=-1: expected a whole number from 0 (torch decides) to {MOST}"),
        ("--threads 100000", f"threads=100000: expected a whole number from 0 (torch decides) to {MOST}"),
        ("--devices 0", f"devices=0: expected a whole number from 1 to {MOST}"),
        ("--nodes -3", "nodes=-3: expected a whole number from 1"),
        ("--accelerator tpu", "--accelerator tpu: Fabric cannot run with this: "),
        ("--config /dev/zero", "--config /dev/zero: more than 16 MB; expected a small JSON file"),
        ("--config /dev", "--config /dev: Is a directory"),
        ("--label \udcff", "label='\\udcff': expected text; it contains bytes that are not UTF-8"),
    ],
)
def test_a_flag_out_of_range(
    flags: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "parity", "--preset", "quick", *flags.split()]) == 2
    assert expected in sentence(capsys)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("compare parity --threads 100000", "threads=100000: expected a whole number from 0"),
        ("compare parity --workers 100000", f"workers=100000: expected a whole number from 1 to {MOST}"),
        ("compare parity --seeds 1000000000000", "seeds=1000000000000: expected at most 10000"),
        ("search parity --trials 1000000000000", "trials=1000000000000: expected a whole number from 1 to 10000"),
        ("search parity --seed 4294967296", "seed=4294967296: expected a whole number from 0"),
    ],
)
def test_of_many_runs_a_number_out_of_range(
    line: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(line.split()) == 2
    assert expected in sentence(capsys)


@pytest.mark.parametrize(
    "text",
    [
        b"", b"null", b"true", b"[]", b"3", b'"text"', b"{}", b"\xff\xfe{\x00}\x00", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5000, b"NaN",
        json.dumps({**json.loads(CONFIG.to_json()), "settings": 3}).encode(),
        json.dumps({**json.loads(CONFIG.to_json()), "settings": []}).encode(),
        json.dumps({**json.loads(CONFIG.to_json()), "task": ["parity"]}).encode(),
        json.dumps({**json.loads(CONFIG.to_json()), "seed": True}).encode(),
        json.dumps({**json.loads(CONFIG.to_json()), "seed": 1e400}).encode(),
        json.dumps({**json.loads(CONFIG.to_json()), "label": None}).encode(),
        json.dumps({**json.loads(CONFIG.to_json()), "label": "\ud800"}).encode(),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["resume", "report"])
def test_a_config_of_a_wrong_type_or_encoding(
    text: bytes, command: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "config.json").write_bytes(text)
    assert main([command, str(run)]) == 2
    err = capsys.readouterr().err
    assert f"{run}/config.json" in err
    assert cli.BUG not in err
    assert main(["train", "parity", "--config", str(run / "config.json"), "--out", str(run)]) == 2
    assert cli.BUG not in sentence(capsys)


@pytest.mark.parametrize("value", [True, None, "8", [8], {}, 1e400, math.nan, 2**70, 8.5])
@pytest.mark.parametrize("name", ["width", "lr", "flush_denormal", "optimizer"])
def test_a_setting_of_a_wrong_type(value: Any, name: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(CONFIG.to_json())
    if (name, value) in (("lr", 8.5), ("flush_denormal", True)):
        return
    found["settings"][name] = value
    (run / "config.json").write_text(json.dumps(found))
    assert main(["resume", str(run)]) == 2
    assert f"{name}=" in sentence(capsys)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("updates", None), ("updates", True), ("seconds", "1"), ("seconds", math.inf), ("final", []), ("final", {"train_nll": "0"}),
        ("diverged", 0), ("divergence", 5), ("best", 3), ("annealing", True), ("annealing", {"levels": True}),
    ],
)  # fmt: skip
def test_a_result_of_a_wrong_type(name: str, value: Any, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "result.json").write_text(json.dumps(RESULT | {name: value}))
    assert main(["resume", str(run)]) == 2
    assert f"{run}/result.json: {name}: expected" in sentence(capsys)
    assert main(["report", str(run)]) == 0
    assert f"{run}: damaged: result.json ({name}: expected" in capsys.readouterr().err


@pytest.mark.parametrize("text", [b"", b"[]", b"true", b"\xff", b"[" * 100_000])
def test_a_result_that_is_no_object(text: bytes, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "result.json").write_bytes(text)
    assert main(["resume", str(run)]) == 2
    assert f"{run}/result.json" in sentence(capsys)
    assert main(["report", str(run)]) == 0
    told = capsys.readouterr()
    assert f"{run}: damaged: result.json (" in told.err
    assert "0 done, 1 damaged" in told.out


@pytest.mark.parametrize("change", [{"update": math.inf}, {"update": True}, {"update": -1}, {"levels": True}, {"levels": [None]}, {"levels": 3}])  # fmt: skip
def test_a_row_of_a_wrong_type(change: dict[str, Any], run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "metrics.jsonl").write_text(json.dumps(ROW) + "\n" + json.dumps(ROW | change) + "\n")
    assert main(["report", str(run)]) == 0
    assert f"{run}: damaged: metrics.jsonl (line 2: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:115] err == 0. DefaultCPUAllocator: can't allocate memory: you tried"),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    ],
)  # fmt: skip
def test_out_of_memory(error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(cli, "parse", lambda args: (_ for _ in ()).throw(error))
    assert main(["tasks"]) == 2
    assert "not enough memory" in sentence(capsys)


def test_a_network_that_no_memory_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "--preset quick --bits 4 --width 100000000 --samples 16 --threads 1 --no-tensorboard --quiet --out"
    assert main(["train", "parity", *words.split(), str(tmp_path / "run")]) == 2
    assert "not enough memory" in sentence(capsys)


def test_a_fault_of_our_own_is_a_sentence_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "parse", lambda args: {}["none"])
    assert main(["tasks"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: KeyError: 'none'; ")
    assert cli.BUG in err


def test_an_interrupt_that_a_library_swallowed_is_one_all_the_same(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def swallow(_words: list[str]) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            interrupts.press(2, None)
        raise ImportError("cannot load module more than once per process")

    monkeypatch.setattr(cli, "parse", swallow)
    try:
        assert cli.main(["train"]) == 130
        assert capsys.readouterr().err == "interrupted\n"
        with Stop() as stop:  # had the library not failed, a run would stop at its first update
            assert stop.asked
    finally:
        interrupts.PRESSED.clear()


def test_an_interrupted_import_is_an_interruption(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def half_imported(args: list[str]) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            raise ImportError("initialization failed") from error

    monkeypatch.setattr(cli, "parse", half_imported)
    assert main(["tasks"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_without_a_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "MOLLIFIER_DATA", "MOLLIFIER_CACHE"):
        monkeypatch.delenv(name, raising=False)

    def nobody(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    assert main(["train", "mnist", "--out", str(tmp_path / "run"), "--quiet", "--no-tensorboard"]) == 2
    assert "no home directory" in sentence(capsys)
    assert main(["data", "mnist", "--data", "~nobody-of-this-name/data"]) == 2
    assert "~nobody-of-this-name" in sentence(capsys)


def test_a_folder_whose_name_is_no_text_is_reported_on(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = run.with_name("run-\udcff")
    run.rename(odd)
    assert main(["report", str(odd)]) == 0
    assert (odd / "report.html").exists()


def test_hardware_out_of_range_is_refused_from_python_too() -> None:
    with pytest.raises(LabError, match="threads=-1"):
        Hardware(threads=-1)


@pytest.mark.parametrize("name", ["task", "method", "preset"])
@pytest.mark.parametrize("suffix", [".json", ".yaml"])
def test_an_empty_name_in_a_config_is_not_the_default(name: str, suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    path = tmp_path / f"config{suffix}"
    path.write_text(json.dumps({"task": "parity", name: ""}))
    assert main(["train", "parity", "--config", str(path), "--out", str(tmp_path / "out")]) == 2
    assert f"{name}='': expected the name of a {name}, or leave it out" in sentence(capsys)


def test_code_of_the_user_may_raise_anything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text("class Own(BaseException): pass\nraise Own('no')")
    assert main(["train", "parity", "--import", str(tmp_path / "mine.py")]) == 2
    assert "it cannot be imported, line 2 (Own: no)" in sentence(capsys)


@pytest.mark.parametrize("command", [["compare"], ["search", "--trials", "2"]])
@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_many_runs_are_not_put_into_the_folder_of_one(command: list[str], more: list[str], run: Path, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    before = sorted(run.rglob("*"))
    assert main([command[0], "parity", *command[1:], *more, "--out", str(run)]) == 2
    assert f"{run} contains a single run; expected a folder for a comparison" in sentence(capsys)
    assert sorted(run.rglob("*")) == before


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("compare parity --workers 0", "workers=0: expected a whole number from 1"),
        ("compare parity --threads -1", "threads=-1: expected a whole number from 0"),
        ("compare parity --search -1", "trials=-1: expected a whole number from 1 to 10000"),
        ("compare parity --best /dev/zero", "/dev/zero: not what `mollifier search` writes"),
        ("compare parity --logger x", "--logger x: expected mlflow or wandb"),
        ("search parity --trials 99999999999", "trials=99999999999: expected a whole number from 1 to 10000"),
        ("search parity --workers 0", "workers=0: expected a whole number from 1"),
        ("train parity --logger x", "--logger x: expected mlflow or wandb"),
    ],
)
def test_a_dry_run_refuses_what_a_run_would(line: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    assert main([*line.split(), "--dry-run", "--out", str(tmp_path / "out")]) == 2
    assert expected in sentence(capsys)


def test_a_path_that_no_file_can_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "parity", "--preset", "quick", "--out", f"{tmp_path}/a\x00b"]) == 2
    assert "a path contains a null byte" in sentence(capsys)
