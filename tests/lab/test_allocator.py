"""A run does not request the same memory from the system at every update, unless the user has chosen so."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from mollifier_lab import allocator

SIZE = 64 << 20  # above 32 MiB, where glibc always returns a block when it is freed

# Prints the page faults of ten rounds that allocate, fill and free a block, after one round that may fault.
ROUNDS = f"""
import resource, sys
from pathlib import Path
from mollifier_lab import allocator, engine
from mollifier_lab.settings import RunConfig

faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
if sys.argv[1] == "run":
    small = dict(bits=6, width=8, depth=2, samples=32, batch=8, updates=1, evaluate_every=1)
    engine.train(RunConfig.make("parity", "plain", preset="quick", **small), Path(sys.argv[2]), show=False)
b"x" * {SIZE}
before = faults()
for _ in range(10):
    b"x" * {SIZE}
print(faults() - before)
"""
FEW = 100  # ten blocks have 163,840 pages of 4 KiB, or 320 huge ones, and each faults once

needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")


def page_faults(what: str, folder: object, **environment: str) -> int:
    """Count them in a process of its own, since the option cannot be taken back."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("GLIBC_", "MALLOC_"))}
    command = [sys.executable, "-c", ROUNDS, what, str(folder)]
    done = subprocess.run(command, env={**inherited, **environment}, stdout=subprocess.PIPE, text=True, check=True)
    return int(done.stdout.splitlines()[-1])


@needs_glibc
def test_a_run_keeps_freed_memory_and_a_process_without_one_does_not(tmp_path) -> None:
    assert page_faults("run", tmp_path) < FEW
    assert page_faults("nothing", tmp_path) > FEW


@needs_glibc
@pytest.mark.parametrize(
    ("name", "value"),
    [("MALLOC_MMAP_THRESHOLD_", "1048576"), ("GLIBC_TUNABLES", "glibc.malloc.mmap_threshold=1048576")],
)
def test_a_threshold_of_the_users_own_stays(tmp_path, name: str, value: str) -> None:
    assert page_faults("run", tmp_path, **{name: value}) > FEW


def test_other_c_libraries_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*allocator.VARIABLES, "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    for failure in (AttributeError, OSError, TypeError):

        def load(_: None, failure: type[Exception] = failure) -> None:
            raise failure

        monkeypatch.setattr("ctypes.CDLL", load)
        assert not allocator.keep_freed_memory.__wrapped__()
