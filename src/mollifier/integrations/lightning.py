"""Mollification as a callback for Lightning's Trainer: ``pip install 'mollifier[lightning]'``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn
from torch.utils.hooks import RemovableHandle

from mollifier.anneal import Annealer
from mollifier.convert import is_mollified, mollify, set_level
from mollifier.integrations import added_state, drop_added, end, load_added_state, named_levels

AVERAGING = {"WeightAveraging", "StochasticWeightAveraging"}


class MollifierCallback(Callback):
    """Mollify before the optimisers are created, anneal once per optimiser step, and restore at the end.

    ``Trainer(callbacks=[MollifierCallback(k=100.0)])``. The levels are logged as ``mollifier/level_<block>``. Checkpoints hold
    the plain network's weights, so that ``load_from_checkpoint`` of the plain module loads them at any level. Everything else that a resumed
    fit needs is in the callback's own state. Put callbacks that average weights after this one.

    Args:
        model: Name of the submodule to mollify, e.g. ``"encoder"``; by default the LightningModule itself.
        options: Arguments of `mollify`.
        restore: Whether to restore the plain network at the end of fit, if annealing has ended by then.
        log: Whether to log the levels.
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
        self._added: dict[str, Any] = {}
        self._module: nn.Module | None = None
        self._plain: RemovableHandle | None = None

    def _target(self, module: LightningModule) -> nn.Module:
        return module.get_submodule(self.model)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Mollify, before the weights of a checkpoint are loaded and the optimisers are created."""
        if stage != "fit":
            return
        before = trainer.callbacks[: trainer.callbacks.index(self)]  # type: ignore[attr-defined]
        averaging = next((each for each in before if AVERAGING & {kind.__name__ for kind in type(each).__mro__}), None)
        if averaging is not None:
            name = type(averaging).__name__
            raise ValueError(
                f"{name} comes before MollifierCallback and would average the plain model's parameters with the mollified "
                f"model's. Put it after: callbacks=[MollifierCallback(...), {name}(...)]"
            )
        self._module = self._target(pl_module)
        if not is_mollified(self._module):
            mollify(self._module, **self.options)
        if self._plain is None:  # for ModelCheckpoint(save_weights_only=True), which asks no callback
            self._plain = pl_module.register_state_dict_post_hook(drop_added)  # type: ignore[no-untyped-call]

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Create the annealer, or resume a saved one."""
        if self._added:
            load_added_state(self._target(pl_module), self._added)
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
            pl_module.log_dict(named_levels(self.annealer))

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Validate averaged weights at the current levels instead of averaged ones."""
        if batch_idx == 0 and self.annealer is not None and is_mollified(self._target(pl_module)):
            set_level(self._target(pl_module), self.annealer.levels)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restore."""
        if self._plain is not None:
            self._plain.remove()
            self._plain = None
        if self.restore and self.annealer is not None:
            end(self._target(pl_module), self.annealer)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Leave the plain network's weights in the checkpoint, also after fit."""
        drop_added(pl_module, checkpoint["state_dict"])

    def state_dict(self) -> dict[str, Any]:
        """Return the annealer's state, and what mollification added to the model."""
        if self.annealer is None or self._module is None:
            return {}
        return {"annealer": self.annealer.state_dict(), "added": added_state(self._module)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep a saved state until fit starts."""
        self._saved, self._added = state_dict.get("annealer"), state_dict.get("added", {})
