"""Building with a real compiler: many processes at once, half-written files, what the key holds, what a wheel holds."""

import subprocess
import sys
import zipfile
from pathlib import Path

from mollifier.kernels import _build
from tests.kernels.test_backend import PROGRAM, run

ROOT = Path(__file__).parents[3]


def test_builds_once_and_then_comes_from_the_cache(tmp_path):
    assert run(tmp_path) == ("native", "compiled for this machine", 0)
    (made,) = (tmp_path / "cache").glob("*.so")
    when = made.stat().st_mtime_ns
    assert run(tmp_path)[0] == "native"
    assert made.stat().st_mtime_ns == when


def test_ten_processes_at_once(tmp_path):
    import os

    environment = {**os.environ, "MOLLIFIER_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(10)
    ]
    said = [process.communicate() for process in processes]
    assert [out.split() for out, _ in said] == [[b"native", b"compiled", b"for", b"this", b"machine", b"0"]] * 10, said
    assert len(list((tmp_path / "cache").glob("*.so"))) == 1  # one file, and no half-made one beside it


def test_a_half_written_file_is_built_again(tmp_path):
    assert run(tmp_path)[0] == "native"
    (made,) = (tmp_path / "cache").glob("*.so")
    whole = made.read_bytes()
    for rest in (b"", whole[: len(whole) // 2], b"not a library"):
        made.write_bytes(rest)
        assert run(tmp_path) == ("native", "compiled for this machine", 0)
        assert made.stat().st_size == len(whole)
    made.with_suffix(".sha256").write_text("half a su")
    assert run(tmp_path) == ("native", "compiled for this machine", 0)


def test_the_key_holds_source_flags_compiler_and_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("MOLLIFIER_CACHE", str(tmp_path))
    monkeypatch.setattr(
        _build, "_compile", lambda command, target: target.touch()
    )  # the names matter here, not the files
    paths = [_build.build()]
    assert _build.build() == paths[0]
    with monkeypatch.context() as changed:
        changed.setattr(_build, "FLAGS", (*_build.FLAGS, "-g"))
        paths.append(_build.build())
    with monkeypatch.context() as changed:
        changed.setattr(_build, "_cpu", lambda: "another machine")
        paths.append(_build.build())
    other = tmp_path / "compiler"
    other.write_text("#!/bin/sh\necho another compiler\n")
    other.chmod(0o755)
    with monkeypatch.context() as changed:
        changed.setenv("CXX", str(other))
        paths.append(_build.build())
    sources = tmp_path / "csrc"
    sources.mkdir()
    for file in _build.SOURCES.iterdir():
        (sources / file.name).write_text(file.read_text() + "\n")
    with monkeypatch.context() as changed:
        changed.setattr(_build, "SOURCES", sources)
        paths.append(_build.build())
    assert len(set(paths)) == 5


def test_a_wheel_holds_the_sources(tmp_path):
    # hatchling is what pip builds with; it comes with the development tools
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {f"mollifier/kernels/csrc/{file.name}" for file in _build.SOURCES.iterdir()} <= set(names)
    assert not [name for name in names if name.endswith(".so")]
