"""Mutations of all that a user can damage or mistype: files of a run, a study and a search, configs, and command lines.

The invariant: a command ends with exit code 0 and a whole output, or with a sentence on stderr and exit code 2 (1 where a run of a study
has failed); it never shows a traceback, and never calls it a fault of its own. As a command, for as long as asked:

    make fuzz SECONDS=600
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from mollifier_lab import cli

TINY = [
    "--preset",
    "quick",
    "--set",
    "bits=4",
    "width=4",
    "depth=2",
    "samples=8",
    "batch=4",
    "updates=4",
    "evaluate_every=2",
    "save_every=2",
    "k=1",
]
FLAT = [f"--{word.replace('_', '-').replace('=', ' ')}" for word in TINY[3:]]
ODD: list[Any] = [
    None, True, False, 0, -1, 1, 3.5, 1e308, -1e400, float("nan"), 2**63, 10**30, "", "x", "\ud800", "0", [], [[]], [None], {}, {"a": 1}, "a" * 300,
]  # fmt: skip
BYTES = [b"", b"\x00", b"\xff\xfe", b"null", b"[" * 50_000, b"{}", b"[]", b"\n", b"NaN\n", b"9" * 5000, b"{\n" * 10]
WORDS = [
    "", "-1", "0", "1", "2", "inf", "nan", "1e400", "9" * 30, "x", "\udcff", "a=b", "lr=", "=", "lr=nan", "lr=1e400", "width=0", "k=-1", "plain:", "plain:lr=x",
    "plain", "mollified", "gates", "parity", "ptb", "--", "-", "--help", "/dev/null", "/dev/zero", "/nowhere/at/all", "~nobody-here", "é", ",", "1,1", "3,",
    "64-true", "sgd", "linear", "train", "valid", "quick", "paper",
]  # fmt: skip
FLAGS = {
    "train": "--seed --label --method --preset --config --lr --gain --momentum --width --depth --bits --samples --batch --epochs --updates --evaluate-every "
    "--save-every --k --horizon --schedule --v --loss-average --stop-at --then --p-min --anneal-every --push --c --survival --dropout --weight-std --clip "
    "--weight-decay --optimizer --converged --kind --activation --threads --precision --data --nodes --strategy --accelerator --no-copy",
    "compare": "--methods --seeds --preset --set --search-set --search-seed --best --threads --workers --address --data",
    "search": "--method --trials --preset --set --seed --storage --threads --address --data",
    "report": "--out", "resume": "--data --threads --precision --accelerator", "tasks": "--markdown", "methods": "", "figures": "--dpi", "data": "--from",
}  # fmt: skip
SLOW = {("--width", "9" * 30), ("--workers", "2")}


@dataclass
class Found:
    """What has been tried, and what was wrong."""

    tried: Counter[str] = field(default_factory=Counter)
    codes: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Fuzz:
    """Small folders, made once; every mutation works on a copy."""

    def __init__(self, root: Path) -> None:
        self.root, self.found = root, Found()
        self.good = root / "good"
        flat = " ".join(FLAT).split()
        out = self.good / "run"
        self.call("train", "parity", "--preset", "quick", *flat, *self.train_flags(out))
        half = ["--updates", "40", "--save-every", "2"]
        self.interrupted(["train", "parity", "--preset", "quick", *flat, *half, *self.train_flags(self.good / "half")])
        self.call("compare", "parity", *TINY, "--methods", "plain", "mollified", "--seeds", "1", "--search", "1", "--quiet", "--threads", "1", "--out", str(self.good / "study"))  # fmt: skip
        self.call("search", "parity", *TINY, "--method", "plain", "--trials", "2", "--quiet", "--threads", "1", "--out", str(self.good / "search"))  # fmt: skip
        self.metrics = (out / "metrics.jsonl").read_bytes()
        assert not self.found.wrong, self.found.wrong
        self.found = Found()

    def train_flags(self, out: Path) -> list[str]:
        return ["--threads", "1", "--no-tensorboard", "--quiet", "--out", str(out)]

    def interrupted(self, words: list[str]) -> None:
        """A run that stopped half-way, with its two checkpoints."""
        from mollifier_lab import engine
        from mollifier_lab.cli import parse

        command: Any = parse(words)

        def observe(update: int, loss: object, levels: object) -> None:
            if update == 10:
                raise KeyboardInterrupt

        with contextlib.suppress(KeyboardInterrupt):
            engine.train(command.run_config(), command.out, hardware=command.hardware, show=False, observe=observe)

    def call(self, *words: str) -> int:
        """Run a command in this process, and hold its end against the invariant."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = cli.main(list(words))
        said = err.getvalue()
        told = said.strip() or out.getvalue().strip()  # tyro tells on stdout or stderr, as it likes
        good = code in (0, 1, 2) and "Traceback" not in said and cli.BUG not in said and (code == 0 or told)
        self.found.codes[code] += 1
        if not good:
            self.found.wrong.append(f"{code} {words!r:.300}\n    {said[-400:]}")
        return code

    def damage(self, kind: str, pick: random.Random) -> None:
        """Damage one file of a folder, then look at it with every command that reads it."""
        folder = self.root / "copy"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.good / kind, folder)
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".png", ".html"))
        path = pick.choice(files)
        what = mutate(path, pick)
        self.found.tried[f"{kind}: {path.name}"] += 1
        before = len(self.found.wrong)
        out = str(folder)
        if kind in ("run", "half"):
            done = self.call("resume", out, "--threads", "1", "--no-tensorboard", "--quiet")
            if kind == "run" and path.name not in ("metrics.jsonl", "config.json") and done == 0:
                assert (folder / "metrics.jsonl").read_bytes() == self.metrics
        elif kind == "study":
            self.call("compare", "parity", *TINY, "--methods", "plain", "mollified", "--seeds", "1", "--search", "1", "--quiet", "--threads", "1", "--out", out)  # fmt: skip
            return self._name(before, path, what)
        else:
            self.call("search", "parity", *TINY, "--method", "plain", "--trials", "2", "--quiet", "--threads", "1", "--out", out)  # fmt: skip
            self.call("train", "parity", "--config", f"{out}/best.json", *self.train_flags(self.root / "copy" / "trained"), "--updates", "2")  # fmt: skip
            self.call("compare", "parity", *TINY, "--methods", "plain", "--seeds", "1", "--best", f"{out}/best.json", "--quiet", "--threads", "1", "--out", f"{out}/compared")  # fmt: skip
        if pick.random() < 0.1:  # pictures take most of the time
            self.call("report", out)
        return self._name(before, path, what)

    def _name(self, before: int, path: Path, what: str) -> None:
        self.found.wrong[before:] = [f"{each}\n    after: {path.name}: {what}" for each in self.found.wrong[before:]]

    def mistype(self, command: str, pick: random.Random) -> None:
        """A command line with odd words."""
        shutil.rmtree(self.root / "typed", ignore_errors=True)
        words: list[str] = []
        for _ in range(pick.randint(1, 3)):
            flag = pick.choice(FLAGS[command].split() or [""])
            word = pick.choice(WORDS)
            words += [] if (flag, word) in SLOW else [each for each in (flag, word) if each or pick.random() < 0.5]
        out = str(self.root / "typed" / "out")
        flat = " ".join(FLAT).split()
        lines = {
            "train": ["parity", "--preset", "quick", *flat, *self.train_flags(Path(out)), *words, "--updates", "2"],
            "compare": ["parity", *TINY, "--seeds", "1", "--methods", "plain", "--quiet", "--out", out, *words],
            "search": ["parity", *TINY, "--trials", "1", "--quiet", "--out", out, *words],
            "report": [out, *words], "resume": [out, *words], "tasks": words, "methods": words, "figures": [*words, "nothing"],
            "data": ["mnist", "--from", out, *words],
        }  # fmt: skip
        self.found.tried[f"flags of {command}"] += 1
        self.call(command, *lines[command])

    def one(self, pick: random.Random) -> None:
        """Any mutation."""
        if pick.random() < 0.5:
            self.damage(pick.choice(["run", "half", "half", "study", "search"]), pick)
        else:
            self.mistype(pick.choice([*FLAGS, "train", "train"]), pick)


