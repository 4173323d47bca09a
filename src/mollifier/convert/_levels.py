"""Read and write the levels of a model, one per block, in forward order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor, nn

from mollifier.nn import Annealed, MollifiedBlock
from mollifier.nn._annealed import FrozenNoise, check_level

REPORT = "_mollifier_report"  # marks the module that mollify was called with


def groups(model: nn.Module) -> list[list[Annealed]]:
    """Return the modules that have a level, one list per block, in forward order.

    Modules that `mollify` created carry the order of their block. In networks built by hand, a `MollifiedBlock` or a recurrent layer
    controls everything inside it, and any other module only itself, in the order of registration.
    """
    found: dict[tuple[int, int], list[Annealed]] = {}
    roots: dict[str, int] = {}
    blocks: dict[str, int] = {}
    for number, (name, module) in enumerate(model.named_modules()):
        if REPORT in module.__dict__:
            roots[name] = number
        if isinstance(module, (MollifiedBlock, Annealed)) and _enclosing(name, blocks) is None:
            blocks[name] = number
        if isinstance(module, Annealed):
            root = _enclosing(name, roots)
            if module.order is not None:
                key = (0 if root is None else root, module.order)
            else:
                block = _enclosing(name, blocks)
                key = (number if block is None else block, -1)
            found.setdefault(key, []).append(module)
    return [found[key] for key in sorted(found)]


def _enclosing(name: str, places: dict[str, int]) -> int | None:
    inside = [place for place in places if place in ("", name) or name.startswith(place + ".")]
    return places[max(inside, key=len)] if inside else None


def mollified_groups(model: nn.Module, doing: str) -> list[list[Annealed]]:
    """Return the same lists, or raise a ValueError if there are none."""
    found = groups(model)
    if not found:
        raise ValueError(f"{doing}: {type(model).__name__} is not mollified. Call mollifier.mollify(model) first.")
    return found


def is_mollified(model: nn.Module) -> bool:
    """Return whether any part of the model is mollified, at any level.

    >>> import mollifier, torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Sigmoid(), torch.nn.Linear(4, 1))
    >>> mollifier.is_mollified(model), mollifier.is_mollified(mollifier.mollify(model))
    (False, True)
    """
    return any(isinstance(module, Annealed) for module in model.modules())


def levels(model: nn.Module) -> list[float]:
    """Return the level of each block, in forward order: 1 = mollified, 0 = plain.

    >>> import mollifier, torch
    >>> mollifier.levels(mollifier.mollify(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), output=True))
    [1.0]

    Raises:
        ValueError: If the model is not mollified.
    """
    return [float(group[0].level) for group in mollified_groups(model, "levels")]


def set_level(model: nn.Module, level: float | Sequence[float] | Tensor) -> None:
    """Set the level of every block to one number, or each to its own.

    >>> import mollifier, torch
    >>> model = mollifier.mollify(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1)))
    >>> mollifier.set_level(model, 0.25)
    >>> mollifier.levels(model)
    [0.25]

    Raises:
        ValueError: If a level is outside [0, 1] or NaN, their number is wrong, or the model is not mollified. Nothing
            is changed then.
    """
    found = mollified_groups(model, "set_level")
    if isinstance(level, Tensor):
        level = level.tolist()
    if isinstance(level, (int, float)):
        level = [level] * len(found)
    if len(level) != len(found):
        raise ValueError(f"set_level: {len(level)} levels were given, the model has {len(found)} blocks")
    values = [check_level(value) for value in level]
    for group, value in zip(found, values, strict=True):
        for module in group:
            module.set_level(value)


@contextmanager
def frozen(model: nn.Module, seed: int = 0) -> Iterator[nn.Module]:
    """Draw the noise once and keep it within this context, so that the model is a function: for curvature and gradient checks.

        >>> import mollifier, torch
        >>> model = mollifier.mollify(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1)))
        >>> x = torch.randn(3, 4)
        >>> with mollifier.frozen(model, seed=1):
        ...     torch.equal(model(x), model(x))
        True

    The draws depend on the seed and the shape, but not on the level (common random numbers). torch's own generator
    is not used. A module that is called twice in one forward with the same shape uses the same draws twice.
    """
    parts = [module for group in mollified_groups(model, "frozen") for module in group]
    before = [module.frozen for module in parts]
    for number, module in enumerate(parts):
        module.frozen = FrozenNoise(seed, number)
    try:
        yield model
    finally:
        for module, noise in zip(parts, before, strict=True):
            module.frozen = noise
