"""Mutations of all that a user can damage or mistype: files of a run, a study and a search, configs, and command lines.

The invariant: what comes out is right, or there is a sentence on stderr and exit code 2 (1 where a run of a study has failed); never a
traceback, never a fault of its own, never other numbers without a word. As a command, for as long as asked, or for so many mutations:

    make fuzz SECONDS=600
    python -m tests.lab.fuzz --count 3000
"""

from __future__ import annotations

import argparse
import contextlib
import csv
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

from mollifier_lab import cli, engine
from tests.lab.mutations import FLAGS, mutate, odd_flags

SIZES = {"bits": 4, "width": 4, "depth": 2, "samples": 8, "batch": 4, "updates": 4, "evaluate_every": 2, "save_every": 2, "k": 1}  # fmt: skip
SET = ["--preset", "quick", "--set", *(f"{name}={value}" for name, value in SIZES.items())]
CLOCK = ("seconds", "updates_per_second")  # no part of a result
QUIET = ["--threads", "1", "--no-tensorboard", "--quiet"]
STUDY = ["compare", "parity", *SET, "--methods", "plain", "mollified", "--seeds", "1", "--search", "1", "--quiet", "--threads", "1"]  # fmt: skip
SEARCH = ["search", "parity", *SET, "--method", "plain", "--trials", "2", "--quiet", "--threads", "1"]
KINDS, WEIGHTS = ("run", "half", "study", "search", "config"), (2, 5, 1, 2, 2)  # a study takes the longest


def flat(**changes: Any) -> list[str]:
    """The sizes as flags of `train`."""
    return [word for name, value in (SIZES | changes).items() for word in (f"--{name.replace('_', '-')}", str(value))]


