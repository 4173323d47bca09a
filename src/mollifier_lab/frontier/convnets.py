"""Convolutional networks without shortcuts and without normalisation: the plain twins of three ResNets on CIFAR-10, reduced, trained in several ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from mollifier_lab.frontier.best import best_of
from mollifier_lab.frontier.twins import DEPTHS
from mollifier_lab.frontier.ways import drawn_variants, spread
from mollifier_lab.variants import Variant

UPDATES, TRIALS = 1500, 3
# reduced: half of the channels, less than half of the images, eight passes over them
COMMON: dict[str, Any] = {"width": 8, "train": 20_000, "batch": 100, "clip": 1.0, "evaluate_every": 500}
SMOKE = {"updates": 4, "evaluate_every": 4, "width": 2, "train": 200, "batch": 20, "recalibrate": 1}
_BARE, _FRONT = {"normalised": False}, {"schedule": "front"}
# the way, its method and its settings
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "residual + batch norm (stay)": ("residual", {}),
    "batch norm (stays)": ("plain", {}),
    "plain": ("plain", _BARE),
    "delta-orthogonal": ("plain", {**_BARE, "init": "delta-orthogonal"}),
    "mollified, front": ("mollified", {**_BARE, **_FRONT}),
    "mollified, front, delta-orthogonal": ("mollified", {**_BARE, **_FRONT, "init": "delta-orthogonal"}),
    "copy only, front": ("copy", {**_BARE, **_FRONT}),
    "expected values, front": ("mollified-deterministic", {**_BARE, **_FRONT}),
}


class Deployed(NamedTuple):
    """The test error of the deployed network, for the trial with the lowest validation error."""

    depth: int
    way: str
    test_error: float


def make(out: Path, *, smoke: bool = False, **pool: Any) -> list[Deployed]:
    """Run what is missing, in a folder ``runs/convnets/DEPTH`` for each depth.

    Args:
        out: The folder of the frontier.
        smoke: Whether to use tiny networks and a few updates, only to show that it works.
        **pool: The same as for `mollifier_lab.study.compare`.
    """
    common = {"updates": UPDATES, **COMMON, **(SMOKE if smoke else {})}
    found = []
    for depth in DEPTHS:
        trials = {way: variants(way, common["updates"]) for way in WAYS}
        folder = out / "runs" / "convnets" / f"{depth:03d}"
        errors = best_of("cifar10", trials, folder, metric="error", changes={**common, "depth": depth}, command="mollifier frontier convnets", **pool)  # fmt: skip
        found += [Deployed(depth, way, error) for way, error in errors.items()]
    return found


def variants(way: str, updates: int = UPDATES) -> list[Variant]:
    """Return the trials of a way: trial n has the same learning rate for all.

    >>> [str(each) for each in variants("plain")]
    ['plain:lr=0.00316,normalised=false', 'plain:lr=0.0316,normalised=false', 'plain:lr=0.316,normalised=false']
    """
    method, changes = WAYS[way]
    return drawn_variants(method, changes, spread({"lr": (1e-3, 1.0, "log")}, TRIALS), updates)


def table(found: list[Deployed]) -> str:
    """Return a table in Markdown: test errors of single runs.

    >>> print(table([Deployed(20, "plain", 0.451)]).splitlines()[-1])
    | plain | 45.1 % |
    """
    depths = list(dict.fromkeys(each.depth for each in found))
    lines = [f"| | {' | '.join(f'{depth} layers' for depth in depths)} |", "|---|" + "---|" * len(depths)]
    for way in dict.fromkeys(each.way for each in found):
        errors = {each.depth: each.test_error for each in found if each.way == way}
        lines.append(f"| {way} | {' | '.join(f'{100 * errors[depth]:.1f} %' for depth in depths)} |")
    return "\n".join(lines) + "\n"
