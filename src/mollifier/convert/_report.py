"""The report: what `mollify` did, what it left alone, and why."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product, zip_longest

from torch import nn

from mollifier.convert._levels import REPORT, groups


@dataclass
class Row:
    """One block, which one level controls.

    Attributes:
        name: The place of the block: a module, or ``sequential[first:last]`` for a run.
        kind: run, residual, named, activation or recurrent.
        activations: The noisy activations in it, with the number of their a.
        units: The units in and out, if they are known.
        copy: How its input is copied past it: copy, pad, project, or none.
        level: The present level.
        order: Its place among the blocks, from 0.
    """

    name: str
    kind: str
    activations: list[str]
    units: str
    copy: str
    level: float = 1.0
    order: int = 0


@dataclass
class Skipped:
    """A module or function that was left unchanged."""

    name: str
    what: str
    why: str


@dataclass
class Report:
    """The blocks in forward order, and what was left alone. When printed, rows that differ only by a number in their name share one line.

    >>> import mollifier, torch
    >>> model = mollifier.mollify(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)))
    >>> print(mollifier.report(model))
    mollified: 1 block
     #  block  kind  units  copy  noisy activations  level
     1  [0:1]  run   4 → 8  pad   tanh (8 a)         1
    not mollified:
      2 (Linear): output layer: no activation follows it
    """

    blocks: list[Row] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def __str__(self) -> str:
        head = ("#", "block", "kind", "units", "copy", "noisy activations", "level")
        cells = [
            (row.kind, row.units, row.copy, ", ".join(row.activations) or "none", f"{row.level:.3g}")
            for row in self.blocks
        ]
        rows = [
            (_numbers(places), name, *rest) for places, name, rest in grouped([row.name for row in self.blocks], cells)
        ]
        widths = [max(len(line[i]) for line in [head, *rows]) for i in range(len(head))]
        count = f"mollified: {len(cells)} block{'' if len(cells) == 1 else 's'}"
        lines = [count] + [_line(line, widths) for line in [head, *rows]]
        if self.skipped:
            left = grouped([s.name for s in self.skipped], [(s.what, s.why) for s in self.skipped])
            lines += ["not mollified:"] + [f"  {name} ({what}): {why}" for _, name, (what, why) in left]
        return "\n".join(lines)


def grouped(names: Sequence[str], rest: Sequence[tuple[str, ...]]) -> list[tuple[list[int], str, tuple[str, ...]]]:
    """Merge rows that are equal except for numbers in their names, if these numbers run through all combinations.

    >>> grouped(["h.0.mlp", "h.1.mlp", "head"], [("run",), ("run",), ("run",)])
    [([0, 1], 'h.{0..1}.mlp', ('run',)), ([2], 'head', ('run',))]
    """
    alike: dict[tuple[object, ...], list[int]] = {}
    for place, (name, cells) in enumerate(zip(names, rest, strict=True)):
        alike.setdefault((re.sub(r"\d+", "#", name), cells), []).append(place)
    found: list[tuple[list[int], str, tuple[str, ...]]] = []
    for places in alike.values():
        for part in _whole([(place, tuple(map(int, re.findall(r"\d+", names[place])))) for place in places]):
            first = part[0][0]
            spans = map(_span, (sorted(set(column)) for column in zip(*(numbers for _, numbers in part), strict=True)))
            found.append(([place for place, _ in part], _filled(names[first], list(spans)), rest[first]))
    return sorted(found, key=lambda row: row[0][0])


Numbered = tuple[int, tuple[int, ...]]  # the place of a row, and the numbers in its name


def _whole(rows: list[Numbered]) -> list[list[Numbered]]:
    """Split rows into as few parts as possible, so that the numbers in each run through all combinations."""
    columns = [sorted(set(column)) for column in zip(*(numbers for _, numbers in rows), strict=True)]
    if sorted(numbers for _, numbers in rows) == sorted(product(*columns)):
        return [rows]
    varies = next((index for index, column in enumerate(columns) if len(column) > 1), None)
    if varies is None:  # one name several times
        return [[row] for row in rows]
    parts = [[row for row in rows if row[1][varies] == value] for value in columns[varies]]
    return [whole for part in parts for whole in _whole(part)]


def _filled(name: str, spans: list[str]) -> str:
    parts = re.split(r"\d+", name)
    return "".join(text for pair in zip_longest(parts, spans, fillvalue="") for text in pair)


def _span(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return str(numbers[0])
    whole = numbers == list(range(numbers[0], numbers[-1] + 1))
    return f"{{{numbers[0]}..{numbers[-1]}}}" if whole else f"{{{','.join(map(str, numbers))}}}"


def _numbers(places: list[int]) -> str:
    """The numbers of the blocks, from 1."""
    if places == list(range(places[0], places[-1] + 1)):
        return str(places[0] + 1) if len(places) == 1 else f"{places[0] + 1}-{places[-1] + 1}"
    shown = [str(place + 1) for place in places]
    return ", ".join(shown if len(shown) <= 3 else [shown[0], "…", shown[-1]])


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    number, *rest = cells
    return (
        f"{number:>{widths[0] + 1}}  " + "  ".join(f"{c:<{w}}" for c, w in zip(rest, widths[1:], strict=True))
    ).rstrip()


def report(model: nn.Module) -> Report:
    """Return what `mollify` did to this model, block by block in forward order, and what it left alone and why.

    >>> import mollifier, torch
    >>> model = mollifier.mollify(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1)))
    >>> [row.name for row in mollifier.report(model).blocks]
    ['[0:1]']

    Raises:
        ValueError: If nothing in it was mollified by `mollify`.
    """
    found = Report()
    for module in model.modules():
        part: Report | None = module.__dict__.get(REPORT)
        if part is not None:
            present = {group[0].order: float(group[0].level) for group in groups(module)}
            found.blocks += [replace(row, level=present[row.order]) for row in part.blocks if row.order in present]
            found.skipped += part.skipped
    if not found.blocks:
        raise ValueError(
            f"{type(model).__name__} was not mollified: there is nothing to report. Call mollify(model) first."
        )
    return found
