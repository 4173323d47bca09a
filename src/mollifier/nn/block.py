"""A block of any layers with the copy around it, for networks built by hand."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from mollifier.nn.copy import Copy


class MollifiedBlock(nn.Module):
    """h → block(h), copying h past the block with probability p, unit by unit and example by example.

        >>> import torch
        >>> from torch import nn
        >>> from mollifier.nn import MollifiedBlock, NoisyActivation
        >>> layer = MollifiedBlock(nn.Sequential(nn.Linear(40, 100), NoisyActivation("sigmoid", 100)), 40, 100)
        >>> layer(torch.randn(8, 40)).shape
        torch.Size([8, 100])

    For a model that exists already, `mollifier.mollify` does the same without touching its structure. The levels of
    the modules inside follow the block's own (`mollifier.levels` counts one for the whole).

    Args:
        block: Any module; further arguments are passed on, and of a tuple the first tensor is mixed.
        in_units: Units of the input; None if the output has the same shape.
        out_units: Units of the output.
        **options: Of `Copy`: ``unit_dim``, ``projection``, ``residual``, ``seed``, ``level``, ``train_noise``, ``eval_noise``.
    """

    def __init__(
        self, block: nn.Module, in_units: int | None = None, out_units: int | None = None, **options: Any
    ) -> None:
        super().__init__()
        self.block = block
        self.copy = Copy(in_units, out_units, **options)

    def forward(self, h: Tensor, *args: Any, **kwargs: Any) -> Any:
        return around(self.copy, self.block, h, (h, *args), kwargs)


def around(copy: Copy, block: Any, below: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the block and mix what it returns with ``below``."""
    if not copy.active and not copy.residual:
        return first_tensor(copy.pass_through, block(*args, **kwargs))
    before = version(below)
    out = block(*args, **kwargs)
    check_unchanged(below, before)
    return first_tensor(lambda above: copy(below, above), out)


def version(tensor: Tensor) -> int | None:
    """Count the changes in place that a tensor has seen; None where torch does not count them."""
    return None if torch.compiler.is_compiling() or torch.is_inference(tensor) else tensor._version


def check_unchanged(below: Tensor, before: int | None) -> None:
    """Raise if a block changed its own input in place since its version was taken."""
    if before is not None and below._version != before:
        raise RuntimeError(
            "the block changed its own input in place, so there is nothing left to copy. "
            "Make its first operation out of place (e.g. inplace=False)."
        )


def first_tensor(change: Any, out: Any) -> Any:
    """``out`` with its first tensor changed, for blocks that return a tensor, a tuple or a list.

    >>> first_tensor(torch.neg, (torch.ones(1), "cache"))
    (tensor([-1.]), 'cache')
    """
    if isinstance(out, Tensor):
        return change(out)
    if isinstance(out, (tuple, list)):
        items = list(out)
        for index, item in enumerate(items):
            if isinstance(item, Tensor):
                items[index] = change(item)
                # A namedtuple is built from arguments, a tuple or list from an iterable.
                return type(out)(*items) if hasattr(out, "_fields") else type(out)(items)
    raise TypeError(
        f"a mollified block returned {type(out).__name__}; expected a tensor, or a tuple or list that holds one. "
        "Name the layers inside it as blocks instead."
    )
