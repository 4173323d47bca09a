"""The studies of the reproduction as data: what is compared, how it is searched, over how many seeds. No torch here.

Every method of a study gets the same number of random trials with the same draws. Every study of a plain network contains controls: plain at
gain 1, plain at the best gain that the search finds, batch norm alone, residual, residual + batch norm.

>>> row = STUDIES["pentomino"]
>>> row.seeds, row.trials, "plain:gain=1" in row.methods
(5, 8, True)
>>> row.smoke_version().seeds
2
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

CONTROLS = ("plain:gain=1", "plain", "batch-norm", "residual", "residual-bn")
CORES = 2  # the number of cores for the estimates
TRIALS = 8


@dataclass(frozen=True, kw_only=True)
class Study:
    """One comparison of the reproduction.

    Attributes:
        name: The name on the command line.
        task: The task.
        claim: The claim of the paper that is checked.
        methods: The methods and variants that are compared.
        seeds: The number of seeds of each.
        hours: A rough duration of one run on one thread of a CPU of 2020, only for the estimate.
        preset: The preset to start from.
        changes: Settings that are changed for all runs.
        trials: The number of trials of the search for each method; 0 for no search.
        trial_changes: Settings that are changed for the trials only.
        trial_part: The duration of a trial as a fraction of that of a run.
        best_of: The study whose searches choose the settings of this one.
        smoke: Settings with which a run takes seconds.
        here: Whether it is for a machine without a GPU.
    """

    name: str
    task: str
    claim: str
    methods: tuple[str, ...]
    seeds: int
    hours: float
    preset: str = "paper"
    changes: Mapping[str, Any] = field(default_factory=dict)
    trials: int = TRIALS
    trial_changes: Mapping[str, Any] = field(default_factory=dict)
    trial_part: float = 0.0
    best_of: str = ""
    smoke: Mapping[str, Any] = field(default_factory=dict)
    here: bool = True

    @property
    def estimate(self) -> float:
        """Return the hours of all its runs and trials, on `CORES` cores with one run on each."""
        return len(self.methods) * (self.seeds + self.trials * self.trial_part) * self.hours / CORES

    def smoke_version(self) -> Study:
        """Return the same study with the same methods, so small that it only shows that everything works."""
        short = {name: self.smoke[name] for name in ("updates",) if name in self.smoke}
        return replace(
            self,
            changes={**self.changes, **self.smoke},
            seeds=min(self.seeds, 2),
            trials=min(self.trials, 2),
            trial_changes=short,
        )


_MLP = {"updates": 6, "evaluate_every": 6}
_PENTOMINO = {**_MLP, "train": 400, "width": 20}
_PARITY = {**_MLP, "samples": 200, "width": 20}
_MNIST = {**_MLP, "width": 16, "batch": 100}
_PTB = {"updates": 8, "evaluate_every": 8, "tokens": 4000, "width": 8, "steps": 10}
_SHORT_PTB = {"tokens": 200_000, "epochs": 3.0, "decay_after": 2}
_CIFAR = {"updates": 4, "evaluate_every": 4, "train": 200, "width": 2, "depth": 20, "batch": 20, "recalibrate": 1}
_FIXED = {"updates": 50_000, "evaluate_every": 500, "converged": 1e-3}

_ALL = (
    Study(
        name="pentomino", task="pentomino", claim="mollified 75.15 % accuracy, residual 69.5 %, after 100 epochs",
        methods=(*CONTROLS, "mollified", "mollified-residual"), seeds=5, hours=0.2, trial_changes={"epochs": 25.0}, trial_part=0.25,
        smoke=_PENTOMINO,
    ),
    Study(
        name="pentomino-fixed", task="pentomino", claim="our addition: the first layer, which narrows, copies by a fixed projection instead of a learned one",
        methods=("mollified:projection=fixed", "mollified-residual:projection=fixed"), seeds=5, hours=0.13, trial_changes={"epochs": 25.0}, trial_part=0.25,
        smoke=_PENTOMINO,
    ),
    Study(
        name="parity-1000", task="parity", claim="mollified converges faster than residual + batch norm; plain does not learn",
        methods=(*CONTROLS, "mollified", "mollified-residual"), seeds=5, hours=0.06, changes={"samples": 1000, **_FIXED},
        trials=16, trial_changes={"updates": 5000}, trial_part=0.1, smoke=_PARITY,
    ),
    Study(
        name="parity-10000", task="parity", claim="the same with more samples to learn: the paper does not give their number",
        methods=(*CONTROLS, "mollified", "mollified-residual"), seeds=5, hours=0.07, changes={"samples": 10_000, **_FIXED},
        trials=16, trial_changes={"updates": 5000}, trial_part=0.1, smoke=_PARITY,
    ),
    Study(
        name="parity-printed", task="parity", claim="the same at the printed learning rate of 1e-3, nothing searched, 102,000 updates",
        methods=("plain", "residual-bn", "mollified", "mollified:k=3000"), seeds=2, hours=0.12, trials=0, changes={"converged": 1e-3}, smoke=_PARITY,
    ),
    Study(
        name="parity-variable-20", task="parity", claim="our addition: always new samples of variable length, 20 bits",
        methods=(*CONTROLS, "mollified"), seeds=3, hours=0.015, preset="variable", trials=16, trial_part=1.0, smoke=_PARITY,
    ),
    Study(
        name="parity-variable-40", task="parity", claim="our addition: always new samples of variable length, 40 bits",
        methods=(*CONTROLS, "mollified"), seeds=3, hours=0.015, preset="variable", changes={"bits": 40, "updates": 5000}, trials=16, trial_part=1.0,
        smoke=_PARITY,
    ),
    Study(
        name="parity-prefix-20", task="parity", claim="our addition: the same, except that the first bits are used instead of any, 20 bits",
        methods=(*CONTROLS, "mollified"), seeds=3, hours=0.015, preset="prefix", trials=16, trial_part=1.0, smoke=_PARITY,
    ),
    Study(
        name="parity-prefix-40", task="parity", claim="our addition: the same, except that the first bits are used instead of any, 40 bits",
        methods=(*CONTROLS, "mollified"), seeds=3, hours=0.015, preset="prefix", changes={"bits": 40, "updates": 5000}, trials=16, trial_part=1.0,
        smoke=_PARITY,
    ),
    Study(
        name="mnist-72", task="mnist", claim="72 layers train when mollified; batch norm and residual connections make little difference",
        methods=(*CONTROLS, "mollified", "mollified-bn", "mollified-residual"), seeds=5, hours=0.08, preset="published",
        changes={"c": 100.0, "epochs": 50.0}, trial_changes={"epochs": 25.0}, trial_part=0.5, smoke=_MNIST,
    ),
    Study(
        name="mnist-appendix", task="mnist", claim="6 layers, RMSProp; Monte-Carlo weight noise does not help",
        methods=(*CONTROLS, "mollified", "weight-noise"), seeds=5, hours=0.03, trials=16, trial_changes={"epochs": 20.0}, trial_part=0.2, smoke=_MNIST,
    ),
    Study(
        name="mnist-fixed", task="mnist", claim="our addition: mnist-appendix with a fixed projection in the first layer, which narrows",
        methods=("mollified:projection=fixed",), seeds=5, hours=0.03, trials=16, trial_changes={"epochs": 20.0}, trial_part=0.2, smoke=_MNIST,
    ),
    # 30 layers: a depth at which the mollified network is known to train, so that the forms can differ
    Study(
        name="mnist-schedules", task="mnist", claim="exponential decay is the best of the schedules; linear and square root need c = 20",
        methods=("mollified:c=100", "mollified:c=20,horizon=2500,schedule=linear", "mollified:c=20,horizon=2500,schedule=square_root",
                 "mollified:c=20,horizon=2500,schedule=cosine"),
        seeds=5, hours=0.04, preset="published", changes={"depth": 30, "lr": 1e-3, "epochs": 50.0}, trials=0, smoke=_MNIST,
    ),
    Study(
        name="mnist-deterministic", task="mnist", claim="training on expected values is nearly as fast as on samples",
        methods=("mollified", "mollified-deterministic", "mollified-bn", "copy"), seeds=5, hours=0.04, preset="published",
        changes={"depth": 30, "lr": 1e-3, "epochs": 50.0}, trials=0, smoke=_MNIST,
    ),
    Study(
        name="ptb-2", task="ptb", claim="perplexity 123.6 mollified, 128.4 plain, 2 layers",
        methods=("plain", "paper-lstm", "mollified"), seeds=3, hours=0.75, trial_changes=_SHORT_PTB, trial_part=0.05, smoke=_PTB,
    ),
    # written after the first look at ptb-2: the values are those that its search chose for mollified
    Study(
        name="ptb-2-same-rate", task="ptb", claim="our addition: plain with the learning rate and the decay that the search of ptb-2 chose for mollified",
        methods=("plain:decay=0.4499856045353766,lr=1.3368755073206977",), seeds=3, hours=0.75, trials=0, smoke=_PTB,
    ),
    Study(
        name="ptb-2-controls", task="ptb", claim="what of it the copy alone does, and what a residual connection does",
        methods=("copy", "residual"), seeds=1, hours=0.75, trial_changes=_SHORT_PTB, trial_part=0.05, smoke=_PTB,
    ),
    Study(
        name="ptb-3", task="ptb", claim="perplexity 115.7 mollified, 119.4 plain, 3 layers (published version)",
        methods=("plain", "mollified"), seeds=1, hours=1.1, preset="published", trials=0, best_of="ptb-2", smoke=_PTB,
    ),
    Study(
        name="ptb-3-same-rate", task="ptb", claim="our addition: plain with the learning rate and the decay that ptb-3 takes from ptb-2 for mollified",
        methods=("plain:decay=0.4499856045353766,lr=1.3368755073206977",), seeds=1, hours=1.1, preset="published", trials=0, smoke=_PTB,
    ),
    Study(
        name="characters", task="characters", claim="training loss 0.128 mollified, 0.148 plain, at 80,000 updates, on vectors of its own",
        methods=("plain", "mollified"), seeds=2, hours=0.75, trial_changes={"updates": 8000}, trial_part=0.1,
        smoke={**_MLP, "words": 3000, "valid": 100, "width": 16, "embedding": 8},
    ),
    Study(
        name="cifar10-reduced", task="cifar10", claim="accuracy 92.45 % mollified, 91.78 % ResNet, 93.25 % stochastic depth; here with 20 layers",
        methods=("residual", "stochastic-depth", "mollified-residual"), seeds=1, hours=1.7, changes={"depth": 20, "epochs": 30.0},
        trial_changes={"width": 8, "train": 10_000, "epochs": 5.0}, trial_part=0.012, smoke=_CIFAR,
    ),
    Study(
        name="cifar10", task="cifar10", claim="the same at the full 110 layers and 500 epochs: for a GPU",
        methods=("residual", "stochastic-depth", "mollified-residual"), seeds=1, hours=150.0, trials=0, smoke=_CIFAR, here=False,
    ),
)  # fmt: skip
STUDIES: dict[str, Study] = {study.name: study for study in _ALL}