@dataclass
class Findings:
    """What has been tried, and what was wrong."""

    tried: Counter[str] = field(default_factory=Counter)
    codes: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Fuzz:
    """Small folders, made once; every mutation works on a copy."""

    def __init__(self, root: Path) -> None:
        self.root, self.found, self.said = root, Findings(), ""
        self.good = root / "good"
        train = ["train", "parity", "--preset", "quick", *QUIET]
        self.call(*train, *flat(), "--out", str(self.good / "run"))
        self.call(*train, *flat(updates=12), "--out", str(self.good / "whole"))
        half: Any = cli.parse([*train, *flat(updates=12), "--out", str(self.good / "half")])
        stop_at(half.run_config(), half.out, half.hardware, 7)
        self.call(*STUDY, "--out", str(self.good / "study"))
        self.call(*SEARCH, "--out", str(self.good / "search"))
        shutil.copytree(self.good / "run", self.good / "config", ignore=lambda _, names: set(names) - {"config.json"})
        self.call("report", str(self.good / "run"))
        self.call("report", str(self.good / "half"))
        assert not self.found.wrong, self.found.wrong
        self.found = Findings()

    def call(self, *words: str) -> int:
        """Run a command in this process, and hold its end against the first part of the invariant."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = cli.main(list(words))
        self.said = err.getvalue()
        told = self.said.strip() or out.getvalue().strip()  # tyro tells on stdout or stderr, as it likes
        good = code in (0, 1, 2) and "Traceback" not in self.said and cli.BUG not in self.said and (code == 0 or told)
        self.found.codes[code] += 1
        if not good:
            self.found.wrong.append(f"{code} {words!r:.300}\n    {self.said[-400:]}")
        return code

    def hold(self, good: bool, what: str) -> None:
        """The second part: what came out is right."""
        if not good:
            self.found.wrong.append(f"silently wrong: {what}\n    {self.said[-400:]}")

    def copy(self, kind: str) -> Path:
        folder = self.root / "copy"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.good / kind, folder)
        return folder

    def damage(self, kind: str, pick: random.Random) -> None:
        """Damage one file of a folder, then look at it with every command that reads it."""
        folder = self.copy(kind)
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".png", ".html", ".csv") and "tfevents" not in path.name)  # fmt: skip
        path = pick.choice(files)
        what = mutate(path, pick)
        self.found.tried[f"{kind}: {'checkpoint' if path.suffix == '.pt' else path.name}"] += 1
        before = len(self.found.wrong)
        getattr(self, f"_{kind}")(folder, path, pick)
        self.found.wrong[before:] = [f"{each}\n    after: {path.name}: {what}" for each in self.found.wrong[before:]]

    def _run(self, folder: Path, path: Path, pick: random.Random, whole: str = "run") -> None:
        if pick.random() < 0.05:  # pictures take most of the time
            self._report(folder, "half" if whole == "whole" else whole)
        if self.call("resume", str(folder), *QUIET) == 0:
            self.hold(numbers(folder) == numbers(self.good / whole), "resumed to other numbers")

    def _half(self, folder: Path, path: Path, pick: random.Random) -> None:
        self._run(folder, path, pick, "whole")

    def _report(self, folder: Path, whole: str) -> None:
        if self.call("report", str(folder)) == 0 and "note: " not in self.said:
            self.hold(table(folder) == table(self.good / whole), "another table, and no note")

    def _study(self, folder: Path, path: Path, pick: random.Random) -> None:
        if self.call(*STUDY, "--out", str(folder)) == 0 and "note: " not in self.said:
            self.hold(table(folder) == table(self.good / "study"), "another table, and no note")

    def _search(self, folder: Path, path: Path, pick: random.Random) -> None:
        if path.name == "best.json":
            self._config(folder, path, pick)
            best = ["compare", "parity", *SET, "--methods", "plain", "--seeds", "1", "--best", str(path), "--quiet", "--threads", "1"]  # fmt: skip
            self.call(*best, "--out", str(self.root / "typed"))
            shutil.rmtree(self.root / "typed", ignore_errors=True)
        if self.call(*SEARCH, "--out", str(folder)) == 0:
            for name in ("best.json", "trials.csv", "search.json"):
                same = (folder / name).read_bytes() == (self.good / "search" / name).read_bytes()
                self.hold(same, f"searched to another {name}")

    def _config(self, folder: Path, path: Path, pick: random.Random) -> None:
        """A config that is accepted is what was trained, each value of it."""
        out = self.root / "typed"
        shutil.rmtree(out, ignore_errors=True)
        try:
            there = json.loads(path.read_text())["settings"].keys()
        except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError):
            there = set()
        # what the file does not say is the preset's, and that is a long run
        missing = [word for name, value in SIZES.items() if name not in there for word in (f"--{name.replace('_', '-')}", str(value))]  # fmt: skip
        if (
            self.call("train", "parity", "--config", str(path), *QUIET, *missing, "--epochs", "1", "--out", str(out))
            == 0
        ):
            given, made = (json.loads(each.read_text()) for each in (path, out / "config.json"))
            asked = {name: value for name, value in given.get("settings", {}).items() if name != "epochs"}
            wrong = [name for name, value in asked.items() if not same(value, made["settings"][name])]
            wrong += [name for name in ("seed", "method", "label") if name in given and given[name] != made[name]]
            self.hold(not wrong, f"trained with other settings than given: {wrong}")

    def mistype(self, command: str, pick: random.Random) -> None:
        """A command line with odd words; what is accepted is what was given."""
        out = self.root / "typed"
        shutil.rmtree(out, ignore_errors=True)
        usual: dict[str, list[str]] = {
            "train": ["--preset quick", *(f"--{name.replace('_', '-')} {value}" for name, value in SIZES.items()), "--threads 1", f"--out {out}"],
            "compare": ["--preset quick", f"--set {' '.join(SET[3:])}", "--seeds 1", "--methods plain", "--threads 1", f"--out {out}"],
            "search": ["--preset quick", f"--set {' '.join(SET[3:])}", "--trials 1", "--threads 1", f"--out {out}"],
            "data": [f"--from {out}"], "resume": ["--threads 1"],
        }  # fmt: skip
        first = {
            "train": ["parity", "--no-tensorboard", "--quiet"], "compare": ["parity", "--quiet"], "search": ["parity", "--quiet"], "data": ["mnist"],
            "report": [str(out)], "resume": [str(out)], "figures": ["nothing"], "reproduce": ["nothing"],
            "ls": [str(self.good / "run")], "note": [str(out)], "frontier": ["nothing"],
        }  # fmt: skip
        flags, loose = odd_flags(command, pick)
        base = [each.split(" ") for each in usual.get(command, []) if each.split(" ")[0] not in flags]
        odd = [word for flag, value in flags.items() for word in (flag, *([] if value is None else [value]))]
        self.found.tried[f"flags of {command}"] += 1
        with contextlib.chdir(self.root):  # an odd --out is a name of a folder here
            code = self.call(command, *first.get(command, []), *(word for each in base for word in each), *odd, *loose)
            shutil.rmtree(self.root / "runs", ignore_errors=True)
        if command == "train" and code == 0 and (out / "config.json").exists():
            made = json.loads((out / "config.json").read_text())
            facts = {**made["settings"], **{name: made[name] for name in ("seed", "label", "method", "preset")}}
            names = {
                flag: flag.removeprefix("--").replace("-", "_") for flag, value in flags.items() if value is not None
            }
            wrong = [flag for flag, name in names.items() if name in facts and not same(flags[flag], facts[name])]
            self.hold(not wrong, f"{flags}: trained with other values of {wrong}")

    def one(self, pick: random.Random) -> None:
        """Any mutation."""
        if pick.random() < 0.6:
            self.damage(pick.choices(KINDS, WEIGHTS)[0], pick)
        else:
            self.mistype(pick.choice([*FLAGS, "train", "train", "train"]), pick)


def stop_at(config: Any, out: Path, hardware: engine.Hardware, last: int) -> None:
    """Start or resume a run that ends like a killed one after some update: without a message, with its checkpoints."""

    def observe(update: int, loss: object, levels: object) -> None:
        if update == last:
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        if config is None:
            engine.resume(out, hardware=hardware, show=False, observe=observe)
        else:
            engine.train(config, out, hardware=hardware, show=False, observe=observe)


def numbers(folder: Path) -> tuple[bytes, object]:
    """All of a run that must be equal."""
    result = json.loads((folder / "result.json").read_text())
    return (folder / "metrics.jsonl").read_bytes(), {name: value for name, value in result.items() if name not in CLOCK}


def table(folder: Path) -> list[dict[str, str]]:
    rows = csv.DictReader((folder / "table.csv").read_text().splitlines())
    return [{name: value for name, value in row.items() if name not in CLOCK} for row in rows]


def same(given: Any, made: Any) -> bool:
    """Do they mean the same, as text or as a number?"""
    if isinstance(given, bool) or isinstance(made, bool):
        return str(given).lower() == str(made).lower()
    try:
        return float(given) == float(made)
    except (ValueError, TypeError):
        return bool(given == made)


def run(fuzz: Fuzz, examples: int) -> None:
    """So many mutations, drawn by hypothesis."""

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(0, 2**64))
    def mutation(seed: int) -> None:
        # hypothesis begins every round with 0: the count makes it another mutation
        fuzz.one(random.Random(f"{sum(fuzz.found.tried.values())} {seed}"))

    mutation()


def main() -> int:
    """Mutate for so long, or so often; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--count", type=int, default=0, help="mutations; then --seconds is not heeded")
    args = parser.parse_args()
    end = time.monotonic() + args.seconds
    with tempfile.TemporaryDirectory() as folder:
        fuzz = Fuzz(Path(folder))
        while (tried := sum(fuzz.found.tried.values())) < args.count if args.count else time.monotonic() < end:
            run(fuzz, min(20, args.count - tried) if args.count else 20)
            print(
                f"{sum(fuzz.found.tried.values())} mutations, {len(set(fuzz.found.wrong))} wrong",
                file=sys.stderr,
                flush=True,
            )
        wrong = sorted(set(fuzz.found.wrong))
        for each in (*wrong, *(f"{count:5} {name}" for name, count in sorted(fuzz.found.tried.items()))):
            print(each)
        traces = sum("silently wrong" not in each for each in wrong)
        print(f"{sum(fuzz.found.tried.values())} mutations, exit codes {dict(fuzz.found.codes)}: {traces} tracebacks, {len(wrong) - traces} silently wrong")  # fmt: skip
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
