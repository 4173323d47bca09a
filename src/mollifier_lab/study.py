"""Make a comparison: variants × seeds, each run in a folder of its own, on this machine or a cluster.

>>> import tempfile
>>> tiny = {"bits": 4, "width": 8, "depth": 2, "samples": 16, "updates": 4, "evaluate_every": 2}
>>> out = Path(tempfile.mkdtemp()) / "study"
>>> [run.path.relative_to(out).as_posix() for run in compare("parity", ["plain", "plain:lr=0.5"], 1, out, preset="quick", changes=tiny, show=False)]
['plain/seed-0', 'plain_lr=0.5/seed-0']

    study.json                  task, variants, seeds, preset, changes, what was tuned, command: all from the last `compare`
    VARIANT/tuned.json          the search that chose settings for this variant, if there was one
    VARIANT/seed-N/             a run, see `mollifier_lab.runs`
    VARIANT/.seed-N.lock        locked while that run is in progress
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Unpack

from mollifier_lab import imports as code
from mollifier_lab.data.checksums import check_data
from mollifier_lab.errors import Interrupted, LabError
from mollifier_lab.files import shown
from mollifier_lab.hardware import Precision
from mollifier_lab.job import Job, Outcome, different
from mollifier_lab.json_files import read_object
from mollifier_lab.memory import check_memory
from mollifier_lab.overview import Overview
from mollifier_lab.pool import Pool
from mollifier_lab.pool_options import PoolOptions, pool_flags
from mollifier_lab.progress import print_line
from mollifier_lab.report.formats import show_metric, show_seconds, show_unfinished, title
from mollifier_lab.runs import RunFolder
from mollifier_lab.tuned import Tuned
from mollifier_lab.variants import Changes, Variant, parse_changes, parse_variants, show as as_word

FORMAT = 1
MANY = 10_000  # runs or trials of one command: more are probably a typing error
SEARCH_SEED = 1000  # of a search before a comparison: none of the seeds that are compared


def compare(
    task: str,
    variants: Sequence[str | Variant],
    seeds: int | Sequence[int],
    out: str | Path,
    *,
    preset: str = "paper",
    changes: Changes = (),
    tuned: Mapping[str, Tuned] | None = None,
    command: str = "",
    allow_other_data: bool = False,
    **where: Unpack[PoolOptions],
) -> list[RunFolder]:
    """Run what is missing from a comparison: finished runs are left alone, started ones continue, failed ones are tried again.

    A run that fails leaves a failure.txt in its folder and stops no other run. Several calls at once in one folder share the work. A run's
    numbers depend on its config and the number of threads, not on where it runs.

    Args:
        task: The name of the task.
        variants: ``method`` or ``method:setting=value,…``; if there are none, the task's default methods.
        seeds: The number of seeds, from 0; or a list of seeds.
        out: The folder of the comparison; on a cluster, on storage that all machines share.
        preset: The preset to start from.
        changes: Settings of all runs, by name or as ``name=value``.
        tuned: The values that searches chose, by variant. They take precedence over ``changes``, and are written next to the runs.
        command: The command that makes it, if it is not `study_command`.
        allow_other_data: Whether to accept data files that are not the published ones.
        **where: ``data``, ``workers``, ``backend``, ``address``, ``threads``, ``precision``, ``show`` and ``logger``, as for `mollifier_lab.pool.Pool`.

    Returns:
        The runs, variant by variant; `RunFolder.status` tells the state of each.

    Raises:
        LabError: If something is not understood, or a folder contains a run other than the requested one. Nothing has been run then.
        Interrupted: After Ctrl-C; runs on this machine have saved.
    """
    out = Path(out).resolve()
    wanted, numbers, common = parse_variants(variants, task), seed_list(seeds), parse_changes(changes, task)
    tuned = tuned or {}
    chosen = {name: dict(each.chosen) for name, each in tuned.items()}
    jobs = [
        Job(
            dataclasses.replace(variant.config(task, seed, preset, common | chosen.get(str(variant), {})), other_data=allow_other_data),
            out / variant.slug / f"seed-{seed}",
        )
        for variant in wanted
        for seed in numbers
    ]  # fmt: skip
    pool = Pool(**where)
    command = command or study_command(
        task, wanted, numbers, out, preset=preset, changes=common, allow_other_data=allow_other_data, **where
    )
    check_holds_no_run(out)
    _check(out, task)
    check_folders(jobs, pool.precision)
    check_data_there(pool, jobs)
    facts = {
        "format": FORMAT, "task": task, "variants": list(map(str, wanted)), "seeds": numbers, "preset": preset, "changes": common,
        "tuned": {name: dataclasses.asdict(each) for name, each in tuned.items()}, "command": command,
    }  # fmt: skip
    RunFolder(out).write("study.json", json.dumps(facts, indent=2) + "\n")
    for variant in wanted:
        if str(variant) in tuned:
            tuned[str(variant)].write(out / variant.slug)
    try:
        run_missing(pool, jobs, describe)
    except Interrupted:
        raise Interrupted(f"{how_far(jobs, pool.address)}. To continue: {command}") from None
    return [RunFolder(job.path) for job in jobs]


def study_command(
    task: str,
    variants: Sequence[str | Variant],
    seeds: int | Sequence[int],
    out: str | Path,
    *,
    preset: str = "paper",
    changes: Changes = (),
    trials: int = 0,
    trial_changes: Changes = (),
    search_seed: int = SEARCH_SEED,
    best: Sequence[str | Path] = (),
    allow_other_data: bool = False,
    pruner: str = "none",
    **where: Unpack[PoolOptions],
) -> str:
    """Return the command that starts or continues a comparison; for the arguments see `compare` and `mollifier_lab.tuning.tune`.

    >>> study_command("parity", ["plain", "mollified:k=10"], 3, "out dir", preset="quick", changes=["lr=0.5"], workers=2)
    "mollifier compare parity --methods plain mollified:k=10 --seeds 3 --preset quick --set lr=0.5 --out 'out dir' --workers 2"
    """
    numbers = seed_list(seeds)
    which = str(len(numbers)) if numbers == list(range(len(numbers))) else "".join(f"{seed}," for seed in numbers)
    words = [
        "mollifier", "compare", task, "--methods", *map(str, parse_variants(variants, task)), "--seeds", which, "--preset", preset,
    ]  # fmt: skip
    if settings := parse_changes(changes, task):
        words += ["--set", *(f"{name}={as_word(value)}" for name, value in settings.items())]
    words += ["--search", str(trials)] if trials else []
    if settings := parse_changes(trial_changes, task):
        words += ["--search-set", *(f"{name}={as_word(value)}" for name, value in settings.items())]
    words += ["--search-seed", str(search_seed)] if search_seed != SEARCH_SEED else []
    words += ["--best", *map(shown, best)] if best else []
    words += ["--out", shown(out), *pool_flags(where)]
    words += ["--pruner", pruner] if pruner != "none" else []
    words += ["--allow-other-data"] if allow_other_data else []
    words += code.flags()
    return shlex.join(words)


def seed_list(seeds: int | Sequence[int]) -> list[int]:
    """Return the list of seeds.

    >>> seed_list(3), seed_list([4, 2])
    ([0, 1, 2], [4, 2])

    Raises:
        LabError: If there is no seed, a seed twice, or a seed below 0.
    """
    if isinstance(seeds, int) and seeds > MANY:
        raise LabError(f"seeds={seeds}: expected at most {MANY}")
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not numbers or min(numbers) < 0 or len(set(numbers)) < len(numbers):
        raise LabError(f"seeds={seeds}: expected at least one, each once, and none below 0")
    return numbers


def check_folders(jobs: Sequence[Job], precision: Precision) -> None:
    """Name all folders that contain a run other than the requested one, in one error.

    Raises:
        LabError: If there is such a folder.
    """
    problems = list(filter(None, (different(RunFolder(job.path), job.config, precision) for job in jobs)))
    if problems:
        raise LabError(
            "\n".join(problems) + "\nNothing was run or overwritten: name another folder (--out), or ask for the same settings as before"
        )  # fmt: skip


def check_holds_no_run(out: Path) -> None:
    """Refuse to put many runs into the folder of one run.

    Raises:
        LabError: If it is the folder of a run.
    """
    if (out / "config.json").exists():
        raise LabError(
            f"{out} contains a single run; expected a folder for a comparison. Nothing was changed; name another folder (--out)"
        )


def check_data_there(pool: Pool, jobs: Sequence[Job]) -> None:
    """Report missing data, data that is not the published one, or a network that is too large: once, before the first run starts.

    The machines of a cluster may have the data, or the memory, that this machine lacks.

    Raises:
        LabError: If something is missing here, and runs that are not done yet would be made here.
    """
    missing = [job.config for job in jobs if RunFolder(job.path).status != "done"]
    if missing and pool.address is None:
        check_data(missing[0].task, pool.data, allow_other=missing[0].other_data)
        for config in missing:
            check_memory(config.settings)


def run_missing(pool: Pool, jobs: Sequence[Job], line: Callable[[Outcome], str]) -> None:
    """Run what is not done.

    Args:
        pool: Where to run them.
        jobs: All requested runs.
        line: Called as each run ends; returns a line about it.
    """
    from rich.console import Console

    console = Console(stderr=True)
    missing = [job for job in jobs if RunFolder(job.path).status != "done"]
    done = len(jobs) - len(missing)
    if pool.show and done:
        console.print(f"{done} of {len(jobs)} runs are done already", highlight=False)
    overview = Overview(console, missing, done, pool.workers)
    with contextlib.ExitStack() as stack:
        bar = pool.show and not pool.alone and console.is_terminal and bool(missing)  # a single run has its own bar
        if bar:
            stack.enter_context(overview)
        for outcome in pool.run(missing):
            done += 1
            overview.ended(outcome)
            text = line(outcome)
            left = overview.left() if pool.show and not bar and done < len(jobs) else None  # the bar says it as well
            if left is not None and left >= 1:
                text += f"; about {show_seconds(left)} left"
            if pool.show or outcome.status == "failed":
                print_line(console, f"{done}/{len(jobs)}  {text}")


def describe(outcome: Outcome, name: str = "", metric: str = "") -> str:
    """Describe a run that has ended in one line: its variant, seed and headline metric, or another name and metric."""
    config, folder = outcome.job.config, RunFolder(outcome.job.path)
    name, metric = name or f"{config.title}, seed {config.seed}", metric or config.settings.headline
    if outcome.status == "failed":
        log = folder.path / "failure.txt"
        return f"{name}: FAILED: {outcome.error}" + (f"\n    log: {log}" if log.exists() else "")
    result = folder.json("result.json")
    value = "diverged" if result["diverged"] else show_metric(metric, result["final"].get(metric))
    rest = show_unfinished(result.get("annealing")) if not result["diverged"] else ""
    rest = f"pruned at update {result['updates']}" if result.get("pruned") else rest
    return f"{name}: {title(metric)} {value}, {show_seconds(result['seconds'])}" + (f", {rest}" if rest else "") + (", run elsewhere" if outcome.status == "found" else "")  # fmt: skip


def how_far(jobs: Sequence[Job], address: str | None) -> str:
    """Say how many runs are done, and what happens to the others.

    >>> how_far([], None)
    'stopped: 0 of 0 runs are done and kept; the others continue from their last checkpoints'
    """
    done = sum(RunFolder(job.path).status == "done" for job in jobs)
    rest = (
        f"the cluster at {address} may still be working on others"
        if address
        else "the others continue from their last checkpoints"
    )
    return f"stopped: {done} of {len(jobs)} runs are done and kept; {rest}"


def _check(out: Path, task: str) -> None:
    """Check that the folder is free for a comparison of that task."""
    path = out / "study.json"
    try:
        found = read_object(path).get("task")
    except FileNotFoundError:
        return
    except LabError as error:
        raise LabError(
            f"{error}; it does not belong to a comparison: name another folder (--out), or remove it"
        ) from None
    if not isinstance(found, str):
        raise LabError(f"{path} does not belong to a comparison (no task); name another folder (--out), or remove it")
    if found != task:
        raise LabError(f"{out} contains a comparison of task {found!r}, not {task!r}; name another folder (--out)")
