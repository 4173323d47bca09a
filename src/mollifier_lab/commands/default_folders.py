"""The default folders of runs and studies: their names contain what was changed, so that different settings get different folders. No torch
here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mollifier_lab.errors import LabError
from mollifier_lab.settings import RunConfig, settings_for
from mollifier_lab.variants import Variant


def run_folder(config: RunConfig) -> Path:
    """Return the folder in which `mollifier train` puts a run.

    >>> run_folder(RunConfig.make("parity", "mollified")).as_posix()
    'runs/parity/mollified/seed-0'
    >>> run_folder(RunConfig.make("parity", "plain", 3, "quick", lr=0.5)).as_posix()
    'runs/parity/plain-quick_lr=0.5/seed-3'
    """
    method = config.method if config.preset == "paper" else f"{config.method}-{config.preset}"
    return Path("runs", config.task, Variant(method, _changes(config)).slug, f"seed-{config.seed}")


def study_folder(kind: str, task: str, preset: str, changes: Mapping[str, Any]) -> Path:
    """Return the folder in which `mollifier compare` and `mollifier search` put their results.

    >>> study_folder("compare", "parity", "quick", {"lr": 0.5}).as_posix()
    'runs/compare/parity-quick_lr=0.5'
    """
    return Path("runs", kind, Variant(f"{task}-{preset}", dict(sorted(changes.items()))).slug)


def _changes(config: RunConfig) -> dict[str, Any]:
    """Return what differs from the preset, or from the defaults if there is no such preset any more."""
    try:
        usual = settings_for(config.task, config.preset)
    except LabError:
        usual = settings_for(config.task)
    mine = dataclasses.asdict(config.settings)
    return {name: value for name, value in sorted(mine.items()) if value != getattr(usual, name)}
