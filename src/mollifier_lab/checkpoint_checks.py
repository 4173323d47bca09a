"""Check that a checkpoint with a right checksum fits this run, including what torch would accept silently."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from mollifier_lab.json_files import is_whole

NUMBERS = ("loss_count", "first_loss", "valid_loss", "seconds")


def check_state(state: dict[str, Any], update: int, model: nn.Module) -> None:
    """Refuse a state that a run of this model does not save. Call it before anything is restored.

    Args:
        state: The contents of the checkpoint.
        update: The update in its name.
        model: The model of the run.

    Raises:
        ValueError: If a part has the wrong form.
        KeyError: If a part is missing. Any other exception means the same.
    """
    plain, lengths = state["plain"], state["lengths"]
    _demand(type(plain["update"]) is int and plain["update"] == update, "update")
    for name in NUMBERS:
        _demand(type(plain[name]) in (int, float), name)
    _demand(plain["finished_at"] is None or is_whole(plain["finished_at"]), "finished_at")
    _demand(plain["divergence"] is None or isinstance(plain["divergence"], str), "divergence")
    _demand(isinstance(plain["best"], dict), "best")
    _demand(len(lengths) == 2 and all(is_whole(each) and each >= 0 for each in lengths), "lengths")
    weights = model.state_dict()
    for name, found in (("model", state["model"]), ("best_state", plain["best_state"])):
        if name == "model" or found is not None:
            _demand(found.keys() == weights.keys(), name)
            _demand(all(found[key].shape == weights[key].shape for key in weights), name)
    for each in state["ranks"]:
        _demand(isinstance(each["loss_sum"], Tensor) and each["loss_sum"].shape == (), "loss_sum")


def load_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load an optimiser's state if its options match this optimiser and its tensors match the shapes of the parameters.

    Raises:
        ValueError: If not. Any other exception means the same.
    """
    for theirs, ours in zip(state["param_groups"], optimizer.param_groups, strict=True):
        common = (theirs.keys() & ours.keys()) - {
            "params",
            "lr",
        }  # another version of torch may have additional options
        _demand(all(theirs[name] == ours[name] for name in common), "optimizer")
    names = [set(group) for group in optimizer.param_groups]
    optimizer.load_state_dict(state)
    _demand(all(had <= set(group) for had, group in zip(names, optimizer.param_groups, strict=True)), "optimizer")
    for parameter, kept in optimizer.state.items():
        tensors = [each for each in kept.values() if isinstance(each, Tensor)]
        _demand(all(each.shape in ((), parameter.shape) for each in tensors), "optimizer")


def _demand(good: bool, name: str) -> None:
    if not good:
        raise ValueError(f"{name} does not have the form that this run saves")
