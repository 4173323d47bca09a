"""A data folder with tiny sets in the canonical formats, and settings to match."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.lab.data import makers

TINY: dict[str, dict[str, Any]] = {
    "parity": {"bits": 6, "samples": 12, "width": 8, "depth": 3, "batch": 4, "updates": 6, "k": 10.0},
    "pentomino": {"train": 12, "width": 8, "depth": 3, "batch": 4, "updates": 6, "k": 10.0},
    "mnist": {"width": 8, "depth": 3, "batch": 4, "updates": 6, "k": 10.0},
    "cifar10": {"depth": 20, "width": 2, "batch": 4, "epochs": 4.0, "recalibrate": 2, "k": 10.0},
    "ptb": {"width": 8, "steps": 5, "batch": 4, "epochs": 3.0, "decay_after": 1, "k": 10.0},
    "characters": {"valid": 10, "embedding": 4, "width": 8, "depth": 3, "batch": 4, "updates": 6, "k": 10.0},
    "adding": {"cell": "gru", "steps": 6, "width": 8, "batch": 4, "updates": 6, "k": 10.0},
}


def fill(folder: Path) -> Path:
    """Every set that is read from files; pentomino is made where it is asked for."""
    makers.mnist(folder / "mnist", train=10_012, test=8)
    cifar10(folder / "cifar10" / "cifar-10-batches-bin")
    ptb(folder / "ptb")
    (folder / "word-vectors").mkdir()
    (folder / "word-vectors" / "glove.tiny.txt").write_text(makers.vectors(60, 6)[2])
    return folder


def cifar10(folder: Path) -> None:
    """Files of the right size: few images in each, the rest are holes."""
    folder.mkdir(parents=True)
    random = np.random.RandomState(1)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        records = random.randint(0, 256, (100, 3073), dtype=np.uint8)
        records[:, 0] %= 10
        with (folder / f"{name}.bin").open("wb") as file:
            file.write(records.tobytes())
            file.truncate(10_000 * 3073)


def ptb(folder: Path) -> None:
    """Three texts of 30 words."""
    random = np.random.RandomState(2)
    texts = {}
    for part, lines in (("train", 30), ("valid", 8), ("test", 7)):
        texts[part] = "".join(f" {' '.join(f'w{n}' for n in random.randint(0, 30, 9))} \n" for _ in range(lines))
    makers.ptb(folder, **{**texts, "train": texts["train"] + " <unk> \n"})
