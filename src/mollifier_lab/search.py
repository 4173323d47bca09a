"""Search every method in the same way: trial number n has the same learning rate for all methods, whatever else they draw.

A trial is a run in a folder of its own, so a search that was killed continues exactly where it was. Optuna's database records it, so that Optuna's
tools can read it. Trials are compared by the metric of the task's curve, for the plain network at the end of the run; on a task with a validation
set it is measured there. A trial never looks at the test set: no number of it is computed.

    search.json         task, method, number of trials, ranges, settings of all trials; at the end, the best trial
    search.db           Optuna's record, unless another database is named
    trial-0000/         a run, see `mollifier_lab.runs`
    trials.csv          one row per trial
    best.json           the settings of the best trial: `mollifier train TASK --config best.json`
"""

from __future__ import annotations

import contextlib
import json
import random
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, get_args

import filelock

from mollifier_lab import imports as code
from mollifier_lab.errors import Interrupted, LabError, pick
from mollifier_lab.files import shown
from mollifier_lab.job import Job, Outcome
from mollifier_lab.methods import method_for
from mollifier_lab.pool import Pool
from mollifier_lab.pool_options import PoolOptions, pool_flags
from mollifier_lab.pruning import Name, Pruning, make
from mollifier_lab.runs import SEARCH, RunFolder
from mollifier_lab.settings import KNOBS, TASKS, Range, RunConfig
from mollifier_lab.study import (
    MANY,
    check_data_there,
    check_folders,
    check_holds_no_run,
    describe,
    how_far,
    run_missing,
)
from mollifier_lab.trials import End, end, open_trials, without_password
from mollifier_lab.variants import Changes, parse_changes, show as as_word

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


class AllDiverged(LabError):
    """Every trial diverged, so there is no best."""


@dataclass(frozen=True)
class Best:
    """The best trial of a search.

    Attributes:
        number: Of the trial.
        metric: The metric that was compared.
        value: Its value.
        config: All its settings.
        path: The best.json that contains them.
        trials: The number of trials with each outcome: done, diverged, failed, left.
    """

    number: int
    metric: str
    value: float
    config: RunConfig
    path: Path
    trials: dict[str, int]


def search(
    task: str,
    method: str,
    trials: int,
    out: str | Path,
    *,
    preset: str = "paper",
    changes: Changes = (),
    seed: int = 0,
    storage: str | None = None,
    allow_other_data: bool = False,
    pruner: Name = "none",
    **where: Unpack[PoolOptions],
) -> Best:
    """Search a method's settings at random, or continue such a search.

    Args:
        task: The name of the task.
        method: The name of the method.
        trials: The number of trials in all, including those of an earlier search in that folder.
        out: The folder of the search. Several machines that share it, and name one database, share the work.
        preset: The preset to start from.
        changes: Settings of all trials, by name or as ``name=value``; these are not drawn.
        seed: The seed of the search and of its runs.
        storage: The URL of Optuna's database; SQLite in the folder by default.
        allow_other_data: Whether to accept data files that are not the published ones.
        pruner: Ends unpromising trials early: ``median`` or ``halving``, Optuna's pruners. Which trials are ended then depends on the
            order in which they run, and therefore on the number of workers.
        **where: ``data``, ``workers``, ``backend``, ``address``, ``threads``, ``precision``, ``show`` and ``logger``, as for `mollifier_lab.pool.Pool`.

    Returns:
        The best trial; its settings are also in best.json.

    Raises:
        LabError: If something is not understood, the folder or the database contains another search, or no trial succeeded
            (`AllDiverged` if that is the reason).
        Interrupted: After Ctrl-C; runs on this machine have saved.
    """
    out = Path(out).resolve()
    common = parse_changes(changes, task)
    space = search_space(task, method, common)
    check_trials(trials)
    url, title = storage or f"sqlite:///{out / 'search.db'}", f"{task}-{method}-{preset}-{seed}"
    make(pruner, 0)
    pruning = Pruning(pruner, url, title) if pruner != "none" else None
    pool = Pool(pruning=pruning, **where)
    jobs = [
        Job(replace(RunConfig.make(task, method, seed, preset, **{**common, **draw(space, seed, number)}), trial=True, other_data=allow_other_data), out / f"trial-{number:04d}")
        for number in range(trials)
    ]  # fmt: skip
    check_holds_no_run(out)
    check_folders(jobs, pool.precision)
    check_data_there(pool, jobs)
    out.mkdir(parents=True, exist_ok=True)
    base = json.loads(RunConfig.make(task, method, seed, preset, **common).to_json())
    facts = base.pop("settings") | base | {"drawn": {name: list(each) for name, each in space.items()}}
    facts |= {"pruner": pruner} if pruning else {}  # for records from before there was a pruner
    told: dict[str, Any] = {
        "format": 1, "task": task, "method": method, "trials": trials, "drawn": facts["drawn"], "preset": preset, "changes": common, "seed": seed,
    }  # fmt: skip
    if pruning:
        told["pruner"] = pruner
    RunFolder(out).write(SEARCH, json.dumps(told, indent=2) + "\n")
    with contextlib.ExitStack() as stack:
        with filelock.FileLock(out / ".search.lock"):  # one process at a time creates the tables and counts the trials
            record = stack.enter_context(open_trials(url, title, facts))
            record.add(jobs, space)
        numbers = {job.path: number for number, job in enumerate(jobs)}
        left = [job for job, trial in zip(jobs, record.all, strict=False) if end(trial) == "left"]

        def line(outcome: Outcome) -> str:
            record.tell(numbers[outcome.job.path], outcome)
            RunFolder(out).write("trials.csv", record.csv())
            # the task's headline may be of the test set, which must not be seen before the search is over
            return describe(outcome, f"trial {numbers[outcome.job.path]}", outcome.job.config.settings.curve)

        for job in left:  # done in a search that was killed before it could record it
            if RunFolder(job.path).status == "done":
                line(Outcome(job, "found"))
        try:
            run_missing(pool, left, line)
        except Interrupted:
            command = search_command(
                task, method, trials, out, preset=preset, changes=common, seed=seed, storage=storage,
                allow_other_data=allow_other_data, pruner=pruner, **where,
            )  # fmt: skip
            raise Interrupted(f"{how_far(jobs, pool.address)}. To continue: {command}") from None
        record.check(jobs, url)
        RunFolder(out).write("trials.csv", record.csv())
        best = _best(out, record.all[:trials], jobs)
        told["best"] = {"trial": best.number, "metric": best.metric, "value": best.value, "outcomes": best.trials}
        RunFolder(out).write(SEARCH, json.dumps(told, indent=2) + "\n")
        return best


