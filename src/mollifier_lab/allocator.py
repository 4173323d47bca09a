"""Let the process keep freed memory: glibc returns large blocks to the system, and a run that requests them again at every update pays for them at every update."""

from __future__ import annotations

import ctypes
import functools
import os

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
LARGE, ALL = (2**30, 2**25), 2**31 - 1  # bytes; earlier versions of glibc accept at most 32 MiB as the first
VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")
TUNABLES = ("glibc.malloc.trim_threshold", "glibc.malloc.mmap_threshold")


@functools.cache
def keep_freed_memory() -> bool:
    """Do so for the rest of this process, and return whether it was done.

    It is not done where the C library is not glibc, or where an environment variable sets one of the thresholds.

    >>> isinstance(keep_freed_memory(), bool)
    True
    """
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    if any(name in os.environ for name in VARIABLES) or any(name in tunables for name in TUNABLES):
        return False
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # other C libraries have no mallopt; Windows has no such library
        return False
    # The first is the size from which blocks are always returned. The second alone would fix it at 128 KiB.
    return any(set_option(MMAP_THRESHOLD, size) for size in LARGE) and bool(set_option(TRIM_THRESHOLD, ALL))
