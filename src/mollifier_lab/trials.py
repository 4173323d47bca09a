"""Optuna's record of a search: its trials, the values that were drawn and the results, which Optuna's own tools can read as well."""

from __future__ import annotations

import contextlib
import csv
import io
import math
import sqlite3
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from mollifier_lab import seal
from mollifier_lab.errors import LabError
from mollifier_lab.job import Job, Outcome
from mollifier_lab.runs import RunFolder
from mollifier_lab.settings import Range

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

End = Literal["done", "diverged", "failed", "left", "pruned"]


class Trials:
    """The trials of a search; number n is the n-th job."""

    def __init__(self, study: Study) -> None:
        self._study = study

    @property
    def all(self) -> list[FrozenTrial]:
        """Return the trials in the order of their numbers."""
        return self._study.get_trials(deepcopy=False)

    def add(self, jobs: list[Job], space: dict[str, Range]) -> None:
        """Add the trials that are missing. Optuna numbers them in the order of their arrival."""
        from optuna.distributions import BaseDistribution, FloatDistribution
        from optuna.trial import TrialState, create_trial

        distributions: dict[str, BaseDistribution] = {
            name: FloatDistribution(low, high, log=scale == "log") for name, (low, high, scale) in space.items()
        }
        for job in jobs[len(self.all) :]:
            params = {name: getattr(job.config.settings, name) for name in space}
            self._study.add_trial(create_trial(state=TrialState.RUNNING, params=params, distributions=distributions, user_attrs={"folder": job.path.name}))  # fmt: skip

    def tell(self, number: int, outcome: Outcome) -> None:
        """Record the end of a trial. If the user can correct the cause of a failure, it stays open, and the next search tries it again."""
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import TrialState

        with contextlib.suppress(UpdateFinishedTrialError):  # another process has just recorded the same
            if outcome.status == "failed":
                if not outcome.curable:
                    self._study.tell(number, state=TrialState.FAIL, skip_if_finished=True)
            elif pruned(outcome.job):
                self._study.tell(number, state=TrialState.PRUNED, skip_if_finished=True)
            else:
                self._study.tell(number, value_of(outcome.job), skip_if_finished=True)

    def check(self, jobs: list[Job], url: str) -> None:
        """Check the record against the runs themselves: a database has no checksums.

        Raises:
            LabError: If a run is damaged, or the record contradicts it.
        """
        for job, trial in zip(jobs, self.all, strict=False):
            if RunFolder(job.path).status != "done":
                continue
            drawn = {name: getattr(job.config.settings, name) for name in trial.params}
            if trial.params != drawn or (
                trial.state.is_finished() and not pruned(job) and trial.value != value_of(job)
            ):
                raise LabError(
                    f"storage {without_password(url)}: damaged: its record of trial {trial.number} contradicts {job.path}; "
                    "restore it, or remove it: it is created again from the trials"
                )

    def csv(self) -> str:
        """Return one row per trial."""
        trials = self.all
        names = list(trials[0].params)
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(["trial", "outcome", "value", *names, "folder"])
        for trial in trials:
            value = trial.value if end(trial) in ("done", "pruned") else ""
            table.writerow([trial.number, end(trial), value, *map(trial.params.get, names), trial.user_attrs["folder"]])
        return text.getvalue()


def pruned(job: Job) -> bool:
    """Return whether the trial was ended early because it was worse than the others at that point.

    Raises:
        LabError: If its records are damaged.
    """
    seal.refuse(job.path)
    result = RunFolder(job.path).json("result.json")
    return bool(result.get("pruned")) and not result["diverged"]


def value_of(job: Job) -> float:
    """Return the value of a trial that is done: infinite if it diverged.

    Raises:
        LabError: If its records are damaged.
    """
    seal.refuse(job.path)
    result = RunFolder(job.path).json("result.json")
    value = result["final"].get(job.config.settings.curve)
    return math.inf if result["diverged"] or value is None else float(value)


def end(trial: FrozenTrial) -> End:
    """Return how a trial ended: one that diverged has an infinite value, one that failed has none."""
    if not trial.state.is_finished():
        return "left"
    if trial.state.name == "PRUNED":
        return "pruned"
    if trial.value is None:
        return "failed"
    return "done" if math.isfinite(trial.value) else "diverged"


@contextlib.contextmanager
def open_trials(url: str, name: str, facts: dict[str, Any]) -> Iterator[Trials]:
    """Return the trials of that name in a database, which is created if it does not exist.

    Args:
        url: The URL of the database.
        name: The name of Optuna's study.
        facts: Everything that the trials depend on, flat, as JSON returns it.

    Raises:
        LabError: If the database cannot be used, or contains a search of that name with other facts.
    """
    import optuna
    import sqlalchemy

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        storage = optuna.storages.RDBStorage(url)
        study = optuna.create_study(storage=storage, study_name=name, load_if_exists=True)
    except (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.OptunaError, ImportError, RuntimeError) as error:
        why = " ".join(str(error.__cause__ or error).split())
        raise LabError(f"storage {without_password(url)}: {why[:300]}") from error
    try:
        there = study.user_attrs.get("search", facts)
        names = [name for name in {**there, **facts} if there.get(name) != facts.get(name)]
        if names:
            problems = [f"{each} is {there.get(each)!r} there, {facts.get(each)!r} is requested" for each in names]
            raise LabError(
                f"{without_password(url)} contains a different search named {name!r}: {'; '.join(problems)}. "
                "Nothing was run; name another folder (--out) or storage"
            )
        study.set_user_attr("search", facts)
        yield Trials(study)
    except (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.OptunaError, sqlite3.Error) as error:
        why = " ".join(str(error.__cause__ or error).split())  # a full disk, or a damaged file
        raise LabError(f"storage {without_password(url)}: {why[:300]}; the trials themselves are kept") from error
    finally:
        storage.remove_session()
        storage.engine.dispose()


def without_password(url: str) -> str:
    """Return a database's URL without its password.

    >>> without_password("mysql://me:secret@host/db")
    'mysql://me:***@host/db'
    """
    import sqlalchemy

    try:
        return sqlalchemy.make_url(url).render_as_string(hide_password=True)
    except sqlalchemy.exc.ArgumentError:
        return "(not understood)"
