"""Mollification as a handler for PyTorch Ignite: ``pip install 'mollifier[ignite]'``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ignite.engine import Engine, Events
from torch import nn

from mollifier.anneal import Annealer
from mollifier.convert import plain_state_dict
from mollifier.integrations import State, end, named_levels


class MollifierHandler(State):
    """Anneal once per iteration, and restore the plain network at the end of the run.

    ``MollifierHandler(model, horizon=1000).attach(trainer)``. The levels are in ``trainer.state.metrics`` as
    ``mollifier/level_<block>``, where Ignite's loggers find them. For checkpoints:
    ``Checkpoint({"model": handler.plain, "mollifier": handler, "optimizer": optimizer, "trainer": trainer}, …)``; ``"model"`` then
    holds the plain network's weights at any level.

    Args:
        model: The mollified model.
        loss: Returns the loss from the output of the engine's process function; by default that output is the loss itself.
        restore: Whether to restore the plain network at the end of the run, if annealing has ended by then.
        **annealer: Arguments of `Annealer`, e.g. ``k`` or ``horizon``.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        loss: Callable[[Any], Any] = lambda output: output,
        restore: bool = True,
        **annealer: Any,
    ) -> None:
        self.model, self.loss, self.restore = model, loss, restore
        self.annealer = Annealer(model, **annealer)
        self.plain = PlainWeights(model)

    def attach(self, engine: Engine) -> None:
        """Follow this engine's iterations. Attach it before the handlers that write checkpoints."""
        engine.add_event_handler(Events.ITERATION_COMPLETED, self._anneal)
        engine.add_event_handler(Events.COMPLETED, self._end)

    def _anneal(self, engine: Engine) -> None:
        self.annealer.step(self.loss(engine.state.output))
        engine.state.metrics.update(named_levels(self.annealer))

    def _end(self, engine: Engine) -> None:
        if self.restore:
            end(self.model, self.annealer)


class PlainWeights:
    """The plain network's weights of a mollified model, for Ignite's ``Checkpoint``."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def state_dict(self) -> dict[str, Any]:
        """Return the weights, without what mollification added."""
        return plain_state_dict(self.model)

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Load the weights into the model, mollified or not."""
        self.model.load_state_dict(state, strict=strict)
