"""What the map of the frontier compares, as data. No torch here.

Every way gets the same updates, the same decay of the learning rate, the same clipping and the same number of trials; trial n has the same
learning rate for all of them.

>>> [variant.changes["lr"] for variant in BY_NAME["residual"].variants(30, "sigmoid")] == [
...     variant.changes["lr"] for variant in BY_NAME["front"].variants(30, "sigmoid")
... ]
True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mollifier_lab.settings import Range
from mollifier_lab.variants import Variant

DEPTHS = (6, 10, 20, 30, 50, 72, 100, 150, 200)
ACTIVATIONS = ("sigmoid", "tanh", "hard-sigmoid", "relu", "step")
UPDATES, TRIALS, SEEDS = 4000, 4, 3
ANNEAL = 0.8  # fraction of the updates, for what is annealed over a horizon; the learning rate falls over the same part
SMOKE = {"updates": 6, "evaluate_every": 6, "width": 8}
COMMON: Mapping[str, Any] = {
    "optimizer": "adam", "batch": 100, "updates": UPDATES, "evaluate_every": 1000, "clip": 0.5, "lr_end": 0.1, "lr_over": ANNEAL,
}  # fmt: skip
TRAINED = 0.1  # test error below which a network counts as trained
LOST = 0.5  # validation error above which it has learnt next to nothing

# deep plain networks need 1e-4, mollified ones 1e-3: the same wide range for all
_LR: dict[str, Range] = {"lr": (3e-5, 3e-3, "log")}
_GAIN: dict[str, Range] = {"gain": (1.0, 4.0, "linear")}
_NEAR_ONE: dict[str, Range] = {"gain": (1.0, 1.2, "linear")}  # times the critical gain of the activation
_K: dict[str, Range] = {"k": (100.0, 10_000.0, "log")}
_FRONT = {"schedule": "front"}
_SLOPED = ACTIVATIONS[:-1]  # a step has no slope
_SMOOTH = ACTIVATIONS[:2]


def spread(space: Mapping[str, Range], trials: int) -> list[dict[str, float]]:
    """Spread trials evenly. Each range is divided into as many equal parts as there are trials, and each setting takes the middle of each
    part once, in an order of its own.

    >>> spread({"lr": (1e-4, 1e-1, "log"), "gain": (1.0, 4.0, "linear")}, 3)
    [{'lr': 0.000316, 'gain': 2.5}, {'lr': 0.00316, 'gain': 3.5}, {'lr': 0.0316, 'gain': 1.5}]
    """
    found: list[dict[str, float]] = []
    for trial in range(trials):
        values = {}
        for number, (name, (low, high, scale)) in enumerate(space.items()):
            share = ((trial + number) % trials + 0.5) / trials
            values[name] = low * (high / low) ** share if scale == "log" else low + (high - low) * share
        found.append({name: float(f"{value:.3g}") for name, value in values.items()})
    return found


def drawn_variants(
    method: str, changes: Mapping[str, Any], draws: Sequence[Mapping[str, Any]], updates: float
) -> list[Variant]:
    """Return a variant per draw; a front gets its horizon, the fraction `ANNEAL` of the updates.

    >>> [str(each) for each in drawn_variants("mollified", {"schedule": "front"}, [{"lr": 0.1}], 1000)]
    ['mollified:horizon=800,lr=0.1,schedule=front']
    """
    front = {"horizon": ANNEAL * updates} if changes.get("schedule") == "front" else {}
    return [Variant(method, dict(sorted({**changes, **front, **each}.items()))) for each in draws]


@dataclass(frozen=True)
class Way:
    """A way to train a deep network.

    Attributes:
        name: The name in tables and files.
        title: The name in pictures.
        method: The method of the laboratory.
        changes: Its settings, in addition to `COMMON`.
        drawn: What its trials vary, in addition to the learning rate.
        activations: The activations to which it applies.
        cost: Rough milliseconds per layer and update on one thread of a CPU of 2020, only for the estimate.
    """

    name: str
    title: str
    method: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    drawn: Mapping[str, Range] = field(default_factory=dict)
    activations: tuple[str, ...] = ACTIVATIONS
    cost: float = 0.25

    def variants(self, depth: int, activation: str, updates: int = UPDATES) -> list[Variant]:
        """Return its trials for a cell of the map."""
        changes = {"depth": depth, "activation": activation, **self.changes}
        return drawn_variants(self.method, changes, spread({**_LR, **self.drawn}, TRIALS), updates)


WAYS = (
    Way("plain, gain 1", "plain, gain 1", "plain", {"gain": 1.0}),
    Way("plain, best gain", "plain, best gain", "plain", drawn=_GAIN),
    Way("orthogonal, best gain", "orthogonal, best gain", "plain", {"init": "orthogonal"}, _GAIN),
    Way("isometric", "isometric weights", "plain", {"init": "isometric"}, _NEAR_ONE, activations=_SLOPED),
    Way("lsuv", "LSUV", "plain", {"init": "lsuv"}),
    Way("dks", "tailored activations (DKS)", "plain", {"init": "dks"}, activations=_SMOOTH),
    Way("batch norm", "batch norm (stays)", "batch-norm", cost=0.35),
    Way("residual", "residual (stays)", "residual", cost=0.3),
    Way("highway", "highway (stays)", "highway", cost=0.5),
    Way("paper", "mollified, paper's schedule", "mollified", drawn=_K, cost=0.55),
    Way("front", "mollified, front", "mollified", _FRONT, cost=0.55),
    Way("adaptive", "mollified, adaptive", "mollified", {"schedule": "adaptive"}, cost=0.55),
    Way("copy, front", "copy only, front", "copy", _FRONT, activations=_SLOPED, cost=0.4),
    Way("copy, front, isometric", "copy only, front, isometric weights", "copy", {**_FRONT, "init": "isometric"}, _NEAR_ONE, activations=_SLOPED, cost=0.4),
    Way("expected, front", "expected values, front", "mollified-deterministic", _FRONT, cost=0.5),
    Way("expected, front, isometric", "expected values, front, isometric weights", "mollified-deterministic", {**_FRONT, "init": "isometric"}, _NEAR_ONE, activations=_SLOPED, cost=0.5),
)  # fmt: skip
BY_NAME = {way.name: way for way in WAYS}


def hours(activations: int = 1, cores: int = 2) -> float:
    """Return the hours for all depths of all ways, an upper bound: ways that learn nothing at two depths are not tried at greater ones.

    >>> 4 < hours() < 12
    True
    """
    seconds = sum(way.cost for way in WAYS) * 1e-3 * sum(DEPTHS) * UPDATES * TRIALS
    return seconds * activations / 3600.0 / cores