def mutate(path: Path, pick: random.Random) -> str:
    """Damage a file: its bytes, its JSON, or the file as such; what was done."""
    data = path.read_bytes()
    how = pick.choice(["cut", "flip", "replace", "json", "json", "json", "json", "remove", "folder", "double"])
    if how == "json" and path.suffix in (".json", ".jsonl"):
        lines = data.decode().splitlines() if path.suffix == ".jsonl" else [data.decode()]
        at = pick.randrange(len(lines)) if lines else 0
        found = json.loads(lines[at]) if lines else {}
        what = change(found, pick)
        lines[at : at + 1] = [json.dumps(found)]
        path.write_text("\n".join(lines) + "\n")
        return what
    if how == "remove":
        path.unlink()
    elif how == "folder":
        path.unlink()
        path.mkdir()
    elif how == "replace":
        path.write_bytes(pick.choice(BYTES))
    elif how == "double":
        path.write_bytes(data + data)
    elif how == "flip" and data:
        at = pick.randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << pick.randrange(8))]) + data[at + 1 :])
    else:
        path.write_bytes(data[: pick.randrange(len(data) + 1)])
    return how


def change(found: Any, pick: random.Random) -> str:
    """Change, add or remove one value somewhere in a JSON document, in place."""
    if isinstance(found, dict) and found:
        name = pick.choice(sorted(found))
        inside = found[name]
        if isinstance(inside, dict | list) and inside and pick.random() < 0.7:
            return f"{name}.{change(inside, pick)}"
        if pick.random() < 0.2:
            del found[name]
            return f"{name} removed"
        found[name] = pick.choice(ODD)
        return f"{name}={found[name]!r:.60}"
    if isinstance(found, list) and found:
        found[pick.randrange(len(found))] = pick.choice(ODD)
    return "item"


def run(fuzz: Fuzz, examples: int, derandomize: bool) -> None:
    """So many mutations, drawn by hypothesis."""

    @settings(
        max_examples=examples, deadline=None, database=None, derandomize=derandomize,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.integers(0, 2**64))
    def mutation(seed: int) -> None:
        fuzz.one(random.Random(seed))

    mutation()


def main(seconds: float) -> int:
    """Mutate for so long; 1 if anything was wrong."""
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        fuzz = Fuzz(Path(folder))
        while time.monotonic() < end:
            run(fuzz, 20, derandomize=False)
        tried, wrong = sum(fuzz.found.tried.values()), sorted(set(fuzz.found.wrong))
        print(*wrong, sep="\n")
        print(f"{tried} mutations, exit codes {dict(fuzz.found.codes)}, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0))
