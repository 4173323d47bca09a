"""What a page shows in addition to the numbers: settings, environment, commands, failed runs."""

from __future__ import annotations

import dataclasses
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from mollifier_lab.imports import OURS
from mollifier_lab.report.formats import show_metric, title
from mollifier_lab.report.reading import Run, VariantRuns, differing, show
from mollifier_lab.report.summary import TableRow
from mollifier_lab.settings import TASKS
from mollifier_lab.tuned import Tuned


def setting_rows(found: Sequence[VariantRuns]) -> tuple[list[tuple[str, list[str]]], list[tuple[str, list[str]]]]:
    """Return name and value for each variant: first the settings that differ, then all others."""
    settings = [variant.settings for variant in found]
    changed = differing(settings)
    rows = [
        (each.name, [show(getattr(one, each.name)) for one in settings]) for each in dataclasses.fields(settings[0])
    ]
    return [row for row in rows if row[0] in changed], [row for row in rows if row[0] not in changed]


def full_name(variant: VariantRuns, found: Sequence[VariantRuns]) -> str:
    """Return the full name, followed by every setting that differs between the variants and is not in the name."""
    named = {piece.partition("=")[0] for piece in variant.name.split(", ")}
    rest = [name for name in differing([each.settings for each in found]) if name not in named]
    shown = ", ".join(f"{name}={show(getattr(variant.settings, name))}" for name in rest)
    return f"{variant.name}; {shown}" if shown else variant.name


def what_was_run(found: Sequence[VariantRuns]) -> str:
    """Describe what the variants train, without repetition; only the first three, if there are more.

    >>> from mollifier_lab.settings import Parity
    >>> what_was_run([VariantRuns("parity", "plain", "plain", Parity(bits=8, depth=2, width=16))])
    '8-bit parity, 2×16 sigmoid MLP'
    """
    texts = list(dict.fromkeys(variant.settings.describe() for variant in found))
    return "; ".join(texts[:3]) + (f"; and {len(texts) - 3} more like these" if len(texts) > 3 else "")


def outcome(rows: Sequence[TableRow]) -> str:
    """Describe the row with the lowest mean in one sentence, next to its baseline; empty if there is nothing to compare."""
    usable = [row for row in rows if row.done > row.diverged]
    if len(usable) < 2:
        return ""
    best = min(usable, key=lambda row: row.final.mean)
    said = f"Lowest {title(best.metric)} at the end: {best.short}, {show_metric(best.metric, best.final.mean)}"
    if best.baseline == best.variant:
        return f"{said}. It is the baseline: the best that anneals nothing."
    beside = next((row for row in rows if row.variant == best.baseline == row.baseline), None)
    if beside is None:
        return f"{said}."
    said += f"; the baseline, {beside.short}, has {show_metric(beside.metric, beside.final.mean)}"
    found = best.difference
    if found is None or found.n < 2:
        return f"{said}. Too few seeds to tell them apart."
    apart = "excludes" if found.high < 0 else "includes"
    return f"{said}. The 95 % interval of their paired difference {apart} 0."


def unlike_default(found: Sequence[VariantRuns]) -> list[str]:
    """Return what all variants have in common and what differs from the task's defaults, the paper's setting: `width=100 (200)`."""
    first, default = found[0].settings, type(found[0].settings)()
    shared = {name for name, _ in setting_rows(found)[1]} - {"evaluate_every", "save_every"}
    return [
        f"{name}={show(getattr(first, name))} ({show(getattr(default, name))})"
        for name in differing([first, default])
        if name in shared
    ]


def environment_rows(runs: Iterable[Run]) -> list[tuple[str, list[str]]]:
    """Return what the environment files say, by name; where runs differ, each value with the number of its runs."""
    files = [flatten(run.environment) for run in runs if run.environment]
    names = dict.fromkeys(name for file in files for name in file if name.split(".")[0] != "command")
    found: list[tuple[str, list[str]]] = []
    for name in names:
        counts = Counter(file.get(name, "not given") for file in files)
        same = len(counts) == 1
        found.append(
            (name, [value if same else f"{value} ({_runs(count)})" for value, count in sorted(counts.items())])
        )
    return found


def tuning(tuned: Tuned) -> str:
    """Describe a search in one sentence: how many trials, of what, and what was chosen.

    >>> tuning(Tuned("plain", 8, {"lr": (0.1, 1.0, "log")}, {"lr": 0.25}, "valid_error", 0.125, {"epochs": 2.0}))
    '8 trials with epochs=2: lr 0.25 of 0.1 to 1 (log); validation error 12.50 % in the best trial'
    """
    short = ", ".join(f"{name}={show(value)}" for name, value in tuned.changes.items())
    drawn = [
        f"{name} {f'{tuned.chosen[name]:.4g} of ' if tuned.chosen else 'from '}{low:g} to {high:g} ({scale})"
        for name, (low, high, scale) in tuned.ranges.items()
    ]
    best = f"{title(tuned.metric)} {show_metric(tuned.metric, tuned.value)} in the best trial"
    end = best if tuned.chosen else "every trial diverged, so nothing was chosen"
    return f"{tuned.trials} trials{f' with {short}' if short else ''}: {', '.join(drawn)}; {end}"


def flatten(given: object, name: str = "") -> dict[str, str]:
    """Return nested names joined by dots.

    >>> flatten({"machine": {"cores": 2, "accelerator": None}})
    {'machine.cores': '2', 'machine.accelerator': 'none'}
    """
    if isinstance(given, dict):
        prefix = f"{name}." if name else ""
        return {key: text for inner, value in given.items() for key, text in flatten(value, f"{prefix}{inner}").items()}
    if isinstance(given, list):
        return {name: ", ".join(map(str, given))}
    return {name: "none" if given is None else str(given)}


def recorded_commands(runs: Iterable[Run]) -> list[str]:
    """Return the commands that started the runs, without repetition and without those of a study's own worker processes."""
    found: dict[str, None] = {}
    for run in runs:
        command = run.environment.get("command")
        text = shlex.join(map(str, command)) if isinstance(command, list) else command
        if isinstance(text, str) and text.startswith("mollifier"):
            found.setdefault(text)
    return list(found)


def train_command(run: Run, root: Path) -> str:
    """Return the command that repeats a single run, in a folder of the same name."""
    config = run.config
    kind = TASKS[config.task]
    preset = kind(**dict(kind.presets.get(config.preset, {})))  # type: ignore[arg-type]
    flags = [
        f"--{name.replace('_', '-')} {shlex.quote(str(getattr(config.settings, name)))}"
        for name in differing([preset, config.settings])
    ]
    words = f"mollifier train {config.task} --method {config.method} --preset {shlex.quote(config.preset)}"
    flags += [f"--import {shlex.quote(each.source)}" for each in config.imports if not each.source.startswith(OURS)]
    flags += ["--allow-other-data"] if config.other_data else []
    precision = run.identity.get("precision", "32-true")
    flags += [f"--precision {shlex.quote(str(precision))}"] if precision != "32-true" else []
    flags += [f"--label {shlex.quote(config.label)}"] if config.label else []
    return " ".join([words, *flags, f"--seed {config.seed} --out {shlex.quote(place(run, root))}"])


def place(run: Run, root: Path) -> str:
    """Return the folder of a run, relative to the folder of the report."""
    path = run.folder.path
    inside = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
    return inside if inside != "." else path.name or "run"


def _runs(count: int) -> str:
    return f"{count} run" if count == 1 else f"{count} runs"