def check_trials(trials: int) -> None:
    """Check the number of trials.

    Raises:
        LabError: If a search cannot have that number.
    """
    if not 1 <= trials <= MANY:
        raise LabError(f"trials={trials}: expected a whole number from 1 to {MANY}")


def search_space(task: str, method: str, changes: dict[str, Any]) -> dict[str, Range]:
    """Return what is drawn: the task's settings, then the knobs of the method, without what is set.

    >>> search_space("parity", "dropout", {"gain": 1.0})
    {'lr': (0.001, 3.0, 'log'), 'dropout': (0.02, 0.5, 'linear')}
    """
    kind = pick("task", task, TASKS)
    ranges = {**kind.search, **{knob: kind.knobs.get(knob, KNOBS[knob]) for knob in method_for(method, task).knobs}}
    space = {name: each for name, each in ranges.items() if name not in changes}
    if not space:
        raise LabError(f"nothing is left to search: {', '.join(ranges)} are all set; do not set one of them")
    return space


def draw(space: dict[str, Range], seed: int, number: int) -> dict[str, float]:
    """Return the settings of a trial. Each depends only on the seed, the trial's number and its own name, so all methods get the same
    values.

    They are points of a Halton sequence that the seed shifts at random: the first eight learning rates lie in eight equal parts of the range,
    whereas independent draws would leave gaps.

    >>> plain, noisy = (draw(search_space("parity", name, {}), seed=0, number=3) for name in ("plain", "mollified"))
    >>> plain["lr"] == noisy["lr"]
    True
    >>> sorted(int(8 * draw({"lr": (0.0, 1.0, "linear")}, 0, number)["lr"]) for number in range(8))
    [0, 1, 2, 3, 4, 5, 6, 7]
    """
    found = {}
    for name, (low, high, scale) in space.items():
        shift = random.Random(f"{seed}/{name}").random()
        share = (_radical_inverse(number, _BASES.get(name, 11)) + shift) % 1.0
        found[name] = low * (high / low) ** share if scale == "log" else low + (high - low) * share
    return found


# the bases of the Halton sequence: no two settings that are searched together share one
_BASES = {
    "lr": 2,
    "gain": 3,
    "decay": 3,
    "weight_decay": 3,
    "k": 5,
    "survival": 5,
    "dropout": 5,
    "weight_std": 7,
    "c": 7,
}


def _radical_inverse(number: int, base: int) -> float:
    """Return the digits of a number, mirrored at the point.

    >>> [_radical_inverse(number, 2) for number in range(5)]
    [0.0, 0.5, 0.25, 0.75, 0.125]
    """
    value, scale = 0.0, 1.0
    while number:
        number, digit = divmod(number, base)
        scale /= base
        value += digit * scale
    return value


def search_command(
    task: str,
    method: str,
    trials: int,
    out: str | Path,
    *,
    preset: str = "paper",
    changes: Changes = (),
    seed: int = 0,
    storage: str | None = None,
    allow_other_data: bool = False,
    pruner: Name = "none",
    **where: Unpack[PoolOptions],
) -> str:
    """Return the command that starts or continues a search, without a database's password; for the arguments see `search`.

    >>> search_command("ptb", "copy", 20, "out", preset="quick", changes=["decay=0.5"], workers=2)
    'mollifier search ptb --method copy --trials 20 --preset quick --set decay=0.5 --seed 0 --out out --workers 2'
    """
    words = ["mollifier", "search", task, "--method", method, "--trials", str(trials), "--preset", preset]
    if settings := parse_changes(changes, task):
        words += ["--set", *(f"{name}={as_word(value)}" for name, value in settings.items())]
    words += ["--seed", str(seed), "--out", shown(out)]
    words += ["--storage", without_password(storage)] if storage else []
    words += pool_flags(where)
    words += ["--pruner", pruner] if pruner != "none" else []
    words += ["--allow-other-data"] if allow_other_data else []
    words += code.flags()
    return shlex.join(words)


def _best(out: Path, found: list[FrozenTrial], jobs: list[Job]) -> Best:
    ends = list(map(end, found))
    counts = {name: ends.count(name) for name in get_args(End) if name != "pruned" or name in ends}
    good = [trial for trial in found if end(trial) == "done"]
    if not good:
        told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        kind = AllDiverged if counts["diverged"] == len(found) else LabError
        raise kind(f"{out}: no trial succeeded ({told}); see failure.txt in their folders")
    best = min(good, key=lambda trial: (trial.value, trial.number))
    config, path = replace(jobs[best.number].config, trial=False), out / "best.json"
    RunFolder(out).write(path.name, config.to_json())
    return Best(best.number, config.settings.curve, float(best.value or 0.0), config, path, counts)
