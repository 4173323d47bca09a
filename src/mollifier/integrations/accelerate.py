"""Mollification in a loop of Hugging Face Accelerate: ``pip install 'mollifier[accelerate]'``."""

from __future__ import annotations

from typing import Any

from accelerate import Accelerator  # type: ignore[import-untyped]
from torch import Tensor, nn

from mollifier.anneal import Annealer
from mollifier.integrations import State, drop_added, end, named_levels


class AcceleratedAnnealer(State):
    """Anneal once per optimiser step, also with gradient accumulation, and save the state in the accelerator's checkpoints.

        >>> import torch, mollifier
        >>> from accelerate import Accelerator
        >>> accelerator = Accelerator(cpu=True)
        >>> model = mollifier.mollify(nn.Sequential(nn.Linear(4, 8), nn.Sigmoid(), nn.Linear(8, 1)))
        >>> model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
        >>> annealer = AcceleratedAnnealer(accelerator, model, horizon=2)
        >>> for _ in range(2):
        ...     loss = model(torch.randn(8, 4)).square().mean()
        ...     accelerator.backward(loss)
        ...     optimizer.step()
        ...     annealer.step(loss)
        >>> annealer.end()                                  # the plain network is back
        >>> sorted(model.state_dict())
        ['0.bias', '0.weight', '2.bias', '2.weight']

    ``accelerator.save_state`` writes the plain network's weights, which load into the plain model at any level, and separately
    everything else that ``accelerator.load_state`` needs.

    Args:
        accelerator: The accelerator.
        model: The mollified model, as ``accelerator.prepare`` returned it.
        log: Whether to log the levels to the accelerator's trackers, as ``mollifier/level_<block>``.
        **annealer: Arguments of `Annealer`, e.g. ``k`` or ``horizon``.
    """

    def __init__(self, accelerator: Accelerator, model: nn.Module, *, log: bool = True, **annealer: Any) -> None:
        self.accelerator, self.log = accelerator, log
        self.model: nn.Module = accelerator.unwrap_model(model)
        self.annealer = Annealer(self.model, **annealer)
        accelerator.register_for_checkpointing(self)
        accelerator.register_save_state_pre_hook(self._only_plain_weights)

    def step(self, loss: Tensor | float) -> None:
        """Anneal, if the optimiser has stepped."""
        if not self.accelerator.sync_gradients:
            return
        self.annealer.step(loss)
        if self.log and self.accelerator.trackers:
            self.accelerator.log(named_levels(self.annealer), step=self.annealer.updates)

    def end(self) -> None:
        """Restore the plain network, if annealing has ended by now; otherwise warn."""
        end(self.model, self.annealer)

    def _only_plain_weights(self, models: list[nn.Module], weights: list[dict[str, Any]], folder: str) -> None:
        for each in weights:
            drop_added(None, each)
