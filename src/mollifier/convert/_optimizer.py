"""Add the added parameters to an optimiser, and remove them again with their state."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn
from torch.optim import LBFGS, Optimizer


def check_optimizer(model: nn.Module, optimizer: Optimizer | None, doing: str) -> None:
    """Refuse an optimiser that cannot take the added parameters, or that belongs to another model."""
    if optimizer is None:
        return
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{doing}: optimizer is a {type(optimizer).__name__}; expected a torch.optim.Optimizer")
    if isinstance(optimizer, LBFGS):
        raise ValueError(
            f"{doing}: LBFGS has one group of parameters with a history of all of them, which cannot change. Create a new one after "
            f"{doing}: LBFGS(model.parameters())"
        )
    own = set(model.parameters())
    if not any(parameter in own for group in optimizer.param_groups for parameter in group["params"]):
        raise ValueError(
            f"{doing}: the optimizer has none of the model's parameters. Give the optimizer that trains this model."
        )


def add_to_optimizer(model: nn.Module, optimizer: Optimizer | None, added: Iterable[nn.Parameter]) -> None:
    """Put the added parameters into a separate group, with the settings of the first group and no weight decay."""
    if optimizer is None:
        return
    known = {parameter for group in optimizer.param_groups for parameter in group["params"]}
    new = [parameter for parameter in added if parameter not in known]
    if not new:
        return
    first = optimizer.param_groups[0]
    group = {key: value for key, value in first.items() if key not in ("params", "param_names")}
    if "weight_decay" in group:
        group["weight_decay"] = 0.0
    names = {parameter: name for name, parameter in model.named_parameters()}
    named = "param_names" in first  # an optimiser created with named_parameters() needs names for all parameters
    optimizer.add_param_group({**group, "params": [(names[p], p) for p in new] if named else new})


def remove_from_optimizer(optimizer: Optimizer | None, added: Iterable[nn.Parameter]) -> None:
    """Remove the added parameters and their state, so that the optimiser is that of the plain model again."""
    if optimizer is None:
        return
    ours = set(added)
    kept = []
    for group in optimizer.param_groups:
        stays = [parameter not in ours for parameter in group["params"]]
        for key in ("params", "param_names"):
            if key in group:
                group[key][:] = [value for value, stay in zip(group[key], stays, strict=True) if stay]
        if group["params"] or all(stays):  # (a group that was empty before was not added by us)
            kept.append(group)
    optimizer.param_groups[:] = kept
    for parameter in ours:
        optimizer.state.pop(parameter, None)
