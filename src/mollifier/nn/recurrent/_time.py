"""The step that a state has reached, kept with the state."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

# Attributes: on a state that a cell returned, its owner and its step; on the storage, the step that each module took the state for.
REACHED, TAKEN = "_mollifier_time", "_mollifier_taken"
_NEXT = itertools.count()


def token() -> int:
    """Return a new number that identifies the owner of a state."""
    return next(_NEXT)


def leave(state: Tensor, owner: int, t: Tensor) -> None:
    """Record on a state its owner and the step that it has reached."""
    setattr(state, REACHED, (owner, t))


def reached(state: Tensor, owner: int) -> Tensor | None:
    """Return the step that a state has reached if it belongs to the owner, or None."""
    whose, t = getattr(state, REACHED, (None, None))
    return t if whose == owner else None


def recomputing() -> bool:
    """Return whether this is a backward pass, in which checkpointing recomputes steps and must arrive at the same t."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


def taken(state: Tensor, owner: int) -> Tensor | None:
    """Return the step that the owner took this state for in the forward pass if that pass is being recomputed, or None.

    The step is kept on the storage, because re-entrant checkpointing detaches the state, and only the storage stays the same.
    """
    found: dict[int, Tensor] = getattr(_storage(state), TAKEN, {}) if recomputing() else {}
    return found.get(owner)


def take(state: Tensor, owner: int, t: Tensor) -> None:
    """Record on the state's storage the step that the owner takes this state for."""
    if not torch.compiler.is_compiling() and (storage := _storage(state)) is not None:
        steps = storage.__dict__.setdefault(TAKEN, {})
        steps[owner] = t


def _storage(state: Tensor) -> Any:
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(state)
    return None if wrapped or type(state) is not Tensor else state.untyped_storage()
