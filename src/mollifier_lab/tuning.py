"""Search every variant in the same way, on validation data, and compare the best settings of each over several seeds, in one call that can
be resumed at any point.

>>> import tempfile
>>> tiny = {"bits": 4, "width": 8, "depth": 2, "samples": 16, "updates": 4, "evaluate_every": 2}
>>> out = Path(tempfile.mkdtemp()) / "study"
>>> runs = tune("parity", ["plain", "plain:gain=1"], 2, 1, out, preset="quick", changes=tiny, trial_changes={"updates": 2}, show=False)
>>> [path.relative_to(out).as_posix() for path in sorted(out.glob("search/*/trial-*"))][:3]
['search/plain/trial-0000', 'search/plain/trial-0001', 'search/plain_gain=1/trial-0000']
>>> Tuned.read(out / "plain_gain=1").summary
'lr on 2 trials'
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from mollifier_lab.errors import Interrupted, LabError
from mollifier_lab.json_files import read_object, read_text
from mollifier_lab.pool_options import PoolOptions
from mollifier_lab.pruning import Name
from mollifier_lab.runs import SEARCH, RunFolder
from mollifier_lab.search import AllDiverged, search, search_space
from mollifier_lab.settings import TASKS, RunConfig
from mollifier_lab.study import SEARCH_SEED, compare, study_command
from mollifier_lab.tuned import Tuned, checked
from mollifier_lab.variants import Changes, Variant, parse_changes, parse_variants


def tune(
    task: str,
    variants: Sequence[str | Variant],
    trials: int,
    seeds: int | Sequence[int],
    out: str | Path,
    *,
    preset: str = "paper",
    changes: Changes = (),
    trial_changes: Changes = (),
    search_seed: int = SEARCH_SEED,
    command: str = "",
    pruner: Name = "none",
    allow_other_data: bool = False,
    **where: Unpack[PoolOptions],
) -> list[RunFolder]:
    """Search every variant, then compare the best settings of each over seeds.

    Every variant gets the same number of trials, the same ranges, and in trial n the same value of each setting that variants share. What a
    variant or ``changes`` sets is not drawn. A variant whose trials all diverge is compared with the settings that it has without a search.

    Args:
        task: The name of the task.
        variants: The same as for `mollifier_lab.study.compare`.
        trials: The number of trials of each variant.
        seeds: The number of seeds of the comparison, or a list of seeds.
        out: The folder. The searches are in its folder ``search``, one folder per variant.
        preset: The preset to start from.
        changes: Settings of all runs, the trials included.
        trial_changes: Settings that are changed for the trials only, for example a shorter training.
        search_seed: The seed of the draws and of the trials; by default one that no comparison is likely to have.
        command: The command that makes it, if it is not `study_command`.
        pruner: The pruner of every search, as for `mollifier_lab.search.search`.
        allow_other_data: Whether to accept data files that are not the published ones.
        **where: The same as for `mollifier_lab.study.compare`.

    Returns:
        The runs of the comparison, without the trials.

    Raises:
        LabError: If something is not understood, or a folder contains something else.
        Interrupted: After Ctrl-C; runs on this machine have saved.
    """
    out = Path(out).resolve()
    wanted, common, short = (
        parse_variants(variants, task),
        parse_changes(changes, task),
        parse_changes(trial_changes, task),
    )
    for variant in wanted:  # everything that can be wrong is reported before the first trial
        variant.config(task, 0, preset, common | short)
        _own_draws(task, variant, common, short)
    command = command or study_command(
        task, wanted, seeds, out, preset=preset, changes=common, trials=trials, trial_changes=short, search_seed=search_seed, pruner=pruner,
        allow_other_data=allow_other_data, **where,
    )  # fmt: skip
    tuned = {}
    try:
        for number, variant in enumerate(wanted, start=1):
            if where.get("show", True):
                print(f"search {number} of {len(wanted)}: {variant}, {trials} trials", file=sys.stderr)
            tuned[str(variant)] = _tuned(
                task, variant, common, short, trials, out, preset=preset, seed=search_seed, pruner=pruner,
                allow_other_data=allow_other_data, **where,
            )  # fmt: skip
    except Interrupted as stopped:
        raise Interrupted(f"{str(stopped).partition('. To continue')[0]}. To continue: {command}") from None
    return compare(
        task, wanted, seeds, out, preset=preset, changes=common, tuned=tuned, command=command, allow_other_data=allow_other_data, **where
    )  # fmt: skip


def _own_draws(task: str, variant: Variant, common: dict[str, Any], short: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a variant's trials that are not drawn."""
    changes = {**common, **variant.changes, **short}
    drawn = search_space(task, variant.method, {**common, **variant.changes})
    if both := sorted(set(drawn) & set(short)):
        raise LabError(
            f"{', '.join(both)}: set for the trials only, but the trials are meant to find it; set it for all runs"
        )
    return changes


