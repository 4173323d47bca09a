"""``make bench``: numerics first, then every line three times over, JSON, plot, and the table in docs/benchmarks.md."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks import report
from benchmarks.numerics import error
from mollifier import kernels

ROOT = Path(__file__).parent.parent


def process(module: str, *arguments: str, **environment: str) -> list[dict[str, Any]]:
    """Run one part in a process of its own: its threads and its backend are its own, too."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True, check=True
    )
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--growth", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results.json")
    given = parser.parse_args()
    off = error() if kernels.info().backend == "native" else 0.0
    print(f"{kernels.info()}\nlargest relative error of the unit, float32: {off:.1e}")
    if off > 1e-5:
        raise SystemExit("the kernels do not compute what the reference computes: nothing is timed")
    rows = []
    for run in range(given.runs):
        for threads in (1, 2):
            parts = {"native": process("benchmarks.lines", "--threads", str(threads))}
            parts["eager"] = process(
                "benchmarks.lines", "--threads", str(threads), "--eager", MOLLIFIER_KERNELS="eager"
            )
            for backend, found in parts.items():
                rows += [{"run": run, "threads": threads, "backend": backend, **each} for each in found]
        found = process("benchmarks.engine")
        rows += [{"run": run, "threads": 1, "backend": "native", **each} for each in found]
        print(report.text(rows, run), flush=True)
    growth = process("benchmarks.growth") if given.growth else []
    machine = {"torch": torch.__version__, "cpu": torch.backends.cpu.get_cpu_capability(), "error": off}
    given.out.write_text(json.dumps({"machine": machine, "rows": rows, "growth": growth}, indent=1))
    report.write(given.out, ROOT / "docs")


if __name__ == "__main__":
    main()
