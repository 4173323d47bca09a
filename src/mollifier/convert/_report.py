"""What mollify did, and what it did not and why."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import nn

from mollifier.convert._levels import REPORT, levels


@dataclass
class Row:
    """One block: what one level governs.

    Attributes:
        name: Where it is: a module, or ``sequential[first:last]`` for a run.
        kind: run, residual, named, activation or traced.
        activations: The noisy activations in it, with the number of their a.
        units: Units in and out, where they are known.
        copy: How its input is copied past it: copy, pad, project, or none.
        level: Present level.
    """

    name: str
    kind: str
    activations: list[str]
    units: str
    copy: str
    level: float = 1.0


@dataclass
class Skipped:
    """A module or function that was left as it is."""

    name: str
    what: str
    why: str


@dataclass
class Report:
    """Blocks in forward order, and what was skipped. ``print`` it.

    >>> import mollifier, torch
    >>> model = mollifier.mollify(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)))
    >>> print(mollifier.report(model))
    mollified: 1 block
     #  block  kind  units  copy  noisy activations  level
     1  [0:1]  run   4 → 8  pad   tanh (8 a)         1
    not mollified:
      2 (Linear): no activation follows it; the paper, too, leaves the output layer as it is
    """

    blocks: list[Row] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def __str__(self) -> str:
        head = ("#", "block", "kind", "units", "copy", "noisy activations", "level")
        rows = [
            (str(n), row.name, row.kind, row.units, row.copy, ", ".join(row.activations) or "none", f"{row.level:.3g}")
            for n, row in enumerate(self.blocks, 1)
        ]
        widths = [max(len(line[i]) for line in [head, *rows]) for i in range(len(head))]
        count = f"mollified: {len(rows)} block{'' if len(rows) == 1 else 's'}"
        lines = [count] + [_line(line, widths) for line in [head, *rows]]
        if self.skipped:
            lines += ["not mollified:"] + [f"  {s.name} ({s.what}): {s.why}" for s in self.skipped]
        return "\n".join(lines)


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    number, *rest = cells
    return (
        f"{number:>{widths[0] + 1}}  " + "  ".join(f"{c:<{w}}" for c, w in zip(rest, widths[1:], strict=True))
    ).rstrip()


def report(model: nn.Module) -> Report:
    """What `mollify` did to this model, block by block in forward order, and what it left alone and why.

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
            for row, level in zip(part.blocks, levels(module), strict=False):
                found.blocks.append(Row(**{**row.__dict__, "level": level}))
            found.skipped += part.skipped
    if not found.blocks:
        raise ValueError(
            f"{type(model).__name__} was not mollified: there is nothing to report. Call mollify(model) first."
        )
    return found
