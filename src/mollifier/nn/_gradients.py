"""Gradients of zero for what mollification added and level 0 does not use, so that no loop meets a missing one.

A node of the autograd graph for each layer would cost time at every step. One hook on one plain parameter of the model does the
same after backward has reached it.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from mollifier.nn._levelled import Levelled


class _Keeper:
    """The hook: when backward is over, parameters that it did not reach get a gradient of zero, if they have none."""

    def __init__(self) -> None:
        self.parts: WeakKeyDictionary[Levelled, list[nn.Parameter]] = WeakKeyDictionary()
        self.handle: RemovableHandle | None = None
        self._zeros: dict[nn.Parameter, tuple[Tensor, int]] = {}

    def __call__(self, anchor: Tensor) -> None:
        # the engine runs this when all gradients are there (torch's own FSDP uses it so)
        torch.autograd.Variable._execution_engine.queue_callback(self.fill)

    def fill(self) -> None:
        for own in self.parts.values():
            for parameter in own:
                if parameter.grad is None and parameter.requires_grad:
                    self._give_zeros(parameter)

    def _give_zeros(self, parameter: nn.Parameter) -> None:
        """The same zeros at every step, since a projection's are large; made zero again if somebody has written to them."""
        if parameter in self._zeros:
            zeros, version = self._zeros[parameter]
            if zeros._version != version:
                self._zeros[parameter] = zeros.zero_(), zeros._version
            try:
                parameter.grad = zeros
            except (RuntimeError, TypeError):  # the parameter has moved, or has another type now
                pass
            else:
                return
        zeros = torch.zeros_like(parameter)
        self._zeros[parameter] = zeros, zeros._version
        parameter.grad = zeros

    def hide(self) -> list[tuple[nn.Parameter, Tensor]]:
        """Take the zeros away that nobody has written to, and say where they were."""
        hidden = []
        for parameter, (zeros, version) in self._zeros.items():
            if parameter.grad is zeros and zeros._version == version:
                parameter.grad = None
                hidden.append((parameter, zeros))
        return hidden


class _OutOfTheWay:
    """Keeps the zeros from optimisers, which would spend time on what is not used: hooks around the steps of all of them."""

    def __init__(self) -> None:
        self.handles: list[RemovableHandle] = []
        self.hidden: dict[Optimizer, list[tuple[nn.Parameter, Tensor]]] = {}

    def before(self, optimizer: Optimizer, *_: Any) -> None:
        self.hidden[optimizer] = [each for keeper in set(_KEPT.values()) for each in keeper.hide()]

    def after(self, optimizer: Optimizer, *_: Any) -> None:
        for parameter, zeros in self.hidden.pop(optimizer, []):
            if parameter.grad is None:
                parameter.grad = zeros

    def watch(self) -> None:
        """Begin, if there is anything to keep away, and end, if there is nothing left."""
        if _KEPT and not self.handles:
            self.handles = [
                register_optimizer_step_pre_hook(self.before),
                register_optimizer_step_post_hook(self.after),
            ]
        if not _KEPT:
            while self.handles:
                self.handles.pop().remove()


_OPTIMIZERS = _OutOfTheWay()

# which hook looks after a part; not kept in the modules, which are copied and saved
_KEPT: WeakKeyDictionary[Levelled, _Keeper] = WeakKeyDictionary()


def keep_gradients(model: nn.Module) -> None:
    """See to it that the added parameters of a model have a gradient after every backward, also at level 0.

    >>> import torch, mollifier
    >>> model = mollifier.mollify(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)), level=0)
    >>> model(torch.randn(2, 4)).sum().backward()
    >>> [parameter.grad is None for parameter in model.parameters()]
    [False, False, False, False, False]
    """
    owner: dict[nn.Parameter, Levelled] = {}
    for part in model.modules():
        if isinstance(part, Levelled):  # a part inside another comes later, and is the one that governs
            owner.update(dict.fromkeys(part.parameters(), part))
    added: dict[Levelled, list[nn.Parameter]] = {}
    for parameter, part in owner.items():
        if part not in _KEPT:
            added.setdefault(part, []).append(parameter)
    # the last one: whoever freezes parameters later freezes the first layers
    anchors = [p for p in model.parameters() if p.requires_grad and p.is_leaf and p not in owner and not is_lazy(p)]
    if not added or not anchors:
        return
    keeper = _Keeper()
    keeper.parts.update(added)
    keeper.handle = anchors[-1].register_post_accumulate_grad_hook(keeper)  # type: ignore[no-untyped-call]
    _KEPT.update(dict.fromkeys(added, keeper))
    _OPTIMIZERS.watch()


def release_gradients(model: nn.Module) -> None:
    """Undo `keep_gradients`."""
    for part in model.modules():
        keeper = _KEPT.pop(part, None) if isinstance(part, Levelled) else None
        if keeper is None:
            continue
        del keeper.parts[part]  # type: ignore[arg-type]
        if not keeper.parts and keeper.handle is not None:
            keeper.handle.remove()
    _OPTIMIZERS.watch()
