"""Mollification as a callback for skorch: ``pip install 'mollifier[skorch]'``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skorch import NeuralNet  # type: ignore[import-untyped]
from skorch.callbacks import Callback  # type: ignore[import-untyped]
from torch import nn
from torch.utils.hooks import RemovableHandle

from mollifier.anneal import Annealer
from mollifier.convert import is_mollified, mollify
from mollifier.integrations import State, drop_added, end, named_levels


class MollifierCallback(Callback, State):  # type: ignore[misc]
    """Mollify when training begins, anneal once per training batch, and restore at the end.

    ``NeuralNetClassifier(Net, callbacks=[MollifierCallback(horizon=1000)])``. The levels are in the history as
    ``mollifier/level_<block>``, where skorch's loggers find them. ``save_params`` and the callback ``Checkpoint`` write the plain network's
    weights. To resume in another process, save `state_dict` with them and pass it to a new callback's `load_state_dict`. Put this callback
    before ``LoadInitState``.

    Args:
        options: Arguments of `mollify`.
        restore: Whether to restore the plain network at the end of training, if annealing has ended by then.
        **annealer: Arguments of `Annealer`, e.g. ``k`` or ``horizon``.
    """

    def __init__(self, options: Mapping[str, Any] | None = None, *, restore: bool = True, **annealer: Any) -> None:
        self.options, self.restore, self.settings = options, restore, annealer
        self._saved: Mapping[str, Any] | None = None
        self._plain: RemovableHandle | None = None
        self._annealed: nn.Module | None = None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the arguments, as scikit-learn asks for them: a grid search may vary ``callbacks__mollifier__k``."""
        return {"options": self.options, "restore": self.restore, **self.settings}

    def set_params(self, **params: Any) -> MollifierCallback:
        """Change arguments."""
        self.options, self.restore = params.pop("options", self.options), params.pop("restore", self.restore)
        self.settings.update(params)
        return self

    def on_train_begin(self, net: NeuralNet, *args: Any, **kwargs: Any) -> None:
        """Mollify the module and update its optimiser; resume from a saved state, if there is one."""
        if not is_mollified(net.module_):
            mollify(net.module_, optimizer=net.optimizer_, **(self.options or {}))
            self._annealed = None
        if self._annealed is not net.module_:  # otherwise partial_fit continues
            self.annealer = Annealer(net.module_, **self.settings)
        self.model = self._annealed = net.module_
        if self._saved is not None:
            super().load_state_dict(self._saved)
            self._saved = None
        self._plain = self.model.register_state_dict_post_hook(drop_added)  # type: ignore[no-untyped-call]

    def on_batch_end(self, net: NeuralNet, *args: Any, training: bool = False, loss: Any = None, **kwargs: Any) -> None:
        """Anneal."""
        if training:
            self.annealer.step(loss)

    def on_epoch_end(self, net: NeuralNet, *args: Any, **kwargs: Any) -> None:
        """Write the levels into the history."""
        for name, level in named_levels(self.annealer).items():
            net.history.record(name, level)

    def on_train_end(self, net: NeuralNet, *args: Any, **kwargs: Any) -> None:
        """Restore."""
        if self._plain is not None:
            self._plain.remove()
            self._plain = None
        if self.restore:
            end(self.model, self.annealer, net.optimizer_)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Keep a saved state until training begins."""
        self._saved = state
