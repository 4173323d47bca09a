"""Mollification as a callback for Lightning's Trainer: ``pip install 'mollifier[lightning]'``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn

from mollifier.anneal import Annealer
from mollifier.convert import is_mollified, mollify
from mollifier.integrations import end


class MollifierCallback(Callback):
    """Mollifies before the optimisers are made, anneals once an optimiser step, restores at the end.

    ``Trainer(callbacks=[MollifierCallback(k=100.0)])``. The levels are logged as ``mollifier/level_<block>``, and the annealer's state
    is in the trainer's checkpoints: a resumed fit goes on where it was.

    Args:
        model: Name of the submodule to mollify, e.g. ``"encoder"``; by default the LightningModule itself.
        options: Arguments of `mollify`.
        restore: Restore the plain network at the end of fit, if annealing has ended by then.
        log: Log the levels.
        **annealer: Arguments of `Annealer`, e.g. ``k`` or ``horizon``.
    """

    def __init__(
        self,
        model: str = "",
        *,
        options: Mapping[str, Any] | None = None,
        restore: bool = True,
        log: bool = True,
        **annealer: Any,
    ) -> None:
        self.model, self.options, self.restore, self.log = model, dict(options or {}), restore, log
        self.settings = annealer
        self.annealer: Annealer | None = None
        self._saved: dict[str, Any] | None = None
        self._updates = 0

    def _target(self, module: LightningModule) -> nn.Module:
        return module.get_submodule(self.model)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Mollify, before the weights of a checkpoint are loaded and the optimisers made."""
        if stage == "fit" and not is_mollified(self._target(pl_module)):
            mollify(self._target(pl_module), **self.options)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Make the annealer, or take a saved one up again."""
        self.annealer = Annealer(self._target(pl_module), **self.settings)
        if self._saved is not None:
            self.annealer.load_state_dict(self._saved)
        self._updates = trainer.global_step

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Anneal, if the optimiser has stepped (not while gradients are accumulated)."""
        if self.annealer is None or trainer.global_step == self._updates:
            return
        self._updates = trainer.global_step
        self.annealer.step(outputs["loss"] if isinstance(outputs, Mapping) else outputs)
        if self.log:
            levels = enumerate(self.annealer.levels, 1)
            pl_module.log_dict({f"mollifier/level_{number}": level for number, level in levels})

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restore."""
        if self.restore and self.annealer is not None:
            end(self._target(pl_module), self.annealer)

    def state_dict(self) -> dict[str, Any]:
        """The annealer's."""
        return {} if self.annealer is None else {"annealer": self.annealer.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Kept until fit starts."""
        self._saved = state_dict.get("annealer")
