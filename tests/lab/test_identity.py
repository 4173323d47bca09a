"""What a run depends on apart from its config is recorded, compared when the run is resumed, and logged."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import mollifier
from mollifier_lab import engine
from mollifier_lab.errors import LabError
from mollifier_lab.runs import RunFolder
from mollifier_lab.settings import RunConfig
from tests.lab.data import makers

TINY = {
    "bits": 6,
    "width": 8,
    "depth": 3,
    "samples": 32,
    "batch": 8,
    "updates": 20,
    "evaluate_every": 5,
    "k": 5.0,
    "save_every": 5,
}
CONFIG = RunConfig.make("parity", "mollified", preset="quick", **TINY)


def here(**changes: Any) -> engine.Hardware:
    return engine.Hardware(**{"accelerator": "cpu", "threads": 1, "tensorboard": False} | changes)


def stopped(out: Path, config: RunConfig = CONFIG, data: Path | None = None, **changes: Any) -> RunFolder:
    def stop(update: int, *_: object) -> None:
        if update == 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.train(config, out, data=data, hardware=here(**changes), show=False, observe=stop)
    return RunFolder(out)


def log(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "resumptions.jsonl").read_text().splitlines()]


def test_it_is_in_the_environment(tmp_path: Path) -> None:
    found = stopped(tmp_path).json("environment.json")["identity"]
    assert (found["precision"], found["ranks"], found["threads"], found["device"]) == ("32-true", 1, 1, "cpu")
    assert found["kernels"] == mollifier.kernels.info().backend
    assert {"torch", "deterministic", "data"} <= set(found)


def test_another_precision_is_refused_and_the_right_one_goes_on(tmp_path: Path) -> None:
    stopped(tmp_path, precision="64-true")
    rows = (tmp_path / "metrics.jsonl").read_bytes()
    with pytest.raises(LabError, match=r"precision: 64-true before, 32-true now \(give --precision 64-true\)"):
        engine.resume(tmp_path, hardware=here(), show=False)
    assert (tmp_path / "metrics.jsonl").read_bytes() == rows
    assert not (tmp_path / "resumptions.jsonl").exists()
    assert engine.resume(tmp_path, hardware=here(precision="64-true"), show=False)["updates"] == 20


def test_other_kernels_are_refused_where_they_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped(tmp_path / "mollified")
    stopped(tmp_path / "plain", RunConfig.make("parity", "plain", preset="quick", **TINY))
    before = mollifier.kernels.info().backend
    monkeypatch.setattr(mollifier.kernels, "info", lambda: SimpleNamespace(backend="others"))
    with pytest.raises(LabError, match=f"kernels: {before} before, others now .they draw different noise"):
        engine.resume(tmp_path / "mollified", hardware=here(), show=False)
    assert engine.resume(tmp_path / "plain", hardware=here(), show=False)["updates"] == 20


def test_other_data_are_refused(tmp_path: Path) -> None:
    tiny = {
        "valid": 5,
        "embedding": 4,
        "width": 4,
        "depth": 2,
        "batch": 4,
        "updates": 20,
        "evaluate_every": 5,
        "save_every": 5,
    }
    path = tmp_path / "vectors" / "glove.tiny.txt"
    path.parent.mkdir()
    path.write_text(makers.vectors(40, 4)[2])
    stopped(tmp_path / "run", RunConfig.make("characters", "plain", preset="quick", **tiny), path.parent)
    good = path.read_text()
    path.write_text(makers.vectors(40, 4, seed=1)[2])
    with pytest.raises(LabError, match=r"data: glove\.tiny\.txt changed"):
        engine.resume(tmp_path / "run", data=path.parent, hardware=here(), show=False)
    path.write_text(good)
    assert engine.resume(tmp_path / "run", data=path.parent, hardware=here(), show=False)["updates"] == 20


def test_other_threads_are_told_of_and_logged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stopped(tmp_path)
    engine.resume(tmp_path, hardware=here(threads=2), show=False)
    assert "threads: 1 before, 2 now; the last digits may differ" in capsys.readouterr().err
    (line,) = log(tmp_path)
    assert (line["update"], line["differs"]) == (10, ["threads: 1 before, 2 now"])
    assert line["identity"]["threads"] == 2
    assert line["time"].startswith("20")


def test_every_resumption_is_logged_and_nothing_said_where_nothing_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(update: int, *_: object) -> None:
        raise KeyboardInterrupt

    stopped(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        engine.resume(tmp_path, hardware=here(), show=False, observe=stop)
    engine.resume(tmp_path, hardware=here(), show=False)
    assert [(line["update"], line["differs"]) for line in log(tmp_path)] == [(10, []), (10, [])]
    assert capsys.readouterr().err == ""


def test_a_checkpoint_of_the_version_before_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mollifier_lab import checkpoint

    stopped(tmp_path)
    (tmp_path / "seal.json").unlink()
    saved = checkpoint.load(tmp_path / "checkpoints")
    assert saved is not None
    for path in (tmp_path / "checkpoints").iterdir():
        path.unlink()
    old = {name: value for name, value in saved.state.items() if name not in ("identity", "sums", "format")}
    checkpoint.save(tmp_path / "checkpoints", saved.update, old)
    environment = json.loads((tmp_path / "environment.json").read_text())
    del environment["identity"]
    (tmp_path / "environment.json").write_text(json.dumps(environment))
    with monkeypatch.context() as patch:
        patch.setattr(mollifier.kernels, "info", lambda: SimpleNamespace(backend="others"))
        with pytest.raises(LabError, match=r"others now .they draw different noise"):
            engine.resume(tmp_path, hardware=here(), show=False)
    engine.resume(tmp_path, hardware=here(), show=False)
    engine.train(CONFIG, tmp_path / "alone", hardware=here(), show=False)
    assert (tmp_path / "metrics.jsonl").read_bytes() == (tmp_path / "alone" / "metrics.jsonl").read_bytes()


def test_the_flag_is_no_other_run(tmp_path: Path) -> None:
    from mollifier_lab.job import different

    folder = stopped(tmp_path)
    assert different(folder, dataclasses.replace(CONFIG, other_data=True)) == ""