def _tuned(
    task: str, variant: Variant, common: dict[str, Any], short: dict[str, Any], trials: int, out: Path, **given: Any
) -> Tuned:
    """Search the settings of one variant; ``given`` are further arguments of `search`."""
    changes = _own_draws(task, variant, common, short)
    space = search_space(task, variant.method, changes)
    folder = out / "search" / variant.slug
    try:
        best = search(task, variant.method, trials, folder, changes=changes, **given)
    except AllDiverged:
        curve = TASKS[task].curve
        return Tuned(variant.method, trials, space, {}, curve, None, short, {"diverged": trials})
    chosen = {name: getattr(best.config.settings, name) for name in space}
    return Tuned(variant.method, trials, space, chosen, best.metric, best.value, short, best.trials)


def compare_best(
    task: str,
    variants: Sequence[str | Variant],
    seeds: int | Sequence[int],
    out: str | Path,
    *,
    best: Sequence[str | Path] = (),
    preset: str = "paper",
    changes: Changes = (),
    command: str = "",
    allow_other_data: bool = False,
    **where: Unpack[PoolOptions],
) -> list[RunFolder]:
    """Compare with the results of earlier searches: what they found is set for the variants of their method, except for what is set by hand.

    For the arguments see `tune`; ``best`` are best.json files.

    Raises:
        LabError: If a file is not understood, or belongs to a method that is not compared.
    """
    wanted, common, tuned = parse_variants(variants, task), parse_changes(changes, task), {}
    for path in best:
        found = found_best(path, task)
        of = [variant for variant in wanted if variant.method == found.method]
        if not of:
            raise LabError(
                f"{path}: belongs to method {found.method!r}, which is not compared; expected one of: {', '.join(map(str, wanted))}"
            )
        for variant in of:
            chosen = {name: each for name, each in found.chosen.items() if name not in {**common, **variant.changes}}
            tuned[str(variant)] = replace(found, chosen=chosen, ranges={name: found.ranges[name] for name in chosen})
    command = command or study_command(
        task, wanted, seeds, Path(out).resolve(), preset=preset, changes=common, best=[Path(path).resolve() for path in best],
        allow_other_data=allow_other_data, **where,
    )  # fmt: skip
    return compare(
        task, wanted, seeds, out, preset=preset, changes=common, tuned=tuned, command=command, allow_other_data=allow_other_data, **where
    )  # fmt: skip


def found_best(path: str | Path, task: str) -> Tuned:
    """Return the result of an earlier search: its best.json, with the search.json next to it.

    Raises:
        LabError: If the files do not exist, are not understood, or belong to another task.
    """
    path = Path(path)
    try:
        config = RunConfig.from_json(read_text(path))
        told = read_object(path.parent / SEARCH)
        names, best = told["drawn"], told["best"]
        values = {name: float(getattr(config.settings, name)) for name in names}
        ranges = {name: tuple(each) for name, each in names.items()}
        found = checked(
            Tuned(config.method, told["trials"], ranges, values, best["metric"], best["value"], told["changes"], best["outcomes"])
        )  # fmt: skip
    except FileNotFoundError as error:
        raise LabError(
            f"{path}: {error.filename} does not exist; expected the best.json of `mollifier search`, with its {SEARCH} next to it"
        ) from None
    except LabError as error:
        raise LabError(f"{path}: not what `mollifier search` writes ({error})") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LabError(f"{path}: not what `mollifier search` writes ({error!r:.200})") from None
    if config.task != task:
        raise LabError(f"{path}: belongs to task {config.task!r}, not {task!r}")
    return found
