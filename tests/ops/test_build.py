"""Building: with a compiler the wheel holds the library, without one it is pure Python and says so; the sources stay out of it."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from mollifier.ops import _build

ROOT = Path(__file__).parents[2]


def wheel(tmp_path: Path, **environment: str) -> tuple[str, list[str], str]:
    """Its name, its files and what was said while it was built, from a copy of the sources."""
    here = tmp_path / "project"
    here.mkdir()
    for name in ("src", "pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        target = here / name
        if name == "src":
            ignored = ["--exclude=lib/*.so", "--exclude=__pycache__"]
            target.mkdir()
            packed = subprocess.run(
                ["tar", "-C", str(ROOT / name), *ignored, "-cf", "-", "."], check=True, capture_output=True
            )
            subprocess.run(["tar", "-C", str(target), "-xf", "-"], check=True, input=packed.stdout)
        else:
            target.write_bytes((ROOT / name).read_bytes())
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")],
        cwd=here,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (made,) = (tmp_path / "dist").glob("*.whl")
    return made.name, zipfile.ZipFile(made).namelist(), done.stdout + done.stderr


def fake_compiler(folder: Path) -> Path:
    """One that is quick: it writes down what it was asked for."""
    path = folder / "fake-c++"
    path.write_text('#!/bin/sh\nall="$*"\nwhile [ "$1" != -o ]; do shift; done\necho "$all" > "$2"\n')
    path.chmod(0o755)
    return path


def test_with_a_compiler_the_wheel_holds_every_variant_and_no_source(tmp_path):
    name, files, _ = wheel(tmp_path, CXX=str(fake_compiler(tmp_path)))
    assert "-py3-none-" in name
    assert not name.endswith("any.whl")
    held = {file.removeprefix("mollifier/ops/lib/") for file in files if file.endswith(".so")}
    assert held == {f"{variant}.so" for variant in _build.variants()}
    assert not [file for file in files if "csrc" in file]


def test_without_a_compiler_it_is_pure_python_and_says_why(tmp_path):
    name, files, said = wheel(tmp_path, CXX="/nonexistent/c++")
    assert name.endswith("-py3-none-any.whl")
    assert not [file for file in files if file.endswith(".so")]
    assert "no C++ compiler was found (/nonexistent/c++)" in said
    assert "the slower reference serves instead" in said


def test_a_compiler_that_fails_is_quoted(tmp_path, monkeypatch):
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho out of order >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    monkeypatch.setattr(_build, "SOURCES", ROOT / "src/mollifier/ops/csrc")
    with pytest.raises(_build.NoCompilerError, match="out of order"):
        _build.build(tmp_path / "lib")
    assert not list((tmp_path / "lib").glob("*.so"))


def test_a_variant_is_asked_for_by_its_instructions(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", str(fake_compiler(tmp_path)))
    monkeypatch.setattr(_build, "SOURCES", ROOT / "src/mollifier/ops/csrc")  # an installed wheel has none
    monkeypatch.setattr(_build.platform, "machine", lambda: "x86_64")
    asked = {path.stem: path.read_text() for path in _build.build(tmp_path / "lib")}
    assert set(asked) == {"default", "avx2", "avx512"}
    assert "-mavx512f" in asked["avx512"]
    assert "-mavx2" in asked["avx2"]
    assert "-mavx" not in asked["default"]
    assert all(_build.digest() in line and "-fopenmp" in line for line in asked.values())
    monkeypatch.setattr(_build.platform, "machine", lambda: "aarch64")
    assert [path.stem for path in _build.build(tmp_path / "arm")] == ["default"]


def test_what_is_made_of_the_same_sources_by_the_same_compiler_is_not_made_again(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", str(fake_compiler(tmp_path)))
    made = _build.build(tmp_path / "lib")
    before = [path.stat().st_mtime_ns for path in made]
    assert _build.build(tmp_path / "lib") == made
    assert [path.stat().st_mtime_ns for path in made] == before
    monkeypatch.setattr(_build, "digest", lambda: "other sources")
    _build.build(tmp_path / "lib")
    assert all(path.stat().st_mtime_ns > time for path, time in zip(made, before, strict=True))
    made[0].unlink()
    _build.build(tmp_path / "lib")
    assert made[0].is_file()
