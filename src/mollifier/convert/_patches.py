"""Mollify a user's module in place: its class is replaced by a subclass, and put back by `restore`.

Nothing is wrapped, so parameter names, keys and objects stay the same (torch's own parametrize works this way). Everything that
is added lives in one child module, a `MollifierState`, under the name ``_mollifier``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import nn

from mollifier.convert._classes import KEY, Patch, patch_class, while_patched
from mollifier.convert._containers import ContainerPatch, SequentialPatch
from mollifier.convert._live import BoundaryPatch, ForwardPatch, warn_once
from mollifier.convert._runs import OWN_RUNS, RUNS, RunEnd, RunRecord, called, followed
from mollifier.convert._structure import argument_names, first_tensors
from mollifier.nn import Annealed, Copy, NoisyActivation
from mollifier.nn._annealed import AddedModule
from mollifier.nn.copy import around
from mollifier.nn.recurrent import CellForward, RecurrentForward


class MollifierState(AddedModule):
    """Everything that mollification adds to one module.

    Attributes:
        noise: The noise of an activation module that does not end a run.
        copy: The copy around a block.
        ends: The ends of the runs that end in this activation module, or in an activation that this module's own methods call.
        loose: The noise of the other activations that its methods call, and of function-valued attributes.
        functions: The plain values of these attributes, and of attributes that hold one of the module's own methods.
        alone: Whether an activation module is noisy even if its input does not come from its layer. It is not if it is the output there.
        calls: The activations that its methods are known to call, by key and name: the numbers of the runs that end there, and -1 if
            there is a call that ends none.
        places: Where in the code the calls of each key are, and for which Python (``python``) that holds.
        in_eval: The keys of its calls in eval mode, and by which keys they are known; None if they are the same in both modes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.noise: NoisyActivation | None = None
        self.copy: Copy | None = None
        self.ends: nn.ModuleList | None = None
        self.loose: nn.ModuleDict | None = None
        self.functions: dict[str, Callable[..., Any]] = {}
        self.alone = True
        self.calls: dict[str, dict[str, list[int]]] = {}
        self.places: dict[str, list[tuple[int, ...]]] = {}
        self.python = sys.version
        self.in_eval: dict[str, str] | None = None

    def add_end(self, end: RunEnd) -> int:
        """Let a run end here, and return its number."""
        self.ends = self.ends or nn.ModuleList().train(self.training)
        self.ends.append(end.train(self.training))
        return len(self.ends) - 1

    def add_call(self, key: str, name: str, end: int = -1) -> None:
        """Add a call that is known: the number of the run that it ends, or -1."""
        self.calls.setdefault(key, {}).setdefault(name, []).append(end)

    def add_loose(self, name: str, noise: NoisyActivation) -> None:
        """Add noise for a function call in a forward, under this name."""
        self.loose = self.loose or nn.ModuleDict().train(self.training)
        self.loose[name] = noise


class LayerPatch(Patch):
    """An affine layer that begins a run."""

    @while_patched
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return called(self, super().forward, args, kwargs)


class BetweenPatch(Patch):
    """A norm or dropout between the layer and the activation of a run."""

    @while_patched
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return followed(self, super().forward, args, kwargs)


class OwnerPatch(Patch):
    """A module whose own forward calls the members of runs: what a compiled forward remembers of them must not be left in its graph."""

    @while_patched
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            return super().forward(*args, **kwargs)
        for run in self.__dict__[OWN_RUNS]:
            run.compile(True)
        out = super().forward(*args, **kwargs)
        for run in self.__dict__[OWN_RUNS]:
            run.compile(False)
        return out


