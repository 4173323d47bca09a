"""Mollify networks of step units: `mollifier.mollify` has no tangent to push them toward, so their blocks are assembled by hand, and taken
apart again.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from mollifier.nn import MollifiedBlock, Step


def has_steps(model: nn.Module) -> bool:
    """Return whether the network contains steps."""
    return any(isinstance(part, Step) for part in model.modules())


def mollify_steps(model: nn.Module, **options: Any) -> None:
    """Mollify the steps of a flat network, and copy past each layer with as many inputs as outputs.

        >>> from mollifier_lab.models import mlp
        >>> mollify_steps(model := mlp(4, 1, width=8, depth=3, activation="step"))
        >>> [type(part).__name__ for part in model]
        ['Linear', 'Step', 'MollifiedBlock', 'MollifiedBlock', 'Linear']

    Args:
        model: A network that `mlp` has built; it is changed in place.
        **options: ``train_noise``, as for `mollifier.mollify`.

    Raises:
        ValueError: If it is not flat, or an option has no meaning for steps.
    """
    parts = list(model.children())
    steps = [number for number, part in enumerate(parts) if isinstance(part, Step)]
    if not isinstance(model, nn.Sequential) or not all(isinstance(parts[number - 1], nn.Linear) for number in steps):
        raise ValueError("steps can be mollified only in plain networks, with a linear layer below each")
    if set(options) - {"train_noise"}:
        raise ValueError(f"{', '.join(sorted(set(options) - {'train_noise'}))}: has no meaning for steps")
    noise = options.get("train_noise", "sample")
    found: list[nn.Module] = []
    for part in parts:
        if isinstance(part, Step):
            part.set_level(1.0)
            part.train_noise = noise
            below = found[-1]
            assert isinstance(below, nn.Linear)
            if below.in_features == below.out_features:
                found[-1] = MollifiedBlock(nn.Sequential(below, part), train_noise=noise)
                continue
        found.append(part)
    _refill(model, found)


def restore_steps(model: nn.Module) -> None:
    """Take the blocks apart again; the flat network is restored, with its steps at level 0."""
    found: list[nn.Module] = []
    for part in model.children():
        found += list(part.block.children()) if isinstance(part, MollifiedBlock) else [part]
    if isinstance(model, nn.Sequential):
        _refill(model, found)
    for part in model.modules():
        if isinstance(part, Step):
            part.set_level(0.0)


def _refill(model: nn.Sequential, parts: list[nn.Module]) -> None:
    model._modules.clear()
    for number, part in enumerate(parts):
        model.add_module(str(number), part)
