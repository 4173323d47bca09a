"""Saving and loading an Annealer, and which models it can restore at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from mollifier.anneal._adaptive import Follower
from mollifier.convert._levels import REPORT
from mollifier.nn import Copy

if TYPE_CHECKING:
    from mollifier.anneal._annealer import Annealer

SETTINGS = ("horizon", "p_min", "k", "stop_at", "then", "every", "updates", "guard", "width")
LATER = {"guard", "start", "lowest", "width", "front"}  # not in the states that earlier versions saved


def save(annealer: Annealer) -> dict[str, Any]:
    """Return the state of an annealer."""
    schedule = annealer.schedule if isinstance(annealer.schedule, str) else "custom"
    average, count, not_finite, below = annealer._average.numbers
    return {
        **{name: getattr(annealer, name) for name in SETTINGS},
        "beta": annealer.beta,
        "schedule": schedule,
        "state": torch.stack([average, count, not_finite, annealer._done.tensor[0], below]),
        "levels": annealer._levels.clone(),
        "start": annealer._start.tensor.clone(),
        "lowest": annealer._lowest.tensor.clone(),
        **({} if annealer._front is None else {"front": annealer._front.numbers.tensor.clone()}),
    }


def load(annealer: Annealer, state: dict[str, Any]) -> None:
    """Put a saved state into an annealer, or raise a ValueError and change nothing."""
    mine = save(annealer)
    missing = sorted(set(mine) - set(state) - LATER)
    if missing:
        raise ValueError(f"load_state_dict: {', '.join(missing)} missing: this is not the state of an Annealer")
    if len(state["levels"]) != len(mine["levels"]):
        raise ValueError(
            f"load_state_dict: the state has {len(state['levels'])} blocks, but the model has {len(mine['levels'])}"
        )
    if state["schedule"] != mine["schedule"]:
        raise ValueError(
            f"load_state_dict: the state has schedule {state['schedule']!r}, but this Annealer has {mine['schedule']!r}"
        )
    if annealer._restored:
        raise ValueError(
            'load_state_dict: annealing has ended and the model was restored (then="restore"): mollify it again, '
            "and make a new Annealer"
        )
    if state["then"] == "restore":
        check_restorable(annealer._model)
    before = {
        "guard": True,
        "start": torch.ones_like(state["levels"]),
        "lowest": state["levels"],
        "width": annealer.width,
    }
    state = {**before, **state}
    for name in SETTINGS:
        setattr(annealer, name, state[name])
    average, count, not_finite, done, *below = state["state"].to(annealer._done.tensor).clone()
    annealer._average.beta, annealer._average.guard = state["beta"], state["guard"]
    annealer._average.load(torch.stack([average, count, not_finite, *(below or [torch.zeros_like(done)])]))
    annealer._done.tensor = done.reshape(1)
    like = annealer._levels
    for numbers, name in ((annealer._now, "levels"), (annealer._start, "start"), (annealer._lowest, "lowest")):
        numbers.tensor = state[name].to(like).clone()
    if annealer._front is not None:
        annealer._front = Follower(len(annealer._levels), annealer.width, annealer._levels)
        annealer._front.numbers.tensor = state["front"].to(like).clone()


def check_restorable(model: nn.Module) -> None:
    """Refuse ``then="restore"`` where the end of annealing could not restore the model."""
    kind = type(model).__name__
    if kind in ("DistributedDataParallel", "FullyShardedDataParallel", "DataParallel"):
        raise ValueError(
            f'then="restore": {kind} keeps references to the added parameters, so they cannot be removed while it trains. Use '
            'then="plain", and mollifier.restore(model.module) after training.'
        )
    if not any(REPORT in module.__dict__ for module in model.modules()):
        raise ValueError(f'then="restore": {kind} was not mollified by mollify(), so restore cannot undo it')
    if any(isinstance(part, Copy) and part.residual for part in model.modules()):
        raise ValueError(
            'then="restore": the model was mollified with residual=True, and the plain network does not have these '
            'connections. Use then="plain" and deploy it as it is.'
        )
