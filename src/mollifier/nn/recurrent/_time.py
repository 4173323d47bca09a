"""The step that a state has reached, kept with the state."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

# Of a state that a cell returned: whose it is, and its step. On its storage: the step that each module took it for.
REACHED, TAKEN = "_mollifier_time", "_mollifier_taken"
_NEXT = itertools.count()


def token() -> int:
    """A number that says whose state a state is."""
    return next(_NEXT)


def leave(state: Tensor, owner: int, t: Tensor) -> None:
    """Write on a state the step that it has reached."""
    setattr(state, REACHED, (owner, t))


def reached(state: Tensor, owner: int) -> Tensor | None:
    """The step that it has reached, if it is the owner's own."""
    whose, t = getattr(state, REACHED, (None, None))
    return t if whose == owner else None


def recomputing() -> bool:
    """Is this a backward pass? Checkpointing computes steps again there, and must come to the same t."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


def taken(state: Tensor, owner: int) -> Tensor | None:
    """The step that the owner took this state for in the forward pass, where that is computed again.

    Re-entrant checkpointing detaches the state, which then has the same storage and nothing else in common with it.
    """
    found: dict[int, Tensor] = getattr(_storage(state), TAKEN, {}) if recomputing() else {}
    return found.get(owner)


def take(state: Tensor, owner: int, t: Tensor) -> None:
    """Remember the step that the owner takes this state for."""
    if not torch.compiler.is_compiling() and (storage := _storage(state)) is not None:
        steps = storage.__dict__.setdefault(TAKEN, {})
        steps[owner] = t


def _storage(state: Tensor) -> Any:
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(state)
    return None if wrapped or type(state) is not Tensor else state.untyped_storage()
