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
from benchmarks.lines import LINES
from benchmarks.numerics import LIMITS, errors
from mollifier import ops
from mollifier_lab.files import write_atomically

ROOT = Path(__file__).parent.parent


def process(module: str, *arguments: str, **environment: str) -> list[dict[str, Any]]:
    """Run one part in a process of its own: its threads and its backend are its own, too."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True, check=True
    )
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


# glibc gives freed memory back to the system, and whoever asks for more of it at every step pays for that at every step. A program that
# frees something larger now and then teaches it not to. So no line may depend on what ran before it: each has a process of its own.
KEEPING = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 32)}
REFERENCE = ("Pentomino", "LSTM 200")


def one_run(run: int, only: list[str]) -> list[dict[str, Any]]:
    """These lines on one and on two threads, each in its own process."""
    rows = []
    for threads in (1, 2):
        parts: list[tuple[str, str, str, dict[str, str]]] = [("native", line, "", {}) for line in LINES]
        parts += [("reference", line, "", {"MOLLIFIER_KERNELS": "off"}) for line in REFERENCE]
        parts += [("native", line, ", memory kept", KEEPING) for line in ("LSTM 200", "LSTM 650")]
        for backend, line, suffix, environment in parts:
            found = process("benchmarks.lines", line, "--threads", str(threads), **environment) if line in only else []
            for each in found:
                each["line"] += suffix
                rows.append({"run": run, "threads": threads, "backend": backend, **each})
    if "engine" in only:
        rows += [{"run": run, "threads": 1, "backend": "native", **each} for each in process("benchmarks.engine")]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parts = [*LINES, "engine"]
    parser.add_argument("--only", nargs="+", choices=parts, help="time these again; the others are as they were")
    parser.add_argument("--growth", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results.json")
    given = parser.parse_args()
    print(ops.info(), flush=True)
    off = errors() if ops.info().backend == "native" else {}
    for name, value in off.items():
        print(f"largest relative error of the {name}, float32: {value:.1e}", flush=True)
        if value > LIMITS[name]:
            raise SystemExit(
                f"{name}: an error of {value:.1e}, expected at most {LIMITS[name]:.0e}. The kernels do not compute what the "
                "reference computes: nothing is timed. Run the tests in tests/ops."
            )
    machine = {"torch": torch.__version__, "cpu": torch.backends.cpu.get_cpu_capability(), "errors": off}
    results: dict[str, Any] = {"machine": machine, "rows": [], "growth": []}
    old: list[dict[str, Any]] = []
    if given.only:
        before = json.loads(given.out.read_text())
        old, results["growth"] = before["rows"], before["growth"]
    new: list[dict[str, Any]] = []
    for run in range(given.runs):
        new += one_run(run, given.only or parts)
        again = {row["line"] for row in new}
        results["rows"] = [row for row in old if row["line"] not in again] + new
        write_atomically(given.out, json.dumps(results, indent=1).encode())
        print(report.text(new, run), flush=True)
    if given.growth:
        results["growth"] = process("benchmarks.growth")
        write_atomically(given.out, json.dumps(results, indent=1).encode())
    report.write(given.out, ROOT / "docs")


if __name__ == "__main__":
    main()
