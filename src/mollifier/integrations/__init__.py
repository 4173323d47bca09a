"""Callbacks for trainers. They make the same calls as a loop of your own. Import the module of your trainer."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from mollifier.anneal import Annealer
from mollifier.convert import is_mollified, restore, set_level
from mollifier.convert._classes import KEY


def end(model: nn.Module, annealer: Annealer, optimizer: Optimizer | None = None) -> None:
    """Restore the plain network at the end of training, if annealing has ended."""
    if not is_mollified(model):  # then="restore"
        return
    # A callback that averages weights has averaged the levels as well.
    set_level(model, annealer.levels)
    if annealer.finished and not any(annealer.levels):
        restore(model, optimizer=optimizer)
    else:
        warnings.warn(
            f"training ended at levels {[round(level, 3) for level in annealer.levels]}: the model stays mollified. Continue training, "
            "anneal faster (a smaller k, or horizon=…), or call mollifier.restore(model, force=True).",
            RuntimeWarning,
            stacklevel=3,
        )


def named_levels(annealer: Annealer) -> dict[str, float]:
    """Return the levels under the names that loggers show.

    >>> from mollifier import mollify
    >>> named_levels(Annealer(mollify(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)))))
    {'mollifier/level_1': 1.0}
    """
    return {f"mollifier/level_{number}": level for number, level in enumerate(annealer.levels, 1)}


class State:
    """What a checkpoint contains in addition to the plain weights: the annealer's state and the added parameters.

    Attributes:
        model: The mollified model.
        annealer: Its annealer.
    """

    model: nn.Module
    annealer: Annealer

    def state_dict(self) -> dict[str, Any]:
        """Return both."""
        return {"annealer": self.annealer.state_dict(), "added": added_state(self.model)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore both.

        Raises:
            ValueError: If the model was mollified in a different way.
        """
        load_added_state(self.model, state["added"])
        self.annealer.load_state_dict(state["annealer"])


def is_added(key: str) -> bool:
    """Return whether a key of a state_dict belongs to a part that mollification added.

    >>> is_added("net.1._mollifier.noise.a"), is_added("net.1.weight")
    (True, False)
    """
    return KEY in key.split(".")


def added_state(model: nn.Module) -> dict[str, Tensor]:
    """Return what resuming needs in addition to the plain weights: a, projections and levels, by name."""
    tensors = chain(model.named_parameters(), model.named_buffers())
    return {name: tensor.detach().clone() for name, tensor in tensors if is_added(name)}


def load_added_state(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load what `added_state` returned.

    Raises:
        ValueError: If the model was mollified in a different way. Nothing is changed then.
    """
    tensors = {name: t for name, t in chain(model.named_parameters(), model.named_buffers()) if is_added(name)}
    shapes, given = ({name: tuple(t.shape) for name, t in each.items()} for each in (tensors, state))
    different = sorted(name for name in shapes.keys() | given.keys() if shapes.get(name) != given.get(name))
    if different:
        raise ValueError(
            f"the checkpoint was written by a model that was mollified in a different way: {', '.join(different[:5])} "
            "differ. Mollify with the same options."
        )
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(state[name])


def drop_added(module: Any, state: dict[str, Any], *_: Any) -> None:
    """Remove the added entries from a state_dict. As a hook, this makes every state_dict of a module a plain one."""
    for key in [key for key in state if is_added(key)]:
        del state[key]
    metadata = getattr(state, "_metadata", {})
    for key in [key for key in metadata if is_added(key)]:
        del metadata[key]
