"""Measure batch norm's running statistics again if the levels have changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

import mollifier


class Statistics:
    """Remember at which levels the statistics were measured last. A network that never had levels is left alone."""

    def __init__(self) -> None:
        self.measured: list[float] = []

    @torch.no_grad()
    def refresh(self, model: nn.Module, run: Callable[[int], Any], batches: int) -> bool:
        """Measure the statistics if the levels differ from last time; ``run(number)`` passes a batch through the model.

        Everything except the norms is in eval(), as in the evaluation that follows: the network of expected values is measured.
        """
        now = mollifier.levels(model) if mollifier.is_mollified(model) else [0.0] * len(self.measured)
        norms = [part for part in model.modules() if isinstance(part, _BatchNorm)]
        if now == self.measured or not norms or batches < 1:
            return False
        self.measured = now
        modes = {part: part.training for part in model.modules()}
        momenta = [norm.momentum for norm in norms]
        model.eval()
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # the mean over all batches
            norm.train()
        try:
            for number in range(batches):
                run(number)
        finally:
            for norm, momentum in zip(norms, momenta, strict=True):
                norm.momentum = momentum
            for part, mode in modes.items():
                part.training = mode
        return True
