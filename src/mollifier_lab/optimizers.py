"""The optimisers of the settings."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from mollifier_lab.settings import Settings


def make_optimizer(settings: Settings, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimiser that the settings name.

    >>> from mollifier_lab.settings import settings_for
    >>> make_optimizer(settings_for("mnist"), [nn.Parameter(torch.zeros(1))]).__class__.__name__
    'RMSprop'
    """
    lr, momentum, decay = settings.lr, settings.momentum, settings.weight_decay
    parameters = list(parameters)
    if settings.optimizer == "adam":
        return torch.optim.Adam(parameters, lr, weight_decay=decay)
    if settings.optimizer == "rmsprop":
        return torch.optim.RMSprop(parameters, lr, momentum=momentum, weight_decay=decay)
    nesterov = settings.optimizer == "nesterov" and momentum > 0
    return torch.optim.SGD(parameters, lr, momentum=momentum, weight_decay=decay, nesterov=nesterov)
