"""`--dry-run`: show what would be done, with every setting, and do nothing. No torch here."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from mollifier_lab.runs import RunFolder
from mollifier_lab.settings import Range, RunConfig


def print_plan(runs: Iterable[tuple[RunConfig, Path]], also: str = "") -> int:
    """Print the whole config of each variant, and each run's folder with its contents. Return the exit code: 2 if a folder contains a
    different run.
    """
    from mollifier_lab.job import different

    found = list(runs)
    shown: set[str] = set()
    for config, _ in found:
        if config.title not in shown:
            shown.add(config.title)
            print(f"# {config.title}\n{config.to_json()}", end="")
    problems = 0
    for config, path in found:
        wrong = different(RunFolder(path), config)
        problems += bool(wrong)
        print(f"{path}: {config.title}, seed {config.seed}: {wrong or RunFolder(path).status}")
    print(f"dry run: {len(found)} {'run' if len(found) == 1 else 'runs'}{also}; nothing was run or written")
    return 2 if problems else 0


def describe_ranges(space: dict[str, Range]) -> str:
    """Describe what a search draws.

    >>> describe_ranges({"lr": (0.1, 1.0, "log")})
    'lr from 0.1 to 1 (log)'
    """
    return ", ".join(f"{name} from {low:g} to {high:g} ({scale})" for name, (low, high, scale) in space.items())
