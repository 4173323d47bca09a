"""How a module of somebody else's is mollified in place: its class is swapped for a subclass, and swapped back.

Nothing is wrapped, so parameter names, keys and objects stay what they were (torch's own parametrize works this way). All that
is added lives in one child module, a `Holder`, under the name ``_mollifier``.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, cast

import torch
from torch import Tensor, nn

from mollifier.convert._safe import allow_like
from mollifier.nn import Copy, Levelled, NoisyActivation
from mollifier.nn._fused import Block, idle, run
from mollifier.nn._levelled import Added
from mollifier.nn.block import around
from mollifier.nn.recurrent import CellForward, RecurrentForward

KEY = "_mollifier"
TRACED = "_mollifier_traced"


class Holder(Added):
    """What mollification adds to one module.

    Attributes:
        noise: Of an activation module.
        copy: Around a block.
        copies: Around the runs of a Sequential, by the index of their last module.
        starts: Of those runs: index of the first module to index of the last.
        inner: Noise and copies for the functional activations of a traced forward, and for function-valued attributes.
        functions: Those attributes' plain values.
    """

    def __init__(self) -> None:
        super().__init__()
        self.noise: NoisyActivation | None = None
        self.copy: Copy | None = None
        self.copies: nn.ModuleDict | None = None
        self.inner: nn.ModuleDict | None = None
        self.starts: dict[int, int] = {}
        self.functions: dict[str, Callable[..., Any]] = {}

    def add_copy(self, start: int, stop: int, copy: Copy) -> None:
        """Put a copy around modules start to stop of a Sequential."""
        self.copies = self.copies or nn.ModuleDict().train(self.training)
        self.copies[str(stop)] = copy
        self.starts[start] = stop

    def add_inner(self, name: str, part: Levelled) -> None:
        """Put noise or a copy into a forward, under this name."""
        self.inner = self.inner or nn.ModuleDict().train(self.training)
        self.inner[name] = part


class Spot(nn.Module):
    """A module whose class was swapped. Only the subclasses below are used, in front of the plain class."""

    _plain_class: type[nn.Module]
    _mixins: tuple[type[Spot], ...]
    _mollifier: Holder

    def __reduce_ex__(self, protocol: Any) -> Any:
        # The class is made at run time: pickle and deepcopy rebuild it from its parts, which can be imported.
        make, args, state, *rest = cast(tuple[Any, ...], super().__reduce_ex__(protocol))
        assert make is copyreg.__newobj__, make  # type: ignore[attr-defined]
        state = {key: value for key, value in state.items() if key != TRACED}
        return (_rebuild, (self._mixins, self._plain_class, *args[1:]), state, *rest)


_CLASSES: dict[tuple[Any, ...], type[nn.Module]] = {}


def spot_class(mixins: tuple[type[Spot], ...], plain: type[nn.Module]) -> type[nn.Module]:
    """The subclass of ``plain`` with these mixins in front."""
    key = (mixins, plain)
    if key not in _CLASSES:
        space = {"_plain_class": plain, "_mixins": mixins, "__module__": plain.__module__, "__doc__": plain.__doc__}
        _CLASSES[key] = type(f"Mollified{plain.__name__}", (*mixins, plain), space)
    return _CLASSES[key]


def _rebuild(mixins: tuple[type[Spot], ...], plain: type[nn.Module], *args: Any) -> Any:
    if not (issubclass(plain, nn.Module) and all(issubclass(mixin, Spot) for mixin in mixins)):
        raise TypeError(f"not a mollified module: {mixins}, {plain}")  # a file may say anything
    kind = spot_class(mixins, plain)
    allow_like(kind, plain)
    return kind.__new__(kind, *args)


class ActivationSpot(Spot):
    """An activation module that is noisy while its level is above 0."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        noise: NoisyActivation = self._modules[KEY]._modules["noise"]  # type: ignore[union-attr, assignment]
        if noise.known_level() != 0.0:
            return noise(*args, **kwargs)
        out = super().forward(*args, **kwargs)
        return noise.idle(out) if torch.distributed.is_initialized() else out


def noise_of(module: nn.Module) -> NoisyActivation | None:
    """Of an activation module that is mollified."""
    if not isinstance(module, ActivationSpot):
        return None
    return module._modules[KEY]._modules["noise"]  # type: ignore[union-attr, return-value]


