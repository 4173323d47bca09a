"""Wheel and source distribution as strangers install them: ``make test-wheel``.

Each goes into an empty environment that sees this one's torch, and nothing else of it but what tests need; the tests then run there, without a
compiler on the path: native where the library came along, by the reference where there was nothing to compile it with.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "installed"
TESTS = ["tests/ops", "tests/nn", "tests/contract/test_graphs.py", "tests/contract/test_level_zero.py"]
BUILDS = "tests/ops/test_build.py"  # builds the project, from sources that are not installed
LOOK = "import mollifier, pathlib; print(pathlib.Path(mollifier.__file__).parent); print(mollifier.ops.info().backend)"


def run(*command: str | Path, **environment: str) -> str:
    """Run a command to its end; its output, or an error with it."""
    settings = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "CXX")} | environment
    line = [str(part) for part in command]
    done = subprocess.run(line, cwd=ROOT, env=settings, text=True, capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(line)} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout + done.stderr


def fresh(name: str) -> Path:
    """An empty environment's Python. It finds torch by a path, so that no .pth file of this environment counts."""
    folder = BUILD / name
    venv.create(folder, with_pip=True)
    inside = next((folder / "lib").glob("python*/site-packages"))
    (inside / "this_environment.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "python"


def check(name: str, made: Path, backend: str, tests: list[str], **environment: str) -> None:
    """Install it, see what serves, and run the tests."""
    python = fresh(name)
    options = "--no-deps", "--no-index", "--no-build-isolation", "--force-reinstall"
    run(python, "-m", "pip", "install", *options, made, **environment)
    bare = {"PATH": str(python.parent), "CXX": "/nonexistent/c++", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    where, found = run(python, "-W", "ignore", "-c", LOOK, **bare).split()
    assert Path(where).is_relative_to(BUILD / name), where
    assert found == backend, f"{name}: {found} serves, expected {backend}"
    said = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--ignore", BUILDS, *tests, **bare)
    print(f"{name}: {found}; {said.strip().splitlines()[-1]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tests", nargs="*", default=TESTS)
    given = parser.parse_args()
    shutil.rmtree(BUILD, ignore_errors=True)
    dist = BUILD / "dist"
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", dist)
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    check("wheel", wheel, "native", given.tests)
    check("sdist-compiler", sdist, "native", given.tests)
    check("sdist-no-compiler", sdist, "reference", given.tests, CXX="/nonexistent/c++")


if __name__ == "__main__":
    main()
