"""Decide which runs can be trusted and which belong together: look for contradictions in records, and compare what numbers depend on apart
from the config.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from mollifier_lab.errors import LabError
from mollifier_lab.json_files import parse, read_text
from mollifier_lab.runs import ESSENTIAL, INCIDENTAL, Row, RunFolder

if TYPE_CHECKING:
    from mollifier_lab.report.reading import Run, VariantRuns


def contradictions(run: Run) -> dict[str, str]:
    """Find contradictions between the records of a run that is done, including runs without a seal."""
    final, updates = run.result.get("final"), run.result.get("updates")
    if not isinstance(final, dict) or (run.config.settings.headline not in final and not run.config.trial):
        return {"result.json": "it has no final metrics"}
    last = run.rows[-1]["update"] if run.rows else 0
    if isinstance(updates, int) and last != updates:
        return {"metrics.jsonl": f"its last row is for update {last:,}, but the run ended at {updates:,}"}
    return {}


def remarks(runs: Iterable[Run]) -> list[str]:
    """Say for each run what is damaged, and whether it was resumed under other conditions."""
    found = []
    for run in runs:
        if run.damage:
            found.append(f"{run.folder.path}: {run.damage}; it is not counted")
        if run.lost_times:
            found.append(f"{run.folder.path}: damaged: clock.jsonl ({run.lost_times}); its times are left out")
        if differs := list(dict.fromkeys(each for line in _resumptions(run.folder) for each in line)):
            found.append(f"{run.folder.path}: resumed under other conditions ({'; '.join(differs)})")
    return found


def split(runs: Sequence[Run]) -> list[list[Run]]:
    """Separate runs of one setting whose numbers depend on different things.

    Runs of the previous version did not record these; they stay with the others as long as those agree.
    """
    if len({_essence(run.identity) for run in runs if run.identity}) < 2:
        return [list(runs)]
    groups: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        groups[_essence(run.identity)].append(run)
    return [groups[key] for key in sorted(groups)]


def mark(found: Sequence[VariantRuns]) -> None:
    """Add what the numbers depend on to the names of a task's variants, if it is not the same for all; other data is always added."""
    known = [variant.runs[0].identity for variant in found]
    names = [name for name in ESSENTIAL if len({_show(name, each) for each in known if each.get(name) is not None}) > 1]
    twice = [variant.name for variant in found]
    for variant, facts in zip(found, known, strict=True):
        marks = [_show(name, facts) for name in names if facts.get(name) is not None]
        marks += ["conditions not recorded"] if not facts and twice.count(variant.name) > 1 else []
        marks += ["other data"] if any(run.identity.get("other_data") for run in variant.runs) else []
        variant.name = ", ".join([variant.name, *marks])


def mixed(found: Iterable[VariantRuns]) -> list[str]:
    """Say which means are over runs that differ in something that changes only the last digits."""
    notes = []
    for variant in found:
        for name in INCIDENTAL:
            values = sorted({str(run.identity[name]) for run in variant.done if name in run.identity})
            if len(values) > 1:
                notes.append(f"{variant.name}: a mean over runs that differ in {name} ({', '.join(values)})")
    return notes


def _essence(facts: Row) -> str:
    return json.dumps([facts.get(name) for name in ESSENTIAL], sort_keys=True, default=str) if facts else ""


def _show(name: str, facts: Row) -> str:
    value = facts.get(name)
    if isinstance(value, dict):
        value = hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:8]
    return f"{name}={value}"


def _resumptions(folder: RunFolder) -> list[list[str]]:
    """Return what differed at each resumption. A log that cannot be read is no reason to leave the run out."""
    try:
        path = folder.path / "resumptions.jsonl"
        lines = [parse(line, str(path)) for line in read_text(path, limit=None).splitlines()]
        return [[str(each) for each in line["differs"]] for line in lines]
    except FileNotFoundError:
        return []
    except (LabError, ValueError, KeyError, TypeError, OSError) as error:
        return [[f"resumptions.jsonl cannot be read: {error!r:.200}"]]
