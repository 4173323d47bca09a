"""The cells of the map and their results. `mollifier_lab.study.compare` makes them, so that all of it can be stopped and continued.

runs/ACTIVATION/DEPTH/      a comparison: the trials of all ways at that depth, with seed 0, and more seeds of the chosen trials along the frontier
map.csv                     one row per way, activation, depth and seed, for the trial with the lowest validation error
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from mollifier_lab.errors import LabError
from mollifier_lab.files import write_atomically
from mollifier_lab.frontier.ways import BY_NAME, COMMON, LOST, SEEDS, SMOKE, TRAINED, WAYS, Way
from mollifier_lab.runs import RunFolder
from mollifier_lab.settings import TASKS
from mollifier_lab.study import compare
from mollifier_lab.variants import Variant

MAP = "map.csv"


@dataclass(frozen=True)
class Cell:
    """A row of the map.

    Attributes:
        way: The name of the way.
        activation: The activation of the hidden units.
        depth: The number of hidden layers.
        seed: The seed of the run.
        test_error: The test error of the deployed network.
        valid_error: The validation error by which the trial was chosen.
        trials: The number of trials to choose from.
        lr, gain, k: The settings of the chosen trial.
        updates: The number of updates of each trial.
        seconds: The duration of the chosen trial.
    """

    way: str
    activation: str
    depth: int
    seed: int
    test_error: float
    valid_error: float
    trials: int
    lr: float
    gain: float
    k: float
    updates: int
    seconds: float


def make(activation: str, depths: Sequence[int], out: Path, *, smoke: bool = False, **pool: Any) -> list[Cell]:
    """Run what is missing from an activation's part of the map, from shallow to deep, then more seeds along the frontier.

    A way that has learnt next to nothing at two depths in a row is not tried at greater depths.

    Args:
        activation: The activation of the hidden units.
        depths: The depths to run.
        out: The folder of the map.
        smoke: Whether to use tiny networks and a few updates, only to show that it works.
        **pool: The same as for `mollifier_lab.study.compare`.
    """
    common = {**COMMON, **(SMOKE if smoke else {})}
    ways: list[Way] = [way for way in WAYS if activation in way.activations]
    cells: list[Cell] = []
    for depth in sorted(depths):
        trials = {way.name: way.variants(depth, activation, common["updates"]) for way in ways}
        cells += _run(trials, [0], activation, depth, out, common, pool)
        ways = [way for way in ways if not lost(way, cells)]
    for way in WAYS:
        for depth in edge(way.name, activation, cells, sorted(depths)):
            chosen = next(cell for cell in cells if (cell.way, cell.depth) == (way.name, depth))
            best = _variant(way, chosen, activation, depth, common)
            cells += _run({way.name: [best]}, list(range(1, SEEDS)), activation, depth, out, common, pool)
    return cells


def _variant(way: Way, cell: Cell, activation: str, depth: int, common: dict[str, Any]) -> Variant:
    """Return the trial that a cell describes."""
    wanted = {"lr": cell.lr, "gain": cell.gain, "k": cell.k}
    found = way.variants(depth, activation, common["updates"])
    return next(each for each in found if all(each.changes.get(name, value) == value for name, value in wanted.items()))


def _run(
    trials: dict[str, list[Variant]],
    seeds: list[int],
    activation: str,
    depth: int,
    out: Path,
    common: dict[str, Any],
    pool: dict[str, Any],
) -> list[Cell]:
    folder = out / "runs" / activation / f"{depth:03d}"
    flat = [variant for variants in trials.values() for variant in variants]
    runs = compare("mnist", flat, seeds, folder, changes=common, command="mollifier frontier", **pool)
    found = dict(zip([(str(variant), seed) for variant in flat for seed in seeds], runs, strict=True))
    if failed := [run.path for run in runs if run.status != "done"]:
        raise LabError(f"{len(failed)} runs of the map failed; see failure.txt in {failed[0]}")
    return [
        best_of(name, [found[str(variant), seed] for variant in variants], seed)
        for name, variants in trials.items()
        for seed in seeds
    ]


def best_of(way: str, runs: Sequence[RunFolder], seed: int) -> Cell:
    """Return the cell of a way: its trial with the lowest validation error. A trial that diverged counts as guessing."""
    chance = TASKS["mnist"].chance

    def error(run: RunFolder, split: str) -> float:
        result = run.json("result.json")
        value = result["final"].get(f"{split}_error")
        return chance if result["diverged"] or value is None else float(value)

    best = min(runs, key=lambda run: error(run, "valid"))
    settings: Any = best.config().settings
    return Cell(
        way, settings.activation, settings.depth, seed, error(best, "test"), error(best, "valid"), len(runs), settings.lr, settings.gain,
        settings.k, settings.updates, best.json("result.json")["seconds"],
    )  # fmt: skip


def lost(way: Way, cells: Iterable[Cell]) -> bool:
    """Return whether a way has learnt next to nothing at its last two depths."""
    mine = sorted((cell for cell in cells if cell.way == way.name and cell.seed == 0), key=lambda cell: cell.depth)
    return len(mine) > 1 and all(cell.valid_error > LOST for cell in mine[-2:])


def frontier(way: str, activation: str, cells: Iterable[Cell]) -> int:
    """Return the greatest depth at which a way trains below 10 % test error in every seed that was run; 0 if there is none."""
    mine = [cell for cell in cells if (cell.way, cell.activation) == (way, activation)]
    good = {cell.depth for cell in mine} - {cell.depth for cell in mine if cell.test_error >= TRAINED}
    return max(good, default=0)


def edge(way: str, activation: str, cells: Sequence[Cell], depths: Sequence[int]) -> list[int]:
    """Return the depths along the frontier: the last that trains, and the next one that was tried."""
    last = frontier(way, activation, [cell for cell in cells if cell.seed == 0])
    tried = {cell.depth for cell in cells if (cell.way, cell.activation) == (way, activation)}
    beyond = [depth for depth in depths if depth > last and depth in tried][:1]
    return ([last] if last else []) + beyond


def write(cells: Iterable[Cell], out: Path) -> None:
    """Write cells to map.csv, keeping those of other activations and replacing older ones."""
    key = {(cell.way, cell.activation, cell.depth, cell.seed): cell for cell in (*read(out), *cells)}
    order = list(BY_NAME)
    rows = sorted(key.values(), key=lambda cell: (cell.activation, order.index(cell.way), cell.depth, cell.seed))
    text = io.StringIO()
    table = csv.DictWriter(text, [each.name for each in fields(Cell)], lineterminator="\n")
    table.writeheader()
    table.writerows(asdict(cell) for cell in rows)
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / MAP, text.getvalue().encode())


def read(out: Path) -> list[Cell]:
    """Read the cells of map.csv; none if it does not exist."""
    path = out / MAP
    if not path.exists():
        return []
    kinds = {"str": str, "int": int, "float": float}
    try:
        rows = list(csv.DictReader(path.read_text().splitlines()))
        return [Cell(**{each.name: kinds[str(each.type)](row[each.name]) for each in fields(Cell)}) for row in rows]
    except (KeyError, ValueError, TypeError) as error:
        raise LabError(
            f"{path}: not a map of the frontier ({error!r}); remove it, or name another folder (--out)"
        ) from None
