"""Grids: every method with each of several values of a setting. No torch here.

>>> wanted = parse_variants(["plain", "mollified"], "parity")
>>> [str(each) for each in expand(wanted, ["k=10,100", "lr=0.1,1"], "parity")]  # plain has no k
['plain:lr=0.1', 'plain:lr=1', 'mollified:k=10,lr=0.1', 'mollified:k=10,lr=1', 'mollified:k=100,lr=0.1', 'mollified:k=100,lr=1']
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from mollifier_lab.errors import LabError
from mollifier_lab.methods import METHODS, Method
from mollifier_lab.settings import KNOBS
from mollifier_lab.settings.applies import NEEDS
from mollifier_lab.variants import Variant, parse_changes, parse_variants as parse_variants

# without annealing these have no effect, but they are not refused, since presets set them for all methods
ANNEALING = ("schedule", "horizon", "loss_average", "stop_at", "anneal_every")
MANY = 10_000  # variants; more are probably a mistake


def expand(variants: Sequence[Variant], grids: Sequence[str], task: str) -> list[Variant]:
    """Return each variant with all values of the grids, except for settings that it sets itself or that its method does not use.

    Args:
        variants: The variants that are compared.
        grids: ``name=value,value,…``, one per setting.
        task: The name of the task.

    Raises:
        LabError: If a grid is not understood, or no variant uses it.
    """
    values = parse_grids(grids, task)
    idle = [name for name in values if not any(varies(each, name) for each in variants)]
    if idle:
        raise LabError(
            f"--grid {', '.join(idle)}: none of {', '.join(map(str, variants))} uses it, or they all set it; "
            "leave it out, or compare a method that uses it"
        )
    made = sum(math.prod(len(each) for name, each in values.items() if varies(variant, name)) for variant in variants)
    if made > MANY:
        raise LabError(f"--grid {' '.join(grids)}: {made:,} variants; expected at most {MANY:,}")
    found: list[Variant] = []
    for variant in variants:
        mine = {name: each for name, each in values.items() if varies(variant, name)}
        for point in itertools.product(*mine.values()):
            changes = {**variant.changes, **dict(zip(mine, point, strict=True))}
            found.append(Variant(variant.method, dict(sorted(changes.items()))))
    return found


def parse_grids(grids: Sequence[str], task: str) -> dict[str, list[Any]]:
    """Return the values of each setting.

    >>> parse_grids(["k=10,100"], "parity")
    {'k': [10.0, 100.0]}

    Raises:
        LabError: If a grid is not understood, or given twice.
    """
    found: dict[str, list[Any]] = {}
    for grid in grids:
        name, equals, rest = grid.partition("=")
        words = [word for word in rest.split(",") if word.strip()]
        if not (equals and words):
            raise LabError(f"--grid {grid}: expected name=value,value, for example k=10,100,1000")
        for word in words:
            for key, value in parse_changes([f"{name}={word}"], task).items():
                if value in found.setdefault(key, []):
                    raise LabError(f"--grid {grid}: {word.strip()} is given twice; expected each value once")
                found[key].append(value)
    return found


def varies(variant: Variant, name: str) -> bool:
    """Return whether another value of a setting would make another run."""
    method = METHODS[variant.method]
    if name in variant.changes:
        return False
    if method.apply is not None:  # only its author knows which settings it reads
        return True
    if name in KNOBS:
        return name in method.knobs
    return method.annealed if name in ANNEALING or NEEDS.get(name) == "an annealer" else _has(method, name)


def _has(method: Method, name: str) -> bool:
    parts = {"the copy": "copy", "noisy activations": "activations", "mollified gates": "gates"}
    return name not in NEEDS or method.has(parts[NEEDS[name]], recurrent=True)
