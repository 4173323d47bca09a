"""Memory over long times: the adding problem for three cells, each trained in the same ways with the same trials."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from mollifier_lab.frontier.best import best_of
from mollifier_lab.frontier.ways import drawn_variants, spread
from mollifier_lab.variants import Variant

STEPS, CELLS, UPDATES, TRIALS = (100, 200, 400), ("rnn", "gru", "lstm"), 5000, 2
SMOKE = {"updates": 4, "evaluate_every": 4, "width": 4, "batch": 4}
# the way, its method and its settings; clipping is the same for all
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "clipping alone": ("plain", {}),
    "orthogonal": ("plain", {"init": "orthogonal"}),
    "mollified, front": ("mollified", {"schedule": "front"}),
    "mollified, no copy, front": ("paper-lstm", {"schedule": "front"}),
    "mollified, adaptive": ("mollified", {"schedule": "adaptive"}),
}


class AddingResult(NamedTuple):
    """The result of a way: the test error of the trial with the lowest validation error."""

    steps: int
    cell: str
    way: str
    test_loss: float


def make(out: Path, *, smoke: bool = False, **pool: Any) -> list[AddingResult]:
    """Run what is missing, in a folder ``runs/adding/STEPS`` for each length.

    Args:
        out: The folder of the frontier.
        smoke: Whether to use tiny networks and a few updates, only to show that it works.
        **pool: The same as for `mollifier_lab.study.compare`.
    """
    small: dict[str, Any] = SMOKE if smoke else {}
    updates = small.get("updates", UPDATES)
    found = []
    for steps in STEPS:
        trials = {(cell, way): variants(cell, way, updates) for cell in CELLS for way in WAYS}
        common = {"updates": updates, **small, "steps": min(steps, 8) if smoke else steps}
        folder = out / "runs" / "adding" / f"{steps:03d}"
        losses = best_of(
            "adding", trials, folder, metric="loss", changes=common, command="mollifier frontier adding", **pool
        )
        found += [AddingResult(steps, cell, way, loss) for (cell, way), loss in losses.items()]
    return found


def variants(cell: str, way: str, updates: int = UPDATES) -> list[Variant]:
    """Return the trials of a way: trial n has the same learning rate for all.

    >>> [str(each) for each in variants("gru", "orthogonal")]
    ['plain:cell=gru,init=orthogonal,lr=0.000721', 'plain:cell=gru,init=orthogonal,lr=0.00416']
    """
    method, changes = WAYS[way]
    return drawn_variants(method, {"cell": cell, **changes}, spread({"lr": (3e-4, 1e-2, "log")}, TRIALS), updates)


def table(found: list[AddingResult]) -> str:
    """Return a table in Markdown: mean squared error on test sequences, single runs.

    >>> print(table([AddingResult(100, "gru", "orthogonal", 0.00123)]).splitlines()[-1])
    | 100 | gru | 0.0012 |
    """
    ways = [way for way in WAYS if any(each.way == way for each in found)]
    lines = [f"| steps | cell | {' | '.join(ways)} |", "|---|---|" + "---|" * len(ways)]
    for steps, cell in dict.fromkeys((each.steps, each.cell) for each in found):
        values = {each.way: each.test_loss for each in found if (each.steps, each.cell) == (steps, cell)}
        lines.append(f"| {steps} | {cell} | {' | '.join(f'{values[way]:.2g}' for way in ways)} |")
    return "\n".join(lines) + "\n"
