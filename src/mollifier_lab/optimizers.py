"""The optimisers of the settings."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import mollifier
from mollifier_lab.settings import Settings


def make_optimizer(settings: Settings, model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimiser that the settings name, for a model that the method has been applied to.

    >>> from mollifier_lab.settings import settings_for
    >>> make_optimizer(settings_for("mnist"), nn.Linear(1, 1)).__class__.__name__
    'RMSprop'
    """
    lr, momentum, decay = settings.lr, settings.momentum, settings.weight_decay
    groups = parameter_groups(model, decay)
    # The fused form updates each tensor in one pass: on the CPU, Adam updates 72 layers of 100 units in a quarter of the time, and SGD the parity
    # network in a third. Weights that are stored column by column (SparseInputLinear) would be copied first, which costs more than it saves.
    # On accelerators it is not used, because Fabric cannot clip gradients in half precision with it.
    fused = all(each.device.type == "cpu" and each.is_contiguous() for each in model.parameters())
    if settings.optimizer == "adam":
        return torch.optim.Adam(groups, lr, weight_decay=decay, fused=fused)
    if settings.optimizer == "rmsprop":
        return torch.optim.RMSprop(groups, lr, momentum=momentum, weight_decay=decay)
    nesterov = settings.optimizer == "nesterov" and momentum > 0
    return torch.optim.SGD(groups, lr, momentum=momentum, weight_decay=decay, nesterov=nesterov, fused=fused)


def parameter_groups(model: nn.Module, decay: float) -> list[dict[str, Any]]:
    """Return the network's own parameters, which decay, and those that mollification adds (the a, projections), which do not.

    A decaying a would reduce the noise independently of the schedule, and the plain network has no such parameter.

    >>> model = mollifier.mollify(nn.Sequential(nn.Linear(2, 2), nn.Sigmoid(), nn.Linear(2, 1)))
    >>> [(len(group["params"]), group.get("weight_decay")) for group in parameter_groups(model, 1e-4)]
    [(4, None), (1, 0.0)]
    """
    plain = mollifier.plain_state_dict(model)
    added = {name for name, _ in model.named_parameters() if name not in plain}
    if not decay or not added:
        return [{"params": list(model.parameters())}]
    own = [each for name, each in model.named_parameters() if name not in added]
    rest = [each for name, each in model.named_parameters() if name in added]
    return [{"params": own}, {"params": rest, "weight_decay": 0.0}]
