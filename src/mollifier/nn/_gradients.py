"""Gradients of zero for the added parameters that level 0 does not use, so that no training loop meets a missing gradient.

A node of the autograd graph for each layer would cost time at every step. Instead, one hook on one plain parameter of the model
fills in the gradients after backward has reached it.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from mollifier.nn._annealed import Annealed


class _Zeros:
    """A parameter and its gradient of zero: one tensor reused at every step, since that of a projection is large."""

    __slots__ = ("parameter", "version", "zeros")

    def __init__(self, parameter: nn.Parameter) -> None:
        self.parameter = parameter
        self.zeros: Tensor | None = None
        self.version = -1

    def give(self) -> None:
        """Make the zeros the gradient, after resetting them if they have been written to."""
        zeros = self.zeros
        if zeros is not None:
            if zeros._version != self.version:
                self.version = zeros.zero_()._version
            try:
                self.parameter.grad = zeros
            except (RuntimeError, TypeError):  # the parameter has moved or changed its type
                pass
            else:
                return
        self.zeros = self.parameter.grad = torch.zeros_like(self.parameter)
        self.version = self.zeros._version

    def hide(self) -> bool:
        """Remove the zeros from the parameter, unless they have been written to or replaced; return whether they were removed."""
        zeros, parameter = self.zeros, self.parameter
        if zeros is None or parameter.grad is not zeros or zeros._version != self.version:
            return False
        parameter.grad = None
        return True


class _Keeper:
    """The hook: after backward, it gives a gradient of zero to the parameters that backward did not reach and that have none."""

    def __init__(self, parts: dict[Annealed, list[nn.Parameter]]) -> None:
        self.parts = WeakKeyDictionary({part: [_Zeros(each) for each in own] for part, own in parts.items()})
        self.given: list[_Zeros] = []
        self.handle: RemovableHandle | None = None

    def __call__(self, anchor: Tensor) -> None:
        # the engine runs this once all gradients are complete (torch's own FSDP does the same)
        torch.autograd.Variable._execution_engine.queue_callback(self.fill)

    def fill(self) -> None:
        self.given = []
        for part in self.parts.values():
            for own in part:
                grad = own.parameter.grad
                if grad is None and own.parameter.requires_grad:
                    own.give()
                elif grad is None or grad is not own.zeros:
                    continue
                self.given.append(own)


class _OutOfTheWay:
    """Hooks around the steps of all optimisers that hide the zeros, so that no time is spent on unused parameters."""

    def __init__(self) -> None:
        self.handles: list[RemovableHandle] = []
        self.hidden: dict[Optimizer, list[_Zeros]] = {}

    def before(self, optimizer: Optimizer, *_: Any) -> None:
        self.hidden[optimizer] = [own for keeper in _KEEPERS for own in keeper.given if own.hide()]

    def after(self, optimizer: Optimizer, *_: Any) -> None:
        for own in self.hidden.pop(optimizer, []):
            if own.parameter.grad is None:
                own.give()

    def watch(self) -> None:
        """Register the hooks if there is anything to hide, and remove them if nothing is left."""
        if _KEPT and not self.handles:
            self.handles = [
                register_optimizer_step_pre_hook(self.before),
                register_optimizer_step_post_hook(self.after),
            ]
        if not _KEPT:
            while self.handles:
                self.handles.pop().remove()


_OPTIMIZERS = _OutOfTheWay()

# the hook in charge of each part; kept outside the modules, because those are copied and saved
_KEPT: WeakKeyDictionary[Annealed, _Keeper] = WeakKeyDictionary()
_KEEPERS: WeakSet[_Keeper] = WeakSet()


def keep_gradients(model: nn.Module) -> None:
    """Ensure that the added parameters of a model have a gradient after every backward, even at level 0.

    >>> import torch, mollifier
    >>> model = mollifier.mollify(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)), level=0)
    >>> model(torch.randn(2, 4)).sum().backward()
    >>> [parameter.grad is None for parameter in model.parameters()]
    [False, False, False, False, False]
    """
    owner: dict[nn.Parameter, Annealed] = {}
    for part in model.modules():
        if isinstance(part, Annealed):  # a nested part comes later and takes precedence
            owner.update(dict.fromkeys(part.parameters(), part))
    added: dict[Annealed, list[nn.Parameter]] = {}
    for parameter, part in owner.items():
        if part not in _KEPT:
            added.setdefault(part, []).append(parameter)
    # the last one is used below, since parameters frozen later are usually those of the first layers
    anchors = [p for p in model.parameters() if p.requires_grad and p.is_leaf and p not in owner and not is_lazy(p)]
    if not added or not anchors:
        return
    keeper = _Keeper(added)
    keeper.handle = anchors[-1].register_post_accumulate_grad_hook(keeper)  # type: ignore[no-untyped-call]
    _KEPT.update(dict.fromkeys(added, keeper))
    _KEEPERS.add(keeper)
    _OPTIMIZERS.watch()


def release_gradients(model: nn.Module) -> None:
    """Undo `keep_gradients`."""
    for part in model.modules():
        keeper = _KEPT.pop(part, None) if isinstance(part, Annealed) else None
        if keeper is None:
            continue
        del keeper.parts[part]  # type: ignore[arg-type]
        keeper.given.clear()
        if not keeper.parts and keeper.handle is not None:
            keeper.handle.remove()
            _KEEPERS.discard(keeper)
    _OPTIMIZERS.watch()
