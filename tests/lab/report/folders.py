"""Run folders in the format that the engine writes, with curves that are easy to tell apart."""

import json
import math
import random
from pathlib import Path
from typing import Any

from mollifier_lab.settings import RunConfig

ENVIRONMENT = {
    "mollifier": "0.1.0",
    "torch": "2.9.0",
    "python": "3.11.7",
    "commit": "e18f370c0ffee",
    "machine": {"system": "Linux-6.1-x86_64", "processor": "A processor at 2.4 GHz", "cores": 2, "accelerator": None},
    "kernels": {"native": "True", "compiler": "g++ 12.2"},
    "command": ["mollifier", "compare", "parity", "--preset", "quick", "--seeds", "5"],
}


def value_at(config: RunConfig, update: int, updates: int, noise: random.Random) -> float:
    """Plain is stuck, mollified falls early and far, everything else later and less."""
    method, at = config.method, update / updates
    if method == "plain" and config.settings.gain == 1:
        return 0.693 + 0.004 * math.exp(-8 * at) + noise.gauss(0, 0.0012)
    start, floor, steep = (0.34, 0.02, 22) if method.startswith("mollified") else (0.62, 0.12, 12)
    luck = random.Random(f"{method} {config.seed}").gauss(0, 1)
    start, floor = start + 0.04 * luck + 0.1 * ("residual" in method), floor * (1 + 0.15 * luck)
    return floor + (0.7 - floor) / (1 + math.exp(steep * (at - start))) * (1 + noise.gauss(0, 0.025))


def write_run(
    folder: Path, config: RunConfig, *, state: str = "done", rows: int = 40, blocks: int = 6, final: float | None = None,
    levels: bool = True, clock: bool = True,
) -> Path:  # fmt: skip
    """One run. `state`: done, diverged, failed or running; all but the first end half way."""
    settings, noise = config.settings, random.Random(config.seed + 100 * len(config.method))
    updates = settings.updates or 1000
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(config.to_json())
    (folder / "environment.json").write_text(json.dumps(ENVIRONMENT))
    scale = 100.0 if settings.curve.endswith("perplexity") else 1.0
    metrics: list[dict[str, Any]] = []
    for number in range(rows + 1):
        update = round(number * updates / rows)
        value = value_at(config, update, updates, noise) * scale
        row = {"update": update, "epoch": update / 10, "lr": settings.lr, settings.curve: value}
        if number:
            row["train_loss"] = value / scale * (1 + noise.gauss(0, 0.02))
        if config.spec.annealed and levels:
            row["levels"] = [max(0.0, 1 - update / updates * 2 * blocks / (block + 1)) for block in range(blocks)][::-1]
            row["loss_average"] = value
        if state == "diverged" and number > rows // 2:
            row["train_loss"] = row[settings.curve] = None
        metrics.append(row)
        if row.get("train_loss", 0) is None:
            break
    if state in ("failed", "running"):
        metrics = metrics[: rows // 2]
    speed = 210 if config.method == "plain" else 140
    write_lines(folder / "metrics.jsonl", metrics)
    if clock:
        write_lines(folder / "clock.jsonl", [{"update": row["update"], "seconds": row["update"] / speed} for row in metrics])  # fmt: skip
    if state == "failed":
        (folder / "failure.txt").write_text(
            "Traceback (most recent call last):\n  ...\nRuntimeError: out of <memory>\n"
        )
    if state in ("done", "diverged"):
        end = metrics[-1][settings.curve] if final is None else final
        # a network of NaNs can have an error that looks like one
        finals = {settings.headline: 0.9 if state == "diverged" else end}
        best = min(row[settings.curve] for row in metrics if row[settings.curve] is not None)
        result = {
            "format": 1, "updates": metrics[-1]["update"], "seconds": updates / speed, "updates_per_second": speed, "final": finals,
            "best": {"update": updates, settings.headline: best}, "diverged": state == "diverged",
            "annealing": {"finished": True, "finished_at": updates // 2, "levels": [0.0] * blocks} if config.spec.annealed else None,
        }  # fmt: skip
        (folder / "result.json").write_text(json.dumps(result))
    return folder


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_study(root: Path) -> Path:
    """Parity: four variants × five seeds, with one run failed, one running, one diverged; and a variant that is not annealed."""
    plans: list[tuple[str, dict[str, Any], dict[int, str]]] = [
        ("plain", {}, {}),
        ("plain", {"gain": 4.0, "lr": 0.1, "label": "plain, gain=4, lr=0.1"}, {1: "diverged"}),
        ("residual-bn", {}, {3: "failed", 4: "running"}),
        ("mollified", {}, {}),
        ("mollified-residual", {}, {2: "failed"}),
    ]
    for number, (method, changes, states) in enumerate(plans):
        for seed in range(5):
            config = RunConfig.make("parity", method, seed, "quick", **changes)
            write_run(root / f"{number}-{method}" / f"seed-{seed}", config, state=states.get(seed, "done"))
    return root
