"""End unpromising trials of a search early with Optuna's pruners. The rule is the same for every method, and off by default."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mollifier_lab.errors import LabError

if TYPE_CHECKING:
    from optuna.pruners import BasePruner

Name = Literal["none", "median", "halving"]
Judge = Callable[[int, float], bool]
STARTUP = 5  # trials that the median pruner never ends
WARMUP = 0.25  # fraction of a trial before which it is never ended


@dataclass(frozen=True)
class Pruning:
    """What a worker needs to know to ask whether its trial should continue.

    Attributes:
        name: The name of the pruner.
        url: The URL of Optuna's database.
        study: The name of Optuna's study in it.
    """

    name: Name
    url: str
    study: str

    @contextlib.contextmanager
    def judge(self, number: int, updates: int) -> Iterator[Judge]:
        """Return a function that takes an update and the curve's value there, and returns whether the trial should end.

        Args:
            number: The number of the trial.
            updates: The number of updates of the whole trial; 0 if it is not known, which means no warm-up.
        """
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        storage = optuna.storages.RDBStorage(self.url)
        try:
            study = optuna.load_study(study_name=self.study, storage=storage, pruner=make(self.name, updates))
            trial = optuna.trial.Trial(study, study.get_trials(deepcopy=False)[number]._trial_id)
            known = set(trial._get_latest_trial().intermediate_values)

            def asked(update: int, value: float) -> bool:
                if update not in known:  # a resumed trial has reported some of them before
                    trial.report(value, update)
                    known.add(update)
                return trial.should_prune()

            yield asked
        finally:
            storage.remove_session()
            storage.engine.dispose()


def make(name: str, updates: int) -> BasePruner:
    """Return Optuna's pruner of that name.

    >>> make("median", 1000)._n_warmup_steps
    250

    Raises:
        LabError: If there is no such pruner.
    """
    import optuna

    kinds: dict[str, Callable[[], BasePruner]] = {
        "none": optuna.pruners.NopPruner,
        "median": lambda: optuna.pruners.MedianPruner(STARTUP, int(WARMUP * updates)),
        "halving": optuna.pruners.SuccessiveHalvingPruner,
    }
    if name not in kinds:
        raise LabError(f"there is no pruner {name!r}; expected one of: {', '.join(kinds)}")
    return kinds[name]()
