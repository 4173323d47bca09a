"""Mollify a user's module in place: its class is replaced by a subclass, and put back by `restore`.

Nothing is wrapped, so parameter names, keys and objects stay the same (torch's own parametrize works this way). Everything that
is added lives in one child module, a `Holder`, under the name ``_mollifier``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from mollifier.convert._classes import KEY, Spot, swap_class
from mollifier.convert._containers import HiddenHolder, SequentialSpot
from mollifier.convert._live import ForwardSpot, ShieldSpot, doubt
from mollifier.convert._runs import RUNS, End, Run, called, followed
from mollifier.nn import Copy, Levelled, NoisyActivation
from mollifier.nn._levelled import Added
from mollifier.nn.block import around
from mollifier.nn.recurrent import CellForward, RecurrentForward


class Holder(Added):
    """Everything that mollification adds to one module.

    Attributes:
        noise: Of an activation module that is called at the end of no run.
        copy: Around a block.
        ends: Of the runs that end in this activation module, or in an activation that this module's own methods call.
        loose: Noise of the other activations that its methods call, and of function-valued attributes.
        functions: Those attributes' plain values.
        alone: Whether an activation module is also noisy when its input does not come from its layer. Not if it is the output there.
        calls: Activations that its methods are known to call: name, and the number of the run that ends there, or -1.
    """

    def __init__(self) -> None:
        super().__init__()
        self.noise: NoisyActivation | None = None
        self.copy: Copy | None = None
        self.ends: nn.ModuleList | None = None
        self.loose: nn.ModuleDict | None = None
        self.functions: dict[str, Callable[..., Any]] = {}
        self.alone = True
        self.calls: dict[str, tuple[str, int]] = {}

    def add_end(self, end: End) -> int:
        """Let a run end here; its number."""
        self.ends = self.ends or nn.ModuleList().train(self.training)
        self.ends.append(end.train(self.training))
        return len(self.ends) - 1

    def add_loose(self, name: str, noise: NoisyActivation) -> None:
        """Add noise for a function call in a forward, under this name."""
        self.loose = self.loose or nn.ModuleDict().train(self.training)
        self.loose[name] = noise


class LayerSpot(Spot):
    """An affine layer that begins a run."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return called(self, super().forward, args, kwargs)


class BetweenSpot(Spot):
    """A norm or dropout between the layer and the activation of a run."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return followed(self, super().forward, args, kwargs)


class ActivationSpot(Spot):
    """An activation module: noisy while its level is above 0, and the end of the runs that lead to it."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        parts = self._modules[KEY]._modules  # type: ignore[union-attr]
        ends, noise = parts.get("ends"), parts.get("noise")
        if ends is None:
            return self._loose(noise, super().forward, args, kwargs)  # type: ignore[arg-type]
        x = args[0] if args else kwargs["input"]
        known: list[End] = list(ends._modules.values())  # type: ignore[arg-type]
        for end in known:
            if end.copies and (below := end.run.finish(x)) is not None:
                return end(below, x, super().forward)
        # the input did not come from its layer, so there is nothing to copy
        alone = noise is None and len(known) == 1 and self._modules[KEY].alone  # type: ignore[union-attr]
        own = known[0].noise if alone else noise
        if alone and known[0].copies and not torch.compiler.is_compiling():
            doubt(
                cast(nn.Module, self._modules[KEY]),
                f"a mollified {self._plain_class.__name__} was called on something that did not come from its layer, so that nothing "
                "is copied there. If you replaced the layer, restore the model and mollify it again.",
            )
        return self._loose(own, super().forward, args, kwargs)  # type: ignore[arg-type]

    def _loose(
        self, noise: NoisyActivation | None, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if noise is not None and noise.active:
            return noise(*args, **kwargs)
        out = forward(*args, **kwargs)
        return noise.idle(out) if noise is not None and torch.distributed.is_initialized() else out


class BlockSpot(Spot):
    """Any module, with the copy of its first tensor argument around it."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        # a list, not next(…, None), which torch 2.8 cannot compile
        given = [arg for arg in (*args, *kwargs.values()) if isinstance(arg, Tensor)]
        if not given:
            raise TypeError(f"the mollified block {type(self).__name__} was called without a tensor: nothing to copy")
        holder = cast(Holder, self._mollifier)
        return around(cast(Copy, holder.copy), super().forward, given[0], args, kwargs)


class RecurrentSpot(RecurrentForward, Spot):  # type: ignore[misc]
    """An nn.LSTM, nn.GRU or nn.RNN; its ``_mollifier`` is a `RecurrentMollifier`."""


class CellSpot(CellForward, Spot):  # type: ignore[misc]
    """An nn.LSTMCell, nn.GRUCell or nn.RNNCell, likewise."""


class EncoderLayerSpot(Spot):
    """Avoid the fused kernel of nn.TransformerEncoderLayer while a level is above 0, since it ignores mollification."""

    @property
    def activation_relu_or_gelu(self) -> int:
        return 0 if any_active(self) else cast(int, self.__dict__["activation_relu_or_gelu"])


class EncoderSpot(Spot):
    """Avoid nested tensors in nn.TransformerEncoder while a level is above 0, since only the fused kernel takes them."""

    @property
    def use_nested_tensor(self) -> bool:
        return not any_active(self) and cast(bool, self.__dict__["use_nested_tensor"])


def any_active(module: nn.Module) -> bool:
    """Return whether any level inside is above 0, or not known to be 0."""
    return any(part.active for part in module.modules() if isinstance(part, Levelled))


def holder_of(module: nn.Module) -> Holder:
    """Return the module's state, creating it if necessary."""
    if KEY not in module._modules:
        module._modules[KEY] = Holder().train(module.training)
    return cast(Holder, module._modules[KEY])


OUTERMOST_FIRST: tuple[type[Spot], ...] = (
    ShieldSpot,
    BlockSpot,
    EncoderLayerSpot,
    EncoderSpot,
    ForwardSpot,
    RecurrentSpot,
    CellSpot,
    ActivationSpot,
    LayerSpot,
    BetweenSpot,
    SequentialSpot,
    HiddenHolder,
)


def swap(module: nn.Module, mixin: type[Spot]) -> None:
    """Put a mixin in front of the module's class, in addition to those that are there."""
    mixins = {mixin}
    if isinstance(module, (nn.Sequential, nn.ModuleList, nn.ModuleDict)) and KEY in module._modules:
        mixins.add(HiddenHolder)
    swap_class(module, mixins, OUTERMOST_FIRST)


def join_run(module: nn.Module, run: Run, mixin: type[Spot]) -> None:
    """Make a module part of a run."""
    module.__dict__.setdefault(RUNS, []).append(run)
    swap(module, mixin)
