"""Runs that are really killed at random moments, and resumed. As a command, a task's quick preset in full:

python -m tests.lab.kill ptb --method mollified --data FOLDER
"""

import argparse
import random
import tempfile
import time
from pathlib import Path

from mollifier_lab import engine
from mollifier_lab.runs import RunFolder
from mollifier_lab.settings import TASKS, RunConfig
from tests.lab.processes import Child, fork


def go(config: str, out: Path, data: Path) -> None:
    """Start the run, or resume it."""
    hardware = engine.Hardware(accelerator="cpu", threads=1, tensorboard=False)
    if RunFolder(out).status == "empty":
        engine.train(RunConfig.from_json(config), out, data=data, hardware=hardware, show=False)
    else:
        engine.resume(out, data=data, hardware=hardware, show=False)


def checkpoints(out: Path) -> set[str]:
    return {path.name for path in (out / "checkpoints").glob("update-*.pt")}


def strike(child: Child, out: Path, chance: random.Random) -> None:
    """Kill at a random moment: anywhere in the work of the next updates, or right in a write of a checkpoint."""
    wanted, before, in_a_write = chance.randrange(4), checkpoints(out), chance.random() < 0.5
    for _ in range(wanted):
        while checkpoints(out) == before:
            assert child.process.is_alive(), "it ended before it was killed"
            time.sleep(0.001)
        before = checkpoints(out)
    if wanted and in_a_write:
        while not list((out / "checkpoints").glob(".update-*")) and child.process.is_alive():
            pass
    else:
        time.sleep(chance.uniform(0.0, 0.05))
    child.kill()


def kill(config: RunConfig, out: Path, data: Path | None, times: int) -> None:
    """Make a run that is killed so often before it ends."""
    chance = random.Random(config.task)
    for _ in range(times):
        assert RunFolder(out).status != "done", "the run is too short for its kills"
        strike(fork(go, config.to_json(), out, data), out, chance)
    assert fork(go, config.to_json(), out, data).wait(3600) == 0


def same(alone: Path, killed: Path) -> None:
    """Are they the same run, bit for bit?"""
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (alone / name).read_bytes() == (killed / name).read_bytes(), name
    results = [RunFolder(folder).json("result.json") for folder in (alone, killed)]
    for name in ("updates", "final", "best", "annealing", "diverged"):
        assert results[0][name] == results[1][name], name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--method", default="mollified")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--times", type=int, default=20)
    args = parser.parse_args()
    out = Path(tempfile.mkdtemp())
    whole = RunConfig.make(args.task, args.method, preset="quick")
    assert fork(go, whole.to_json(), out / "whole", args.data).wait(3600) == 0
    updates = RunFolder(out / "whole").json("result.json")["updates"]
    # some checkpoints between two kills, spread over all of it
    config = RunConfig.make(args.task, args.method, preset="quick", save_every=max(1, updates // (3 * args.times)))
    assert fork(go, config.to_json(), out / "alone", args.data).wait(3600) == 0
    kill(config, out / "killed", args.data, args.times)
    same(out / "alone", out / "killed")
    result = RunFolder(out / "killed").json("result.json")
    print(
        f"{args.task}, {args.method}: killed {args.times} times over {updates} updates; the same bits. {result['final']}"
    )


if __name__ == "__main__":
    main()
