"""A row of the contract's table: one kind of module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

import mollifier

from .limits import Limit


@dataclass(frozen=True)
class Kind:
    """A row of the table.

    Attributes:
        name: Its test id.
        build: Makes the plain model.
        shape: Of an input, the batch first.
        options: Of mollify.
        limit: What the mollified model is to compute at level 1 in eval, from its parts: the limit that the paper names.
        affine: Is that limit an affine map of the input?
        vocabulary: The input is this many tokens, not numbers.
        pick: The tensor in what the model returns.
        by_hand: Builds the mollified model from the layers of the plain one, instead of mollify.
        residual: Mollified with residual=True, so that level 0 is not the plain network.
        copies: Is there a copy around every block?
        extra: What else the model is called with, from the input.
        quiet: Stops the random numbers that the model draws of its own; dropout modules are quiet without it.
    """

    name: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...] = (4, 6)
    options: dict[str, Any] = field(default_factory=dict)
    limit: Limit = lambda model, x: x
    affine: bool = True
    vocabulary: int = 0
    pick: Callable[[Any], Tensor] = lambda out: out
    by_hand: Callable[[nn.Module], nn.Module] | None = None
    residual: bool = False
    copies: bool = True
    extra: Callable[[Tensor], tuple[Any, ...]] = lambda x: ()
    quiet: Callable[[Any], None] = lambda model: None

    def plain(self, dtype: torch.dtype = torch.float32, seed: int = 0) -> nn.Module:
        """A fresh plain model; the same seed gives the same weights."""
        torch.manual_seed(seed)
        return self.build().to(dtype)

    def mollified(self, dtype: torch.dtype = torch.float32, level: float = 1.0, seed: int = 0) -> nn.Module:
        """The same, mollified."""
        model = self.convert(self.plain(dtype, seed))
        mollifier.set_level(model, level)
        return model

    def convert(self, model: nn.Module) -> nn.Module:
        """Mollify a model of this kind."""
        return mollifier.mollify(model, **self.options) if self.by_hand is None else self.by_hand(model)

    def input(self, dtype: torch.dtype = torch.float32, seed: int = 1) -> Tensor:
        """An input; the same seed gives the same one."""
        generator = torch.Generator().manual_seed(seed)
        if self.vocabulary:
            return torch.randint(self.vocabulary, self.shape, generator=generator)
        return torch.randn(self.shape, generator=generator, dtype=torch.float64).to(dtype)

    def run(self, model: nn.Module, x: Tensor) -> Tensor:
        """The model's output on x."""
        return self.pick(model(*self.arguments(x)))

    def arguments(self, x: Tensor) -> tuple[Any, ...]:
        """All that the model is called with."""
        return (x, *self.extra(x))
