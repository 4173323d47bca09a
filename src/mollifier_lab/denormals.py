"""Treat denormals (numbers too small for full precision) as 0: where there are many of them, a CPU takes ten times as long."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch


@contextlib.contextmanager
def flush_denormal(on: bool) -> Iterator[None]:
    """Treat denormals as 0, or not, in this thread and in those that torch and the native kernels compute on; restore the mode afterwards.

    >>> tiny = torch.tensor([1], dtype=torch.int32).view(torch.float32)  # the smallest number, 1.4e-45
    >>> with flush_denormal(True):
    ...     bool(tiny * 1 > 0)
    False
    >>> bool(tiny * 1 > 0)
    True
    """
    before = is_flushed()
    set_everywhere(on)
    try:
        yield
    finally:
        set_everywhere(before)


def is_flushed() -> bool:
    """Return whether denormals are treated as 0 in this thread."""
    tiny = torch.ones(1, dtype=torch.int32).view(torch.float32)
    return not bool((tiny * 1.0).view(torch.int32))


def set_everywhere(on: bool) -> None:
    """Set the mode in every thread of the pool. The mode belongs to a thread: threads that exist already do not inherit the caller's."""
    torch.set_flush_denormal(on)
    library = _openmp()
    if library is None or torch.get_num_threads() == 1:
        return

    def in_each(_: Any) -> None:
        torch.set_flush_denormal(on)

    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(in_each)
    library.GOMP_parallel(callback, None, ctypes.c_uint(torch.get_num_threads()), ctypes.c_uint(0))


def _openmp() -> Any:
    """Return the OpenMP library that torch computes with, which the kernels share; None if it is not GCC's."""
    for path in sorted((Path(torch.__file__).parent / "lib").glob("libgomp*")):
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(str(path))
            if hasattr(library, "GOMP_parallel"):
                return library
    return None
