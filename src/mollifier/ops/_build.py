"""Compile the native operators when a wheel or an editable install is made. This needs a C++ compiler and nothing else, not even torch.

``python src/mollifier/ops/_build.py`` builds them in place, and ``--out FOLDER`` builds them elsewhere; ``CXX`` selects another compiler.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCES = Path(__file__).parent / "csrc"
BUILT = Path(__file__).parent / "lib"
# No -ffast-math: linking with it would switch the whole process to flush-to-zero.
FLAGS = (
    *("-O3", "-std=c++17", "-shared", "-fPIC", "-fvisibility=hidden"),
    *("-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"),
)
# The values that torch.backends.cpu.get_cpu_capability() may return, best first, with the instructions that each one guarantees.
AVX2 = ("-mavx2", "-mfma", "-mf16c", "-mbmi", "-mbmi2", "-mlzcnt", "-mpopcnt")
AVX512 = (*AVX2, "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq")
VARIANTS: dict[str, tuple[str, ...]] = {"avx512": AVX512, "avx2": AVX2, "default": ()}


class NoCompilerError(RuntimeError):
    """Raised when the operators cannot be compiled here; the message gives the reason."""


def compiler() -> list[str]:
    """Return the command of the C++ compiler: $CXX, or the first compiler found.

    Raises:
        NoCompilerError: If there is none.
    """
    asked = shlex.split(os.environ.get("CXX", ""))
    for names in [asked] if asked else [["c++"], ["g++"], ["clang++"]]:
        if found := shutil.which(names[0]):
            return [found, *names[1:]]
    raise NoCompilerError(f"no C++ compiler was found ({' '.join(asked) or 'c++, g++, clang++ or $CXX'})")


def digest() -> str:
    """Return a digest of the sources; a library that was built from other sources must not be loaded."""
    sums = hashlib.sha256()
    for file in sorted(SOURCES.iterdir()):
        sums.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return sums.hexdigest()[:24]


def variants() -> dict[str, tuple[str, ...]]:
    """Return the builds needed for this machine's architecture: three for x86-64, one for any other."""
    if platform.machine().lower() in ("x86_64", "amd64"):
        return VARIANTS
    return {"default": ()}


def build(out: Path = BUILT) -> list[Path]:
    """Compile every variant into a folder, unless the same compiler has already built them there from the same sources.

    The new files replace those in the folder only after all variants have been compiled.

    Raises:
        NoCompilerError: If there is no compiler, or if it fails.
    """
    command, wanted, record = compiler(), variants(), out / "made-of.txt"
    made_of = " ".join([digest(), *command, *FLAGS, str(wanted)])
    targets = [out / f"{each}.so" for each in wanted]
    if record.is_file() and record.read_text() == made_of and all(map(Path.is_file, targets)):
        return targets
    out.mkdir(parents=True, exist_ok=True)
    record.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=out) as name, ThreadPoolExecutor(os.cpu_count()) as pool:
        folder = Path(name)
        list(pool.map(lambda each: _compile(command, wanted[each], folder / f"{each}.so"), wanted))
        for target in targets:
            shutil.move(folder / target.name, target)
    record.write_text(made_of)
    return targets


def _compile(command: list[str], flags: tuple[str, ...], target: Path) -> None:
    sources = [str(file) for file in sorted(SOURCES.glob("*.cpp"))]
    made_of = f'-DMOLLIFIER_SOURCES="{digest()}"'
    said = ""
    for extra in (("-fopenmp",), ()):  # not every compiler supports OpenMP
        line = [*command, *FLAGS, *flags, *extra, made_of, "-o", str(target), *sources, "-ldl"]
        try:
            done = subprocess.run(line, capture_output=True, text=True, check=False)
        except OSError as error:
            raise NoCompilerError(f"the compiler {command[0]} does not run: {error}") from error
        if done.returncode == 0:
            return
        said = said or done.stderr.strip()[-500:]
    raise NoCompilerError(f"the compiler {command[0]} failed: {said}")


def main() -> None:
    """Build the operators and print the path of each library."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=BUILT)
    given = parser.parse_args()
    try:
        for path in build(given.out):
            print(f"mollifier: compiled {path}")
    except NoCompilerError as problem:
        sys.exit(f"mollifier: {problem}")


if __name__ == "__main__":
    main()