class BlockSpot(Spot):
    """Any module, with the copy of its first tensor argument around it."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        below = next((arg for arg in chain(args, kwargs.values()) if isinstance(arg, Tensor)), None)
        if below is None:
            raise TypeError(f"the mollified block {type(self).__name__} was called without a tensor: nothing to copy")
        return around(cast(Copy, self._mollifier.copy), super().forward, below, args, kwargs)


class HiddenHolder(Spot):
    """Keeps the holder out of the items of an nn.Sequential or nn.ModuleList."""

    def __iter__(self) -> Iterator[nn.Module]:
        return (module for name, module in self._modules.items() if name != KEY and module is not None)

    def __len__(self) -> int:
        return len(self._modules) - (KEY in self._modules)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):  # a slice is a container of its own, with no blocks around its modules
            modules = list(self)[index]
            return nn.Sequential(*modules) if isinstance(self, nn.Sequential) else nn.ModuleList(modules)
        return super().__getitem__(index)  # type: ignore[misc]


class SequentialSpot(HiddenHolder):
    """An nn.Sequential with the copy around runs of its modules."""

    def forward(self, input: Tensor) -> Tensor:
        # Straight from the dictionaries: this is asked at every call, and must cost nothing at level 0.
        holder: Holder = self._modules[KEY]  # type: ignore[assignment]
        copies: dict[str, Copy] = holder._modules["copies"]._modules  # type: ignore[union-attr, assignment]
        modules = [module for module in self._modules.values() if module is not holder and module is not None]
        if idle(*copies.values()):
            for module in modules:
                input = module(input)
            return input
        index = 0
        while index < len(modules):
            blocks = []
            while (stop := holder.starts.get(index, -1)) >= 0:
                blocks.append(Block(modules[index : stop + 1], noise_of(modules[stop]), copies[str(stop)]))
                index = stop + 1
            if blocks:
                input = run(blocks, input)
                continue
            input, index = modules[index](input), index + 1
        return input


class TracedSpot(Spot):
    """A module whose own forward was traced, so that the functional activations in it could be mollified."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        # At level 0 the plain forward runs; under torch.distributed the traced one goes on, see Levelled.idle.
        if not any_active(cast(nn.Module, self._mollifier.inner)) and not torch.distributed.is_initialized():
            return super().forward(*args, **kwargs)
        return traced(self)(self, *args, **kwargs)

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        traced(self)


def traced(module: TracedSpot) -> Callable[..., Any]:
    """The traced forward, made where there is none: by mollify, and in a copy or a model from a file."""
    if TRACED not in module.__dict__:
        from mollifier.convert._trace import traced_forward

        module.__dict__[TRACED] = traced_forward(module, module._plain_class, module._mollifier)
    forward: Callable[..., Any] = module.__dict__[TRACED]
    return forward


class RecurrentSpot(RecurrentForward, Spot):  # type: ignore[misc]
    """An nn.LSTM, nn.GRU or nn.RNN; its ``_mollifier`` is a `RecurrentMollifier`."""


class CellSpot(CellForward, Spot):  # type: ignore[misc]
    """An nn.LSTMCell, nn.GRUCell or nn.RNNCell, likewise."""


class EncoderLayerSpot(Spot):
    """Keeps nn.TransformerEncoderLayer off its fused kernel, which knows nothing of us, while a level is above 0."""

    @property
    def activation_relu_or_gelu(self) -> int:
        return 0 if any_active(self) else cast(int, self.__dict__["activation_relu_or_gelu"])


class EncoderSpot(Spot):
    """Keeps nn.TransformerEncoder off nested tensors while a level is above 0; only that kernel takes them."""

    @property
    def use_nested_tensor(self) -> bool:
        return not any_active(self) and cast(bool, self.__dict__["use_nested_tensor"])


def any_active(module: nn.Module) -> bool:
    """Is any level inside known to be above 0, or not known to be 0?"""
    return any(part.active for part in module.modules() if isinstance(part, Levelled))


def holder_of(module: nn.Module) -> Holder:
    """The module's holder, made where there is none."""
    if KEY not in module._modules:
        module._modules[KEY] = Holder().train(module.training)
    return cast(Holder, module._modules[KEY])


_OUTERMOST_FIRST: tuple[type[Spot], ...] = (
    BlockSpot,
    EncoderLayerSpot,
    EncoderSpot,
    TracedSpot,
    RecurrentSpot,
    CellSpot,
    ActivationSpot,
    SequentialSpot,
    HiddenHolder,
)


def swap(module: nn.Module, mixin: type[Spot]) -> None:
    """Put a mixin in front of the module's class, beside those that are there."""
    mixins = {mixin, *(module._mixins if isinstance(module, Spot) else ())}
    plain = module._plain_class if isinstance(module, Spot) else type(module)
    if isinstance(module, (nn.Sequential, nn.ModuleList)) and SequentialSpot not in mixins:
        mixins.add(HiddenHolder)
    module.__class__ = spot_class(tuple(sorted(mixins, key=_OUTERMOST_FIRST.index)), plain)


def unswap(module: nn.Module) -> None:
    """Take everything away again that mollification added to this one module."""
    holder = module._modules.pop(KEY, None)
    if isinstance(holder, Holder):
        module.__dict__.update(holder.functions)
    module.__dict__.pop(TRACED, None)
    if isinstance(module, Spot):
        module.__class__ = module._plain_class  # type: ignore[assignment]
