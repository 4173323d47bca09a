"""Mollification as a callback for the Trainer of transformers: ``pip install 'mollifier[transformers]'``."""

from __future__ import annotations

import base64
import io
from typing import Any

import torch
from transformers.trainer_callback import ExportableState, TrainerCallback

from mollifier.anneal import Annealer
from mollifier.integrations import added_state, end, load_added_state


class MollifierCallback(TrainerCallback, ExportableState):
    """Anneal a mollified model once per optimiser step, and restore it at the end.

    ``Trainer(model=mollifier.mollify(model, blocks=[...]), callbacks=[MollifierCallback(k=100.0)], ...)``. Callbacks of the Trainer
    see only the logged loss, so v is updated every ``logging_steps``. Its checkpoints hold the plain network's weights, like
    ``save_pretrained`` of a mollified model. Everything else that resuming needs is in the callback's state (``trainer_state.json``,
    with ``restore_callback_states_from_checkpoint=True``).

    Args:
        restore: Whether to restore the plain network at the end of training, if annealing has ended by then.
        **annealer: Arguments of `Annealer` that JSON can hold, e.g. ``k`` or ``horizon``.
    """

    def __init__(self, restore: bool = True, **annealer: Any) -> None:
        self.restore, self.settings = restore, annealer
        self.annealer: Annealer | None = None
        self.saved: dict[str, Any] | None = None
        self.added: str | None = None
        self.loss: float | None = None
        self._model: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **rest: Any) -> None:
        """Create the annealer, or resume a saved one."""
        self._model = model
        if self.added is not None:
            file = io.BytesIO(base64.b64decode(self.added))
            load_added_state(model, torch.load(file, map_location="cpu", weights_only=True))
        self.annealer = Annealer(model, **self.settings)
        if self.saved is not None:
            lists = {key: value for key, value in self.saved.items() if isinstance(value, list)}
            tensors = {key: torch.tensor(value, dtype=torch.float64) for key, value in lists.items()}
            self.annealer.load_state_dict({**self.saved, **tensors})

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **rest: Any) -> None:
        """Remember the loss."""
        self.loss = (logs or {}).get("loss", self.loss)

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Anneal."""
        assert self.annealer is not None
        self.annealer.step(self.loss)

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **rest: Any) -> None:
        """Restore."""
        if self.restore and self.annealer is not None:
            end(model, self.annealer)

    def state(self) -> dict[str, Any]:
        """Return the state for the Trainer's checkpoint, which is JSON."""
        saved = added = None
        if self.annealer is not None:
            saved = {k: v.tolist() if isinstance(v, torch.Tensor) else v for k, v in self.annealer.state_dict().items()}
            file = io.BytesIO()
            torch.save(added_state(self._model), file)
            added = base64.b64encode(file.getvalue()).decode()
        attributes = {"saved": saved, "added": added, "loss": self.loss}
        return {"args": {"restore": self.restore, **self.settings}, "attributes": attributes}
