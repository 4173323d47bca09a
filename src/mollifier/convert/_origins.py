"""From which results of a forward's activations and children a tensor was computed, for forwards that an example shows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from torch import Tensor


@dataclass(frozen=True)
class Origin:
    """What a tensor was computed from, as places of steps in the forward.

    Attributes:
        steps: Those whose result it is, or contains.
        hidden: Those before a layer.
        below: All of them.
        layer: Whether it is the result of a layer, or a sum with one.
    """

    steps: frozenset[int] = frozenset()
    hidden: frozenset[int] = frozenset()
    below: frozenset[int] = frozenset()
    layer: bool = False

    def __or__(self, other: Origin) -> Origin:
        sets = (self.steps | other.steps, self.hidden | other.hidden, self.below | other.below)
        return Origin(*sets, self.layer or other.layer)

    def after_activation(self) -> Origin:
        """Return what the result of an activation was computed from."""
        return replace(self, steps=frozenset(), layer=False)

    def after_layer(self) -> Origin:
        """Return what the result of a layer was computed from."""
        return Origin(hidden=self.below, below=self.below)


class Origins:
    """The origin of each tensor of a running forward."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[Tensor, Origin]] = {}  # kept alive, so that ids stay unique

    def tensors(self) -> list[Tensor]:
        """Return all tensors that have one."""
        return [tensor for tensor, _ in self._of.values()]

    def of(self, tensors: Iterable[Tensor]) -> Origin:
        """Return what any of these tensors, or of those that they are views of, was computed from."""
        found = Origin()
        for tensor in tensors:
            for each in (tensor, tensor._base):
                if id(each) in self._of:
                    found |= self._of[id(each)][1]
        return found

    def keep(self, tensors: Iterable[Tensor], origin: Origin) -> None:
        """Note what these tensors were computed from; a view that was written to is a part of its base."""
        if not origin.below:
            return
        for tensor in tensors:
            self._of[id(tensor)] = tensor, origin
            if tensor._base is not None:
                self._of[id(tensor._base)] = tensor._base, origin | self.of([tensor._base])
