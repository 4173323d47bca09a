"""Code of the user's own: found, recorded, compared, and never started unasked."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mollifier_lab import engine, imports, report, trusted_code
from mollifier_lab.cli import main
from mollifier_lab.errors import LabError
from mollifier_lab.imports import Import
from mollifier_lab.job import Job, different
from mollifier_lab.pool import Pool
from mollifier_lab.runs import RunFolder
from mollifier_lab.settings import TASKS, RunConfig
from tests.lab import guide

TINY = {"samples": 20, "updates": 20, "evaluate_every": 10}
FLAGS = [
    "--samples",
    "20",
    "--updates",
    "20",
    "--evaluate-every",
    "10",
    "--quiet",
    "--threads",
    "1",
    "--no-tensorboard",
]


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is trusted is in a folder of the test, and what is registered is gone after it."""
    monkeypatch.setattr(trusted_code, "_mark", lambda source: tmp_path / "cache" / str(abs(hash(source))))
    monkeypatch.setattr(sys, "path", list(sys.path))
    with guide.as_before():
        yield


def again() -> None:
    """As a new process would find it."""
    for table, builtin in zip(guide.TABLES, BUILT_IN, strict=True):
        table.clear()
        table.update(builtin)
    for name in [name for name in sys.modules if name.startswith("my_")]:
        del sys.modules[name]


BUILT_IN = [dict(table) for table in guide.TABLES]


def trained(tmp_path: Path) -> RunFolder:
    """A run of the guide's task."""
    assert (
        main(["train", "--import", str(guide.save(tmp_path)), "spirals", "--out", str(tmp_path / "run"), *FLAGS]) == 0
    )
    return RunFolder(tmp_path / "run")


def stopped(tmp_path: Path) -> Path:
    """A run that was told to stop at its first checkpoint."""
    imports.load(guide.save(tmp_path))

    def stop(update: int, *_: object) -> None:
        if update == 15:
            raise KeyboardInterrupt

    config = RunConfig.make("spirals", "half-time", **TINY)
    hardware = engine.Hardware(threads=1, tensorboard=False)
    with pytest.raises(KeyboardInterrupt):
        engine.train(config, tmp_path / "run", hardware=hardware, show=False, observe=stop)
    again()
    return tmp_path / "run"


def test_the_config_and_the_identity_have_the_hash(tmp_path: Path) -> None:
    run = trained(tmp_path)
    (found,) = json.loads((run.path / "config.json").read_text())["imports"]
    assert found["source"] == str(tmp_path / "my_task.py")
    assert run.json("environment.json")["identity"]["source"] == {"my_task.py": found["sha256"]}
    assert "test_error" in run.json("result.json")["final"]


def test_report_finds_the_task_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = trained(tmp_path)
    again()
    assert main(["report", str(run.path)]) == 0
    assert "spirals: test error" in capsys.readouterr().out


def test_code_that_was_never_named_is_not_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = trained(tmp_path)
    again()
    for mark in (tmp_path / "cache").iterdir():
        mark.unlink()
    guide.save(tmp_path, f"import pathlib\npathlib.Path({str(tmp_path / 'started')!r}).touch()\n{guide.source()}")
    assert main(["report", str(run.path)]) == 2
    assert "which you have not imported here before; if you trust that code, give --import" in capsys.readouterr().err
    assert not (tmp_path / "started").exists()
    imports.load(tmp_path / "my_task.py")
    assert run.config().task == "spirals"
    assert (tmp_path / "started").exists()


def test_a_link_in_the_cache_is_no_trust(tmp_path: Path) -> None:
    trusted_code.trust("some.module")
    assert trusted_code.is_trusted("some.module")
    mark = trusted_code._mark("some.module")
    mark.rename(tmp_path / "elsewhere")
    mark.symlink_to(tmp_path / "elsewhere")
    assert not trusted_code.is_trusted("some.module")


