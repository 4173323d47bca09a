"""Settings that every task has: one flat dataclass, so that a flag, a search and a file use the same names. No torch here."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import ClassVar, Literal

from mollifier_lab.errors import LabError
from mollifier_lab.settings.reported import Reported

Schedule = Literal["exponential", "linear", "square_root", "cosine", "front", "adaptive"]
Optimizer = Literal["sgd", "nesterov", "rmsprop", "adam"]
Push = Literal["paper", "odds"]
Projection = Literal["auto", "learned", "fixed", "always"]
Range = tuple[float, float, Literal["log", "linear"]]

# Drawn for every method that has the knob, on every task; the ranges are wide on purpose.
KNOBS: dict[str, Range] = {
    "k": (1.0, 1000.0, "log"),
    "c": (1.0, 100.0, "log"),
    "survival": (0.5, 0.95, "linear"),
    "dropout": (0.02, 0.5, "linear"),
    "weight_std": (1e-3, 1.0, "log"),
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a network is trained; each task adds its own settings.

    Every class variable is a fact about the task: the metric of its curve and of its table (lower is always better), the target for
    'updates to target', the table's value for a network that guesses (a diverged run counts as this), what the paper reports, its
    presets, and what a search draws (including methods' knobs for which `KNOBS` does not fit the task). The first four can be given in the
    class statement, and the first line of the docstring is the summary:

    >>> @dataclass(frozen=True, kw_only=True)
    ... class Sorting(Settings, curve="valid_loss", headline="test_error", target=0.1, chance=0.5):
    ...     'Sorting numbers.'
    >>> Sorting.headline, Sorting.summary
    ('test_error', 'Sorting numbers')
    """

    curve: ClassVar[str]
    headline: ClassVar[str]
    target: ClassVar[float]
    chance: ClassVar[float]
    paper: ClassVar[tuple[Reported, ...]] = ()
    presets: ClassVar[dict[str, dict[str, object]]] = {"paper": {}}
    search: ClassVar[dict[str, Range]] = {"lr": (1e-3, 3.0, "log")}
    knobs: ClassVar[dict[str, Range]] = {}
    summary: ClassVar[str]

    optimizer: Optimizer = "nesterov"
    """The optimiser."""
    lr: float = 0.1
    """Learning rate."""
    momentum: float = 0.9
    """Momentum of SGD and RMSProp."""
    weight_decay: float = 0.0
    """Weight decay of the optimiser; it does not apply to what mollification adds: the a of activations, and projections."""
    clip: float = 0.0
    """Gradients are scaled down to at most this norm; 0: never."""
    batch: int = 128
    """Samples per update, over all devices."""
    epochs: float = 0.0
    """Passes over the training set; used only if updates is 0."""
    updates: int = 0
    """Number of updates; 0: as many as the epochs need."""
    evaluate_every: int = 0
    """Updates between two evaluations; 0: one evaluation per epoch."""
    save_every: int = 0
    """Updates between two checkpoints; 0: at each evaluation."""
    gain: float = 1.0
    """Factor on the initial weights (Glorot)."""
    converged: float = 0.0
    """The run ends early once the metric of its curve is at or below this and annealing has ended; 0: never."""
    flush_denormal: bool = True
    """Treat numbers too small for full precision as 0, on CPUs: deep plain networks produce many, and they are slow."""

    schedule: Schedule = "exponential"
    """Schedule of the levels; front and adaptive are ours, not the paper's."""
    k: float = 100.0
    """Constant of the exponential schedule: a larger k anneals more slowly."""
    horizon: float = 0.0
    """Updates after which annealing ends; 0: k decides, or the loss with adaptive (the other schedules need a horizon)."""
    front_width: float = 0.0
    """For the schedules front and adaptive: the number of windows that a layer takes to become plain; the next layer begins one window later. 0: 6, and 0.4 more for each block beyond 50."""
    v: Literal["train", "valid", "one"] = "train"
    """The quantity whose moving average drives annealing: the training loss, the validation loss at the last evaluation, or the constant 1. Only for annealed methods."""
    loss_average: float = 0.99
    """Decay of that average per update; 0 fixes v to 1. With adaptive, the default 0.99 means its own default, 0.95."""
    stop_at: float = -1.0
    """Annealing ends when the sum of the levels falls to this; negative: 0.05 per block; 0: never."""
    then: Literal["plain", "hold"] = "plain"
    """What happens when annealing ends: all levels are set to 0, or stay as they are. Only for annealed methods."""
    p_min: float = 0.0
    """Lower bound of the levels during annealing. Only for annealed methods."""
    anneal_every: int = 1
    """Updates per tick of the annealing clock."""
    copy: bool = True
    """Whether units copy the unit below. Only for methods that have the copy, which this can turn off."""
    projection: Projection = "auto"
    """How the copy is brought to the width of a layer that narrows: learned, or fixed (signed sums, no parameters; the default of mollify). always: learned, also where the layer widens. auto: learned. Only for methods that have the copy."""
    push: Push = "paper"
    """How noise pushes activations: c p σ |ξ|, or with the odds, c p/(1 - p) σ |ξ|. Only for methods with noisy activations."""
    c: float = 20.0
    """Factor on the noise of activations."""
    survival: float = 0.5
    """Stochastic depth: the probability that the last layer is kept; it falls linearly from 1 at the input."""
    dropout: float = 0.2
    """Dropout: the probability that a unit is dropped."""
    weight_std: float = 0.1
    """Weight noise: the standard deviation at level 1."""

    def __init_subclass__(
        cls,
        *,
        curve: str | None = None,
        headline: str | None = None,
        target: float | None = None,
        chance: float | None = None,
    ) -> None:
        facts = {"curve": curve, "headline": headline, "target": target, "chance": chance}
        for name, value in facts.items():
            if value is not None:
                setattr(cls, name, value)
        if cls.__doc__ and "summary" not in vars(cls):
            cls.summary = cls.__doc__.partition("\n")[0].rstrip(".")

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, float) and not math.isfinite(value):
                raise LabError(f"{each.name}={value}: expected a finite number")
            most = (
                1e30 if isinstance(value, float) else 1e15
            )  # torch converts them to float32, and whole numbers must stay exact
            if isinstance(value, int | float) and abs(value) > most:
                raise LabError(f"{each.name}={value!s:.20}: expected a number of at most {most:.0e}")
        wrong = [
            f"{name}={getattr(self, name)!r}: expected {expected}"
            for name, expected, good in (
                ("lr", "a positive number", self.lr > 0 and math.isfinite(self.lr)),
                ("momentum", "a number in [0, 1)", 0 <= self.momentum < 1),
                ("weight_decay", "a number >= 0", self.weight_decay >= 0),
                ("clip", "a number >= 0", self.clip >= 0),
                ("batch", "a whole number >= 1", self.batch >= 1),
                ("epochs", "a positive number where updates is 0", self.updates > 0 or self.epochs > 0),
                ("updates", "a whole number >= 0", self.updates >= 0),
                ("evaluate_every", "a whole number >= 0", self.evaluate_every >= 0),
                ("converged", "a number >= 0", self.converged >= 0),
                ("save_every", "a whole number >= 0", self.save_every >= 0),
                ("gain", "a positive number", self.gain > 0),
                ("k", "a positive number", self.k > 0),
                (
                    "horizon",
                    "a positive number with this schedule",
                    self.horizon > 0 or self.schedule in ("exponential", "adaptive"),
                ),
                ("front_width", "a number >= 0", 0 <= self.front_width < math.inf),
                ("loss_average", "a number in [0, 1)", 0 <= self.loss_average < 1),
                ("loss_average", "a number above 0 where v is 'valid'", self.loss_average > 0 or self.v != "valid"),
                ("p_min", "a number in [0, 1)", 0 <= self.p_min < 1),
                ("anneal_every", "a whole number >= 1", self.anneal_every >= 1),
                ("c", "a number >= 0", self.c >= 0),
                ("survival", "a number in (0, 1]", 0 < self.survival <= 1),
                ("dropout", "a number in [0, 1)", 0 <= self.dropout < 1),
                ("weight_std", "a number >= 0", self.weight_std >= 0),
                *self.checks(),
            )
            if not good
        ]
        if wrong:
            raise LabError("; ".join(wrong))

    def describe(self) -> str:
        """Describe what these settings run, in one line; `summary` describes the task's defaults."""
        return self.summary

    def network_size(self) -> tuple[int, int]:
        """Return a lower bound of the number of layers and weights of the network; zeros if it is not known."""
        return 0, 0

    def checks(self) -> list[tuple[str, str, bool]]:
        """Return a task's own checks: name, what is expected, and whether it holds."""
        return []
