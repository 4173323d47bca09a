"""Load the compiled library: choose the build for this machine, and report whether it can be used."""

from __future__ import annotations

import ctypes
import os
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch

from mollifier.ops import _build

# The builds that a machine can run, best first, for each CPU capability that torch reports.
CHOICES = {"AVX512": ("avx512", "avx2", "default"), "AVX2": ("avx2", "default")}


@dataclass(frozen=True)
class Info:
    """Describe which backend is used for what, and why.

    Attributes:
        backend: ``"native"`` or ``"reference"``.
        why: The reason for this choice.
        serves: What each backend is used for, one line per case.
    """

    backend: str
    why: str
    serves: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.backend}: {self.why}" + "".join(f"\n  {line}" for line in self.serves)


class _NotServed(RuntimeError):
    """Raised when the library cannot be used here; the message gives the reason."""


def _asked_off() -> str:
    asked = os.environ.get("MOLLIFIER_KERNELS", "").lower()
    return asked if asked in ("off", "0", "no", "reference") else ""


def _path() -> Path:
    """Return the path of the library for this machine; ``MOLLIFIER_LIBRARY`` selects another, e.g. one built with a sanitizer."""
    if named := os.environ.get("MOLLIFIER_LIBRARY"):
        return Path(named)
    for choice in CHOICES.get(torch.backends.cpu.get_cpu_capability(), ("default",)):
        if (path := _build.BUILT / f"{choice}.so").exists():
            return path
    raise _NotServed("it was installed without its compiled library (was there a C++ compiler?)")


def _load() -> ctypes.CDLL:
    path = _path()
    try:
        library = ctypes.CDLL(str(path))
        for name in ("mollifier_sources", "mollifier_register"):
            getattr(library, name).restype = ctypes.c_char_p
        made_of = library.mollifier_sources().decode()
    except (OSError, AttributeError) as error:
        raise _NotServed(f"its compiled library does not load: {error}") from error
    if _build.SOURCES.is_dir() and made_of != _build.digest():
        raise _NotServed("its compiled library is not of these sources: install it again, or run ops/_build.py")
    problem = "its library is not there"
    for file in (Path(torch.__file__).parent / "lib").glob("libtorch_cpu.*"):
        found: bytes | None = library.mollifier_register(str(file).encode())
        if found is None:
            return library
        problem = found.decode()
    raise _NotServed(f"this torch, {torch.__version__}, cannot take its compiled library: {problem}")


LIBRARY: ctypes.CDLL | None = None  # the loaded library
_SILENT = bool(_asked_off())  # true if there is nothing to warn about, or if the warning was already given
_WHY = f"MOLLIFIER_KERNELS={_asked_off()}"
if not _asked_off():
    try:
        LIBRARY = _load()
        _WHY = f"compiled for {_path().stem}"
    except _NotServed as problem:
        _WHY = str(problem)


def warn() -> None:
    """Warn once that the reference is used, and say why, unless the user asked for it."""
    global _SILENT
    if not _SILENT:
        _SILENT = True
        warnings.warn(f"mollifier: {_WHY}; the slower reference serves instead", RuntimeWarning, stacklevel=2)


def info() -> Info:
    """Return which backend is used for what on this machine, and why.

    >>> import mollifier
    >>> mollifier.ops.info().backend in ("native", "reference")
    True
    """
    if LIBRARY is None:
        return Info("reference", _WHY, ("reference: everything",))
    here = "native, on the CPU, sampled noise and expected values"
    return Info(
        "native",
        _WHY,
        (
            f"{here}, in float32, float64 and bfloat16: the unit (noisy activation and copy) of the table's activations",
            f"{here}, in float32 and float64: runs of linear layers with their units; only what is not copied while p is high",
            f"{here}, in float32 and float64: LSTM and GRU layers and cells, sigmoid or hard-sigmoid gates",
            "reference: all else (frozen noise and exact means, accelerators, torch.func, torch.export, float16, registered "
            "activations, unbiased gates, proj_size)",
        ),
    )