class ActivationPatch(Patch):
    """An activation module: noisy while its level is above 0, and the end of the runs that lead to it."""

    @while_patched
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        parts = self._modules[KEY]._modules  # type: ignore[union-attr]
        ends, noise = parts.get("ends"), parts.get("noise")
        if ends is None:
            return self._loose(noise, super().forward, args, kwargs)  # type: ignore[arg-type]
        x = args[0] if args else kwargs["input"]
        known: list[RunEnd] = list(ends._modules.values())  # type: ignore[arg-type]
        for end in known:
            if (below := end.arrival(x)) is not None:
                return end(below, x, super().forward)
        # the input did not come from its layer, so there is nothing to copy
        alone = noise is None and len(known) == 1 and self._modules[KEY].alone  # type: ignore[union-attr]
        own = known[0].noise if alone else noise
        if alone and known[0].copies and not torch.compiler.is_compiling():
            warn_once(
                cast(nn.Module, self._modules[KEY]),
                f"a mollified {self._plain_class.__name__} was called on a tensor that did not come from its layer, so nothing "
                "is copied there. If you replaced the layer, restore the model and mollify it again.",
            )
        return self._loose(own, super().forward, args, kwargs)  # type: ignore[arg-type]

    def _loose(
        self, noise: NoisyActivation | None, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if noise is not None and noise.active:
            return noise(*args, **kwargs)
        out = forward(*args, **kwargs)
        return noise.pass_through(out) if noise is not None and torch.distributed.is_initialized() else out


class BlockPatch(Patch):
    """Any module, with the copy of its first argument that is a tensor around it."""

    _names: tuple[str, ...]

    @classmethod
    def methods_for(cls, plain: type[nn.Module]) -> dict[str, Any]:
        """Return the names of the arguments, since torch.compile cannot look them up."""
        return {"_names": argument_names(plain)}

    @while_patched
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        given = first_tensors(self._names, args, kwargs)
        if not given:
            raise TypeError(f"the mollified block {type(self).__name__} was called without a tensor: nothing to copy")
        state = cast(MollifierState, self._mollifier)
        return around(cast(Copy, state.copy), super().forward, given[0], args, kwargs)


class RecurrentPatch(RecurrentForward, Patch):  # type: ignore[misc]
    """An nn.LSTM, nn.GRU or nn.RNN; its ``_mollifier`` is a `RecurrentMollifier`."""

    forward = while_patched(RecurrentForward.forward)


class CellPatch(CellForward, Patch):  # type: ignore[misc]
    """An nn.LSTMCell, nn.GRUCell or nn.RNNCell, with the same state."""

    forward = while_patched(CellForward.forward)


class EncoderLayerPatch(Patch):
    """Avoid the fused kernel of nn.TransformerEncoderLayer while a level is above 0, since it ignores mollification."""

    @property
    def activation_relu_or_gelu(self) -> int:
        return 0 if any_active(self) else cast(int, self.__dict__["activation_relu_or_gelu"])


class EncoderPatch(Patch):
    """Avoid nested tensors in nn.TransformerEncoder while a level is above 0, since only the fused kernel takes them."""

    @property
    def use_nested_tensor(self) -> bool:
        return not any_active(self) and cast(bool, self.__dict__["use_nested_tensor"])


def any_active(module: nn.Module) -> bool:
    """Return whether any level inside is above 0, or not known to be 0."""
    return any(part.active for part in module.modules() if isinstance(part, Annealed))


def state_of(module: nn.Module) -> MollifierState:
    """Return the module's state, creating it if necessary."""
    if KEY not in module._modules:
        module._modules[KEY] = MollifierState().train(module.training)
    return cast(MollifierState, module._modules[KEY])


OUTERMOST_FIRST: tuple[type[Patch], ...] = (
    BoundaryPatch,
    BlockPatch,
    EncoderLayerPatch,
    EncoderPatch,
    OwnerPatch,
    ForwardPatch,
    RecurrentPatch,
    CellPatch,
    ActivationPatch,
    LayerPatch,
    BetweenPatch,
    SequentialPatch,
    ContainerPatch,
)


def patch(module: nn.Module, mixin: type[Patch]) -> None:
    """Put a mixin in front of the module's class, in addition to those that are there."""
    mixins = {mixin}
    if isinstance(module, (nn.Sequential, nn.ModuleList, nn.ModuleDict)) and KEY in module._modules:
        mixins.add(ContainerPatch)
    patch_class(module, mixins, OUTERMOST_FIRST)


def join_run(module: nn.Module, run: RunRecord, mixin: type[Patch]) -> None:
    """Make a module part of a run."""
    module.__dict__.setdefault(RUNS, []).append(run)
    patch(module, mixin)


def own_run(module: nn.Module, run: RunRecord) -> None:
    """Make a module the owner of a run, whose own forward calls the members."""
    runs: list[RunRecord] = module.__dict__.setdefault(OWN_RUNS, [])
    if run not in runs:
        runs.append(run)
    patch(module, OwnerPatch)
