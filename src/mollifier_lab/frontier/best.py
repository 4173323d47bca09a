"""Compare ways by their best trial: all trials of all ways are one comparison, and validation data chooses."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from mollifier_lab.errors import LabError
from mollifier_lab.settings import TASKS
from mollifier_lab.study import compare
from mollifier_lab.variants import Variant

Key = TypeVar("Key", bound=Hashable)


def best_of(
    task: str,
    trials: Mapping[Key, list[Variant]],
    folder: Path,
    *,
    metric: str,
    changes: dict[str, Any],
    command: str,
    **pool: Any,
) -> dict[Key, float]:
    """Run the trials that are missing, with seed 0. Return for each way the metric on test data of the trial with the lowest metric on
    validation data.

    Args:
        task: The task.
        trials: The variants of each way.
        folder: The folder of the comparison.
        metric: The metric without the name of its split: ``"loss"``, ``"error"``. A run that diverged, or has no such metric, counts as chance.
        changes: Settings that are changed for all runs.
        command: The command that the user gave, for the record.
        **pool: The same as for `mollifier_lab.study.compare`.

    Raises:
        LabError: If a run failed.
    """
    flat = [variant for each in trials.values() for variant in each]
    runs = compare(task, flat, [0], folder, changes=changes, command=command, **pool)
    if failed := [run.path for run in runs if run.status != "done"]:
        raise LabError(f"{len(failed)} runs of {command!r} failed; see failure.txt in {failed[0]}")
    results = {str(variant): run.json("result.json") for variant, run in zip(flat, runs, strict=True)}

    def value(result: dict[str, Any], split: str) -> float:
        found = result["final"].get(f"{split}_{metric}")
        return TASKS[task].chance if result["diverged"] or found is None else float(found)

    chosen = {
        way: min((results[str(variant)] for variant in each), key=lambda result: value(result, "valid"))
        for way, each in trials.items()
    }
    return {way: value(result, "test") for way, result in chosen.items()}