def test_resume_with_another_version_is_refused_and_with_the_same_elsewhere_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = stopped(tmp_path)
    whole, resume = guide.source(), ["resume", str(run), "--quiet", "--threads", "1", "--no-tensorboard"]
    guide.save(tmp_path, whole.replace("6 * t", "7 * t"))
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    assert main(resume) == 2
    assert "source: my_task.py changed (give the original code: --import FILE)" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()} == before
    again()
    (tmp_path / "my_task.py").unlink()
    assert main(resume) == 2
    assert "my_task.py does not exist on" in capsys.readouterr().err
    (tmp_path / "new").mkdir()
    assert main([*resume, "--import", str(guide.save(tmp_path / "new"))]) == 0
    again()
    imports.load(guide.save(tmp_path))
    config = RunConfig.make("spirals", "half-time", **TINY)
    engine.train(config, tmp_path / "alone", hardware=engine.Hardware(threads=1, tensorboard=False), show=False)
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (run / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()


def test_a_study_does_not_mix_versions_and_the_report_tells_them_apart(tmp_path: Path) -> None:
    for number, text in enumerate((guide.source(), guide.source().replace("6 * t", "7 * t"))):
        again()
        imports.load(guide.save(tmp_path, text))
        config = RunConfig.make("spirals", "plain", number, **TINY)
        engine.train(config, tmp_path / "out" / str(number), hardware=engine.Hardware(threads=1, tensorboard=False), show=False)  # fmt: skip
    assert "contains a different run: source is {'my_task.py': " in different(
        RunFolder(tmp_path / "out" / "0"), RunConfig.make("spirals", "plain", 0, **TINY)
    )
    rows = report.table([RunFolder(tmp_path / "out" / name) for name in ("0", "1")])
    assert len(rows) == 2
    assert all(row.variant.startswith("plain, source=") and row.done == 1 for row in rows)


def test_a_worker_that_cannot_load_the_code_says_so_in_one_sentence(tmp_path: Path) -> None:
    imports.load(guide.save(tmp_path))
    jobs = [Job(RunConfig.make("spirals", "plain", seed, **TINY), tmp_path / "out" / str(seed)) for seed in (0, 1)]
    (tmp_path / "my_task.py").write_text("import nowhere_at_all")
    ends = list(Pool(workers=2, threads=1, show=False).run(jobs))
    assert [end.status for end in ends] == ["failed", "failed"]
    for end in ends:
        assert "my_task.py: it cannot be imported, line 1 (ModuleNotFoundError: No module named 'nowhere_at_all')" in end.error  # fmt: skip
        assert "\n" not in end.error


def test_workers_refuse_another_version_and_code_that_starts_runs(tmp_path: Path) -> None:
    imports.load(guide.save(tmp_path))
    config = RunConfig.make("spirals", "plain", **TINY)
    task = Pool(show=False)
    with pytest.raises(LabError, match="is not the file that this was started with"):
        imports.refuse_others([Import(str(tmp_path / "my_task.py"), "0" * 64)])
    text = "from mollifier_lab import study\nstudy.compare('parity', ['plain'], 1, 'out')"
    (tmp_path / "my_script.py").write_text(text)
    with pytest.raises(LabError, match=r'my_script.py starts runs while it is being imported; put that under: if __name__ == "__main__"'):  # fmt: skip
        imports.load(tmp_path / "my_script.py")
    assert [end.status for end in task.run([Job(config, tmp_path / "run")])] == ["done"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "there is no such file"),
        ("1 / 0", "line 1 (ZeroDivisionError: division by zero)"),
        ("raise SystemExit(3)", "line 1 (SystemExit: 3)"),
        ("def x(:", "(SyntaxError:"),
        ("from mollifier_lab import register_task\nregister_task('parity', None)(int)", "there is a task 'parity' already"),
        ("from mollifier_lab import register_task\nregister_task('a b', None)(int)", "expected a name of small letters"),
        ("from mollifier_lab import register_task\nregister_task('a', int)(int)", "is not a dataclass derived from mollifier_lab.Settings"),
        ("from mollifier_lab import register_method\nregister_method('a', knobs=['x'])", "knobs x are not known"),
        ("from mollifier_lab import register_method\nregister_method('a', molify={})", "molify is not known"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_a_sentence(
    text: str | None, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "my_wrong.py"
    if text is not None:
        path.write_text(text)
    assert main(["train", "parity", "--import", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: --import {path}: ")
    assert told in error
    assert "Traceback" not in error
    assert main(["train", "parity", "--import"]) == 2
    assert "--import: expected a Python file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('    chance: ClassVar[float] = 0.5', "    # no chance", "Spirals lacks chance"),
        ("    def model(self):\n        return Net()", "", "SpiralsTask lacks load"),
        ("    updates: int = 1500", "    updates: int = 0", "its defaults or presets make no sense: epochs=0.0"),
        ("@dataclass(frozen=True, kw_only=True)\n", "", "put @dataclass(frozen=True, kw_only=True) above it"),
        ("class SpiralsTask(Classification[Spirals])", "class SpiralsTask", "is not a subclass of mollifier_lab.tasks.Task"),
    ],
)  # fmt: skip
def test_a_task_that_lacks_something_is_named(old: str, new: str, told: str, tmp_path: Path) -> None:
    text = guide.source()
    assert old in text
    text = text.replace(old, new)
    if "lacks load" in told:  # Classification has a model
        text = text.replace("def load", "def not_load")
    with pytest.raises(LabError) as caught:
        imports.load(guide.save(tmp_path, text))
    assert told in str(caught.value)
    assert "spirals" not in TASKS


def test_what_a_method_returns_must_be_what_it_says(tmp_path: Path) -> None:
    imports.load(guide.save(tmp_path, guide.source().replace('knobs=("c",)', "anneals=False")))
    config = RunConfig.make("spirals", "half-time", **TINY)
    with pytest.raises(LabError, match=r"method 'half-time': it returned .*, expected None \(anneals=False\)"):
        engine.train(config, tmp_path / "run", show=False)


def test_what_a_method_did_beside_mollification_is_undone(tmp_path: Path) -> None:
    (tmp_path / "my_method.py").write_text(
        "from mollifier_lab import register_method\n"
        "def undo(model):\n    del model.extra\n"
        "@register_method('extra', anneals=False, undo=undo)\n"
        "def extra(model, settings, example):\n"
        "    '''One more parameter.'''\n"
        "    import torch\n    model.extra = torch.nn.Parameter(torch.zeros(1))\n"
    )
    imports.load(tmp_path / "my_method.py")
    from safetensors import safe_open

    config = RunConfig.make("parity", "extra", bits=4, width=4, depth=1, samples=8, batch=8, updates=2)
    engine.train(config, tmp_path / "run", hardware=engine.Hardware(tensorboard=False), show=False)
    with safe_open(tmp_path / "run" / "model.safetensors", "pt") as file:
        assert sorted(file.keys()) == ["0.bias", "0.weight", "2.bias", "2.weight"]


def test_entry_points_of_a_package_are_loaded_by_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "my_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    guide.save(package)
    monkeypatch.syspath_prepend(str(tmp_path))
    told = tmp_path / "my_package-1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (told / "entry_points.txt").write_text("[mollifier.tasks]\nspirals = my_package.my_task\n")
    assert main(["train", "parrity"]) == 2
    assert "spirals" not in TASKS
    out = str(tmp_path / "run")
    assert main(["train", "spirals", "--out", out, *FLAGS]) == 0
    (record,) = RunFolder(out).config().imports
    assert record.source == "my_package.my_task"
    again()
    assert main(["resume", out]) == 0  # by the name of the module
    again()
    capsys.readouterr()
    assert main(["tasks"]) == 0
    assert "Which of two spirals does a point lie on" in capsys.readouterr().out
    assert main(["methods", "spirals"]) == 0
    assert "half-time" in capsys.readouterr().out


def test_registered_in_a_module_it_is_recorded_without_the_flag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide.save(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    __import__("my_task")
    found: Any = RunConfig.make("spirals", "plain")
    assert [each.source for each in found.imports] == [str(tmp_path / "my_task.py")]
    again()
    assert RunConfig.from_json(found.to_json()).to_json() == found.to_json()


def test_a_worker_that_lives_on_loads_the_new_version(tmp_path: Path) -> None:
    old = imports.load(guide.save(tmp_path))
    again()
    text = guide.source().replace("samples: int = 500", "samples: int = 77")
    new = imports.load(guide.save(tmp_path, text))
    config = RunConfig.make("spirals", "plain")
    again()
    imports.load(guide.save(tmp_path))  # as the worker has it
    guide.save(tmp_path, text)
    assert config.imports == (new,) != (old,)
    assert RunConfig.from_json(config.to_json(), trusted=True).settings == TASKS["spirals"](samples=77)  # type: ignore[call-arg]
    assert imports.hashes(config.imports) == {"my_task.py": new.sha256}
    assert TASKS["spirals"]().samples == 77  # type: ignore[attr-defined]


def test_a_search_finds_a_config_that_train_takes_without_more_words(tmp_path: Path) -> None:
    line = ["search", "spirals", "--import", str(guide.save(tmp_path)), "--method", "half-time", "--trials", "1"]
    few = ["--set", "samples=20", "updates=10", "evaluate_every=5", "--quiet", "--threads", "1"]
    assert main([*line, *few, "--out", str(tmp_path / "search")]) == 0
    again()
    best = tmp_path / "search" / "best.json"
    assert main(["train", "--config", str(best), "--out", str(tmp_path / "run"), "--quiet", "--no-tensorboard"]) == 0
    assert RunFolder(tmp_path / "run").config().imports == RunConfig.from_json(best.read_text()).imports != ()


def test_a_package_has_one_hash_over_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "my_parts"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    first = imports.load("my_parts")
    (package / "helper.py").write_text("x = 1")
    assert imports.digest(sys.modules["my_parts"]) != first.sha256
    assert os.fspath(first.name) == "my_parts"
