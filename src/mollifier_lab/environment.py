"""Record what a run was made with: versions, commit, machine."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import mollifier

# environment variables with which libraries choose their code, and so the last digits of a result
CHOOSING = ("ATEN_", "DNNL_", "GLIBC_TUNABLES", "KMP_", "LD_PRELOAD", "MKL_", "MOLLIFIER_", "OMP_", "ONEDNN_")
PACKAGES = ("torch", "numpy", "lightning-fabric", "joblib", "optuna", "scipy")


def environment(device: torch.device, ranks: int) -> dict[str, Any]:
    """Return everything that may explain a difference between two runs of one config."""
    return {
        "mollifier": mollifier.__version__,
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
        "commit": _commit(),
        "kernels": str(mollifier.kernels.info()).splitlines(),
        "machine": {
            "system": platform.platform(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "device": str(device),
            "accelerator": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
            "ranks": ranks,
            "variables": _variables(),
        },
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _variables() -> dict[str, str]:
    """Return the environment variables that may change how numbers are computed. Of paths, which concern nobody else, only the last part."""
    found = {name: value for name, value in sorted(os.environ.items()) if name.startswith(CHOOSING) and value}
    return {name: " ".join(Path(word).name for word in value.split()) for name, value in found.items()}


def _commit() -> str | None:
    """Return the commit of the checkout that the code runs from, marked if its sources have changed; None outside a checkout."""
    here = Path(__file__).parent
    # results that are written into the checkout are no change of the code
    sources = str(here), str(here.parent / "mollifier")
    try:
        found = _git(here, "rev-parse", "HEAD")
        # not `describe --dirty`, which locks the index: a run that is killed meanwhile would leave the lock in the user's repository
        changed = _git(here, "status", "--porcelain", "--untracked-files=no", "--", *sources)
        tracked = subprocess.run(["git", "ls-files", "--error-unmatch", Path(__file__).name], cwd=here, capture_output=True, timeout=10)  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return found + ("-dirty" if changed else "") if tracked.returncode == 0 else None


def _git(here: Path, *words: str) -> str:
    line = ["git", "--no-optional-locks", *words]
    return subprocess.run(line, cwd=here, capture_output=True, text=True, timeout=10, check=True).stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
