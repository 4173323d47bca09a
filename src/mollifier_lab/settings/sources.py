"""For every setting of every task, whether its value is given by the paper or chosen, and where. No torch here.

>>> sources("parity")["momentum"]
Source(origin='paper', why='appendix C.4')
>>> sources("parity")["samples"].origin
'chosen'

Sections and appendices are those of the first version of the paper, which the rest of this package follows; 'published' is the ICLR 2017 version.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

from mollifier_lab.errors import pick
from mollifier_lab.settings import TASKS, settings_for
from mollifier_lab.settings.source_table import COMMON, GIVEN, PRESETS

OWN = "chosen: by the author of this task"
Origin = Literal["paper", "published", "cited", "chosen"]
MEANING: dict[Origin, str] = {
    "paper": "the paper gives it",
    "published": "only the published version gives it",
    "cited": "the paper refers to another paper, which gives it",
    "chosen": "ours",
}


class Source(NamedTuple):
    """Where a value comes from.

    Attributes:
        origin: Who gives the value.
        why: The section; for our own choices, the reason.
    """

    origin: Origin
    why: str


class Row(NamedTuple):
    """A setting with its value and its source."""

    setting: str
    value: str
    origin: str
    why: str


def sources(task: str) -> dict[str, Source]:
    """Return the source of the default value of every setting of a task, by name.

    Raises:
        LabError: If there is no such task.
    """
    kind = pick("task", task, TASKS)
    said = COMMON | GIVEN[task] if task in GIVEN else {}  # the paper says nothing about a user's own task
    return {each.name: _source(said.get(each.name, OWN)) for each in dataclasses.fields(kind)}


def table(task: str) -> list[Row]:
    """Return all settings of a task: the defaults first, then what the published preset changes, if there is one.

    >>> [row for row in table("mnist") if row.setting == "depth"]
    [Row(setting='depth', value='6', origin='chosen', why='no version gives a depth below 72; that of parity and Pentomino')]
    """
    defaults = settings_for(task)
    rows = [Row(name, _show(getattr(defaults, name)), *source) for name, source in sources(task).items()]
    for name, value in TASKS[task].presets.get("published", {}).items():
        rows.append(Row(f"{name}, preset published", _show(value), *_source(PRESETS[task][name])))
    return rows


def markdown(task: str) -> str:
    """Return the table of the documentation."""
    lines = ["| setting | value | whose | where, or from what |", "|---|---|---|---|"]
    lines += [
        f"| {row.setting.replace('_', chr(92) + '_')} | {row.value} | {row.origin} | {row.why} |" for row in table(task)
    ]
    return "\n".join(lines) + "\n"


def _source(said: str) -> Source:
    origin, _, why = said.partition(": ")
    found: Origin = next(each for each in MEANING if each == origin)
    return Source(found, why)


def _show(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
