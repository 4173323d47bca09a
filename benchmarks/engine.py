"""The laboratory's loop compared with a bare one, on the parity task at batch 128: ``python -m benchmarks.engine``.

Both take the same network, batches and evaluations. The engine also draws its bar, writes rows and events, and saves checkpoints.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.timing import Ratio, compare
from mollifier_lab import tasks
from mollifier_lab.apply_method import apply_method
from mollifier_lab.group import Group
from mollifier_lab.hardware import Hardware
from mollifier_lab.loop import Loop
from mollifier_lab.optimizers import make_optimizer
from mollifier_lab.runs import RunFolder
from mollifier_lab.settings import RunConfig

PIECE = 100  # updates a round: one evaluation in each
SAVE = 500


def bare(config: RunConfig) -> Callable[[], None]:
    """What one would write by hand."""
    task = tasks.make(config)
    model = task.model()
    annealer = apply_method(model, config)
    optimizer = make_optimizer(config.settings, model)
    inputs, labels = task.sets["train"]  # type: ignore[attr-defined]
    criterion = torch.nn.functional.binary_cross_entropy_with_logits

    def piece() -> None:
        for _ in range(PIECE):
            index = torch.randint(len(inputs), (config.settings.batch,))
            loss = criterion(model(inputs[index]), labels[index])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if annealer is not None:
                annealer.step(loss)
        model.eval()
        with torch.no_grad():
            float(criterion(model(inputs), labels))
        model.train()

    return piece


@contextlib.contextmanager
def engine(config: RunConfig, folder: Path) -> Iterator[Callable[[], None]]:
    """The same updates by the laboratory, with all that it does besides."""
    hardware = Hardware(accelerator="cpu")
    loop = Loop(config, RunFolder(folder), None, hardware, Group(hardware.fabric()), True, None)
    loop._began = time.perf_counter()

    def piece() -> None:
        for _ in range(PIECE):
            loop._step()

    with loop.progress:
        yield piece
    loop.close()


def lines(folder: Path) -> list[Ratio]:
    found = []
    for method in ("plain", "mollified"):
        config = RunConfig.make(
            "parity", method, batch=128, updates=1_000_000, evaluate_every=PIECE, save_every=SAVE, k=1e9, lr=1e-3
        )
        with engine(config, folder / method) as piece:
            candidates: dict[str, Callable[[], Any]] = {"bare loop": bare(config), "engine": piece}
            found += compare(f"engine, parity, {method}", candidates, rounds=60, seconds=20.0)
    return found


def main() -> None:
    os.environ["FORCE_COLOR"] = "1"  # the bar is drawn, though nobody looks
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        found = lines(Path(folder))
    print(json.dumps([each.as_dict() for each in found]))


if __name__ == "__main__":
    main()
