"""Annealing that needs no tuning: the adaptive front with its defaults against the paper's schedule at seven values of k.

Each case is one comparison, in which only the annealing differs. The adaptive front *holds* if its final metric is inside the 95 %
interval of the best k, or better, if it takes at most 1.25 times the updates of that k to the target, and if no run diverges.

>>> [str(variant) for variant in variants("parity")][-3:]
['mollified:k=10000', 'mollified:horizon=7500,schedule=front', 'mollified:schedule=adaptive']
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mollifier_lab.errors import LabError
from mollifier_lab.report.estimates import Estimate, estimate
from mollifier_lab.report.formats import show_count, show_interval, show_metric
from mollifier_lab.report.reading import Run, read
from mollifier_lab.report.summary import first_at
from mollifier_lab.runs import find_runs
from mollifier_lab.study import compare
from mollifier_lab.variants import Variant

KS = (10, 30, 100, 300, 1000, 3000, 10_000)
SEEDS, ANNEAL, SLOWER = 3, 0.75, 1.25


@dataclass(frozen=True)
class Case:
    """One comparison.

    Attributes:
        task: The task.
        method: The mollified method whose annealing is varied.
        updates: The number of updates of each run; the horizon of the front is the fraction `ANNEAL` of them.
        changes: Settings of all runs.
        smoke: Settings with which a run takes seconds.
    """

    task: str
    method: str
    updates: int
    changes: Mapping[str, Any]
    smoke: Mapping[str, Any]


_SHORT = {"updates": 4, "evaluate_every": 4}
_MNIST = {"optimizer": "adam", "batch": 100, "lr": 1e-3, "evaluate_every": 100}
_MNIST_SMOKE = {**_SHORT, "width": 8}
CASES: dict[str, Case] = {
    "parity": Case("parity", "mollified", 10_000, {"samples": 1000, "lr": 1.0, "evaluate_every": 100, "converged": 1e-3}, {**_SHORT, "width": 8}),
    "mnist-10": Case("mnist", "mollified", 3000, {**_MNIST, "depth": 10}, _MNIST_SMOKE),
    "mnist-30": Case("mnist", "mollified", 6000, {**_MNIST, "depth": 30}, _MNIST_SMOKE),
    "mnist-72": Case("mnist", "mollified", 10_000, {**_MNIST, "depth": 72, "clip": 0.5, "lr_end": 0.1, "evaluate_every": 500}, _MNIST_SMOKE),
    "pentomino": Case("pentomino", "mollified-residual", 20_000, {"lr": 0.25, "evaluate_every": 500}, {**_SHORT, "train": 400, "width": 8}),
    # reduced: the first 200,000 tokens of the training set
    "ptb": Case("ptb", "mollified", 1500, {"tokens": 200_000, "evaluate_every": 100, "decay_after": 2}, {**_SHORT, "tokens": 4000, "width": 8, "steps": 10}),
}  # fmt: skip


@dataclass(frozen=True)
class AnnealingResult:
    """The result of one way to anneal.

    Attributes:
        case: The name of the case.
        way: The variant without its method, for example ``k=100``.
        metric: What `final` measures; lower is better.
        final: The mean over the seeds; a diverged run counts as chance.
        updates: Updates to the target: the median over the seeds, infinite if less than half of them reach it.
        diverged: The number of seeds that diverged.
    """

    case: str
    way: str
    metric: str
    final: Estimate
    updates: float
    diverged: int


def variants(case: str, updates: int = 0) -> list[Variant]:
    """Return what a case compares: the values of k, the front, the adaptive front."""
    found = CASES[case]
    horizon = ANNEAL * (updates or found.updates)
    ways: list[dict[str, Any]] = [{"k": float(k)} for k in KS]
    ways += [{"horizon": horizon, "schedule": "front"}, {"schedule": "adaptive"}]
    return [Variant(found.method, way) for way in ways]


def make(out: Path, cases: tuple[str, ...] = (), *, smoke: bool = False, **pool: Any) -> None:
    """Run what is missing, in a folder ``runs/annealing/CASE`` for each case.

    Args:
        out: The folder of the frontier.
        cases: The cases to run; if there are none, all.
        smoke: Whether to use tiny networks and a few updates, only to show that it works.
        **pool: The same as for `mollifier_lab.study.compare`.
    """
    for name in cases or tuple(CASES):
        case = CASES[name]
        common = {"updates": case.updates, **case.changes, **(case.smoke if smoke else {})}
        runs = compare(
            case.task, variants(name, common["updates"]), 2 if smoke else SEEDS, out / "runs" / "annealing" / name, changes=common,
            command="mollifier frontier annealing", **pool,
        )  # fmt: skip
        if failed := [run.path for run in runs if run.status != "done"]:
            raise LabError(f"{len(failed)} runs of the annealing comparison failed; see failure.txt in {failed[0]}")


def results(out: Path) -> list[AnnealingResult]:
    """Read the results: the ways whose seeds are all done."""
    found = []
    for name in CASES:
        folder = out / "runs" / "annealing" / name
        for variant in variants(name):
            runs = [run for run in read(find_runs(folder / variant.slug))[0] if run.status == "done" and not run.damage] if (folder / variant.slug).is_dir() else []  # fmt: skip
            if len(runs) >= SEEDS:
                found.append(_found(name, str(variant).partition(":")[2], runs))
    return found


def _found(case: str, way: str, runs: list[Run]) -> AnnealingResult:
    settings = runs[0].config.settings
    reached = [first_at(run, settings.curve, settings.target) for run in runs]
    # a run ends when it has converged: how far it is below that at its end is no result
    finals = estimate(max(run.counted, settings.converged) for run in runs)
    return AnnealingResult(
        case, way, settings.headline, finals, statistics.median(reached),
        sum(bool(run.result.get("diverged")) for run in runs),
    )  # fmt: skip


def holds(adaptive: AnnealingResult, others: list[AnnealingResult]) -> bool:
    """Return whether the adaptive front is as good as the best k, as fast, and free of divergence.

    >>> best = AnnealingResult("parity", "k=100", "train_nll", Estimate(0.1, 0.05, 0.15, 3), 1000.0, 0)
    >>> good = AnnealingResult("parity", "schedule=adaptive", "train_nll", Estimate(0.12, 0.1, 0.14, 3), 1200.0, 0)
    >>> holds(good, [best]), holds(best, [AnnealingResult("parity", "k=10", "train_nll", Estimate(0.01, 0.0, 0.02, 3), 1000.0, 0)])
    (True, False)
    """
    best = best_of(others)
    fast = adaptive.updates <= SLOWER * best.updates or math.isinf(best.updates)
    return adaptive.final.mean <= max(best.final.high, best.final.mean) and fast and not adaptive.diverged


def best_of(ks: list[AnnealingResult]) -> AnnealingResult:
    """Return the best of several values of k: the lowest final metric, and among equals the fastest.

    >>> ks = [AnnealingResult("parity", f"k={k}", "train_nll", Estimate(1e-3, 1e-3, 1e-3, 3), 2000.0 / k, 0) for k in (1, 2)]
    >>> best_of(ks).way
    'k=2'
    """
    return min(ks, key=lambda each: (each.final.mean, each.updates))


def table(found: list[AnnealingResult]) -> str:
    """Return a table in Markdown: the best k, the front and the adaptive front for each case, and whether the last one holds."""
    lines = [
        "| case | best k of seven | its final (95 % interval) | updates to target | front | adaptive front | updates to target | holds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case in dict.fromkeys(each.case for each in found):
        mine = {each.way: each for each in found if each.case == case}
        ks = [each for way, each in mine.items() if way.startswith("k=")]
        adaptive = mine.get("schedule=adaptive")
        if len(ks) < len(KS) or adaptive is None:
            continue
        best = best_of(ks)
        front = next((each for way, each in mine.items() if "schedule=front" in way), None)
        cells = [
            case, best.way[2:], _show(best), show_count(best.updates), _show(front) if front else "", _show(adaptive), show_count(adaptive.updates),
            "yes" if holds(adaptive, ks) else "no",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def every_way(found: list[AnnealingResult]) -> str:
    """Return a table in Markdown with the results of every way in every case: the final metric, and the updates to the target.

    >>> print(every_way([AnnealingResult("parity", "k=100", "train_nll", Estimate(0.1, 0.05, 0.15, 3), 1000.0, 0)]))
    | | parity |
    |---|---|
    | k=100 | 0.100 (0.0500 – 0.150); 1,000 |
    <BLANKLINE>
    """
    cases = list(dict.fromkeys(each.case for each in found))
    rows: dict[str, dict[str, str]] = {}
    for each in found:
        way = each.way.rpartition("schedule=")[2]  # a front has another horizon in each case
        rows.setdefault(way, {})[each.case] = f"{_show(each)}; {show_count(each.updates)}"
    lines = [f"| | {' | '.join(cases)} |", "|---" * (len(cases) + 1) + "|"]
    lines += [f"| {way} | {' | '.join(mine.get(case, '') for case in cases)} |" for way, mine in rows.items()]
    return "\n".join(lines) + "\n"


def _show(found: AnnealingResult) -> str:
    lost = f", {found.diverged} diverged" if found.diverged else ""
    return f"{show_metric(found.metric, found.final.mean)} ({show_interval(found.metric, found.final.low, found.final.high)}){lost}"
