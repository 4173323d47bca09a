"""What each process of a distributed run executes: trains, and writes down the levels that it saw after every update."""

import json
import os
import sys
from pathlib import Path

from torch import Tensor

from mollifier_lab import engine
from mollifier_lab.settings import RunConfig


def main(config: str, out: str, data: str, devices: str) -> None:
    levels: list[list[float] | None] = []

    def observe(update: int, loss: Tensor, seen: list[float] | None) -> None:
        levels.append(seen)

    hardware = engine.Hardware(accelerator="cpu", devices=int(devices), threads=1, tensorboard=False)
    engine.train(
        RunConfig.from_json(Path(config).read_text()),
        Path(out),
        data=Path(data),
        hardware=hardware,
        show=False,
        observe=observe,
    )
    rank = os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))
    Path(f"{out}.rank-{rank}.json").write_text(json.dumps(levels))


if __name__ == "__main__":
    main(*sys.argv[1:])
