"""Compiling the kernels: once for each machine, into the user's cache, safe when many processes start at once."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parent / "csrc"
VERSION = 1
# No -ffast-math: linking with it would switch the whole process to flush-to-zero.
FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast")
# Tried in turn: not every compiler knows its own machine, nor has OpenMP.
EXTRAS = (("-march=native", "-fopenmp"), ("-mcpu=native", "-fopenmp"), ("-march=native",), ())


class NoKernelsError(RuntimeError):
    """The kernels cannot be had here, and why."""


def compiler() -> list[str]:
    """The C++ compiler: $CXX, or the first one found.

    Raises:
        NoKernelsError: If there is none.
    """
    asked = os.environ.get("CXX")
    if asked:
        return shlex.split(asked)
    for name in ("c++", "g++", "clang++"):
        found = shutil.which(name)
        if found:
            return [found]
    raise NoKernelsError("no C++ compiler was found (c++, g++, clang++ or $CXX)")


def cache_folder() -> Path:
    """Where the compiled kernels are kept: $MOLLIFIER_CACHE, or the user's cache folder."""
    asked = os.environ.get("MOLLIFIER_CACHE")
    if asked:
        return Path(asked)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "mollifier"


def build() -> Path:
    """The compiled library, from the cache or made now.

    Raises:
        NoKernelsError: If it can be neither found nor made.
    """
    command = compiler()
    try:
        version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoKernelsError(f"the compiler {' '.join(command)} does not run: {error}") from error
    files = sorted(SOURCES.iterdir())
    parts = [shlex.join(command), version, str(FLAGS), str(EXTRAS), _cpu(), *(file.read_text() for file in files)]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
    try:
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"kernels-{key}.so"
        if not _whole(target):
            with _lock(folder / f"{key}.lock"):
                if not _whole(target):  # another process may have been first
                    logging.getLogger("mollifier").info("compiling the native kernels, once for this machine")
                    _compile(command, target)
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home directory
        raise NoKernelsError(f"the cache folder cannot be used: {error}") from error
    return target


def load() -> ctypes.CDLL:
    """The library itself, rebuilt once if what lies in the cache does not load.

    Raises:
        NoKernelsError: If it does not load then either.
    """
    problem = ""
    for _ in range(2):
        path = build()
        try:
            library = ctypes.CDLL(str(path))
            if library.mollifier_version() == VERSION:
                return library
            problem = "it is of another version"
        except (OSError, AttributeError) as error:
            problem = str(error)
        _sum_of(path).unlink(missing_ok=True)
    raise NoKernelsError(f"the compiled kernels do not load: {problem}")


def _sum_of(target: Path) -> Path:
    return target.with_suffix(".sha256")


def _whole(target: Path) -> bool:
    """Is it there as it was written? To load a file that has lost its end would kill the process."""
    if target.is_symlink() or _sum_of(target).is_symlink():
        return False  # not made here: somebody else has put it into a shared folder
    try:
        return _sum_of(target).read_text() == hashlib.sha256(target.read_bytes()).hexdigest()
    except OSError:
        return False


def _compile(command: list[str], target: Path) -> None:
    sources = [str(file) for file in sorted(SOURCES.glob("*.cpp"))]
    said = ""
    for extra in EXTRAS:
        handle, name = tempfile.mkstemp(suffix=".so", dir=target.parent)
        os.close(handle)
        done = subprocess.run(
            [*command, *FLAGS, *extra, "-o", name, *sources], capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            digest = hashlib.sha256(Path(name).read_bytes()).hexdigest()
            os.replace(name, target)  # whole or not at all, and in place of a link, not through it
            handle, name = tempfile.mkstemp(suffix=".sha256", dir=target.parent)
            with open(handle, "w") as file:
                file.write(digest)
            os.replace(name, _sum_of(target))
            return
        said = said or done.stderr.strip()[-500:]
        Path(name).unlink(missing_ok=True)
    raise NoKernelsError(f"the compiler failed: {said}")


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """One builder at a time. Where files cannot be locked, several build, and the last one's file stays."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)  # never through a link to another's file
    with open(handle, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _cpu() -> str:
    """What the machine can do: native code for one must not meet another that shares the cache."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
        model = next((line for line in lines if line.startswith("model name")), "")
        return f"{platform.machine()} {model} {flags}"
    return f"{platform.machine()} {platform.processor()}"
