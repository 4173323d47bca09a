"""SIGKILLs over whole commands: train, compare and search of a quick preset, killed again and again at random moments and given again,
must end with the same bytes as commands that were left alone. As a command:

    make kills                           # 100 of them, on parity
    python -m tests.lab.kills --times 30 --task pentomino
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from mollifier_lab.settings import TASKS

BYTES = ("config.json", "metrics.jsonl", "model.safetensors", "best.json", "trials.csv")  # beside the results
CLOCK = ("seconds", "updates_per_second")
SAVE_EVERY = 20  # updates: so often that something is gained between two kills


@dataclass(frozen=True)
class Line:
    """A command line, the one that goes on with it, how often it is killed, and after how many checkpoints at most."""

    first: tuple[str, ...]
    then: tuple[str, ...]
    kills: int
    spread: int


def lines(task: str, data: Path | None, times: int) -> dict[str, Line]:
    """The three commands and their shares of the kills; `{out}` stands for the folder."""
    more = () if data is None else ("--data", str(data))
    common = ("--quiet", "--threads", "1", "--out", "{out}", *more)
    train = ("train", task, "--preset", "quick", "--save-every", str(SAVE_EVERY), "--no-tensorboard", *common)
    resume = ("resume", "{out}", "--quiet", "--threads", "1", "--no-tensorboard", *more)
    sets = ("--preset", "quick", "--set", f"save_every={SAVE_EVERY}", "--workers", "2", *common)
    compare = ("compare", task, "--methods", "plain", "mollified", "--seeds", "2", *sets)
    search = ("search", task, "--method", "mollified", "--trials", "4", *sets)
    share = times // 3
    return {
        "train": Line(train, resume, share, 3),
        "compare": Line(compare, compare, share, 12),
        "search": Line(search, search, times - 2 * share, 12),
    }


def start(words: tuple[str, ...], out: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    line = [sys.executable, "-m", "mollifier_lab", *(word.replace("{out}", str(out)) for word in words)]
    return subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)


def finish(words: tuple[str, ...], out: Path) -> None:
    child = start(words, out)
    _, err = child.communicate()
    assert child.returncode == 0, f"{' '.join(words)}: exit code {child.returncode}\n{err}"


def progress(out: Path) -> frozenset[str]:
    """Changes with every checkpoint and every run that ends."""
    return frozenset(str(path) for name in ("update-*.pt", "result.json") for path in out.rglob(name))


def strike(child: subprocess.Popen[str], out: Path, spread: int, chance: random.Random) -> bool:
    """Kill at a random moment, one time in four likely before anything was gained; False if it ended before."""
    early = chance.random() < 0.25
    if early:
        time.sleep(chance.uniform(0.0, 4.0))
    for _ in range(0 if early else chance.randint(1, spread)):
        before = progress(out)
        while progress(out) == before and child.poll() is None:
            time.sleep(0.005)
    time.sleep(chance.uniform(0.0, 0.1))
    if child.poll() is not None:
        return False
    child.send_signal(signal.SIGKILL)  # its workers find out by themselves
    child.communicate()
    return True


def begun(out: Path, train: bool) -> bool:
    return (out / "config.json").exists() if train else out.exists()


def kill(name: str, line: Line, out: Path, chance: random.Random) -> list[Path]:
    """Give a command until it was killed so often, and then until it ends; if it ends before, it begins anew in another folder. The folders."""
    done, folders = 0, [out / "1"]
    while done < line.kills:
        struck = folders[-1]
        child = start(line.then if begun(struck, name == "train") else line.first, struck)
        if strike(child, struck, line.spread, chance):
            done += 1
            print(f"{name}: killed {done} times, {len(progress(struck))} files saved", flush=True)
        else:
            _, err = child.communicate()
            assert child.returncode == 0, f"{name}: exit code {child.returncode}\n{err}"
            folders.append(out / str(len(folders) + 1))
            print(f"{name}: came to its end after {done} kills; once more", flush=True)
    finish(line.then if begun(folders[-1], name == "train") else line.first, folders[-1])
    return folders


def facts(folder: Path) -> dict[str, bytes]:
    """All that must be equal, by path."""
    found = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    kept = {name: path.read_bytes() for name, path in found.items() if path.name in BYTES}
    for name, path in found.items():
        if path.name == "result.json":
            result = json.loads(path.read_text())
            kept[name] = json.dumps({key: value for key, value in result.items() if key not in CLOCK}).encode()
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=TASKS, default="parity")
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path)
    args = parser.parse_args()
    chance, killed, files, differ = random.Random(args.seed), 0, 0, []
    with tempfile.TemporaryDirectory() as root:
        for name, line in lines(args.task, args.data, args.times).items():
            alone, struck = Path(root, "alone", name), Path(root, "killed", name)
            alone.parent.mkdir(exist_ok=True)
            struck.mkdir(parents=True)
            finish(line.first, alone)
            print(f"{name}: made once, left alone", flush=True)
            expected = facts(alone)
            for folder in kill(name, line, struck, chance):
                found = facts(folder)
                files += len(expected)
                differ += [f"{name}/{path}" for path in {**expected, **found} if expected.get(path) != found.get(path)]
            killed += line.kills
            print(f"{name}: {files} files compared so far, differing: {differ or 'none'}", flush=True)
    equal = "all bytes equal" if not differ else f"different: {', '.join(differ)}"
    print(f"{killed} SIGKILLs over train, compare and search of {args.task}'s quick preset; {files} files, {equal}")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
