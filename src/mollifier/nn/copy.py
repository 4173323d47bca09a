"""The copy of the layer below, unit by unit, with the rules for layers that change shape, and the block that it wraps."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mollifier import ops
from mollifier.functional import Noise, refuse_nested
from mollifier.nn._annealed import Annealed
from mollifier.nn.projection import FixedProjection

Projection = Literal["auto", "learned", "fixed", "always"]
# for each option: the rule for a wider layer, and the rule for a narrower one
_RULES = {
    "auto": ("pad", "fixed"),
    "learned": ("pad", "project"),
    "fixed": ("pad", "fixed"),
    "always": ("project", "project"),
}
_CONVOLUTIONS = {-2: nn.Conv1d, -3: nn.Conv2d, -4: nn.Conv3d}
_POOLS = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
_ADAPTIVE = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}


class Copy(Annealed):
    """φ: each unit and example copies the unit below with probability p, and otherwise takes what the layer computed.

        >>> import torch
        >>> from mollifier.nn import Copy
        >>> copy = Copy(40, 100).eval()                                     # wider: below is padded with zeros
        >>> copy(torch.ones(8, 40), torch.zeros(8, 100)).sum(1)[:2]         # level 1: the copy itself
        tensor([40., 40.])

    Where the shapes differ, the input is first average-pooled to a smaller image, then padded with zeros to more units or
    projected linearly to fewer. The projection sums units with fixed signs, which needs no parameters, costs next to nothing and
    leaves the objective at level 1 convex. With ``projection="learned"`` it is learned (a 1×1 convolution for images).

    Args:
        in_units: Number of units in the layer's input; None if input and output have the same shape.
        out_units: Number of units in its output.
        unit_dim: The dimension of the units: -1 for `nn.Linear`, -3 for the channels of an `nn.Conv2d`.
        projection: ``"fixed"`` or ``"learned"``, for layers with fewer units above; ``"always"`` also learns one where there are more.
            ``"auto"`` means ``"fixed"``.
        residual: Whether to also add the copied path to what the layer computed (the dashed line in the figure of the layer).
            This part stays when the level falls to 0.
        seed: The seed of the fixed projection, see `FixedProjection`.
        level: The level p, from 1 (mollified) to 0 (plain).
        train_noise: The noise mode in train(): ``"sample"``, ``"expected"`` or ``"exact"``.
        eval_noise: The noise mode in eval().
        device: The device of the projection.
        dtype: The dtype of the projection.
    """

    def __init__(
        self,
        in_units: int | None = None,
        out_units: int | None = None,
        *,
        unit_dim: int = -1,
        projection: Projection = "auto",
        residual: bool = False,
        seed: int = 0,
        level: float = 1.0,
        train_noise: Noise = "sample",
        eval_noise: Noise = "expected",
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(level, train_noise, eval_noise)
        if unit_dim != -1 and unit_dim not in _CONVOLUTIONS:
            raise ValueError(f"unit_dim={unit_dim}: expected -1 (features), or -2, -3, -4 (channels in 1-d, 2-d, 3-d)")
        if projection not in _RULES:
            raise ValueError(
                f"projection={projection!r}: expected 'auto', 'fixed', 'learned' (pad if wider, project if narrower) or 'always'"
            )
        self.in_units, self.out_units, self.unit_dim, self.residual = in_units, out_units, unit_dim, residual
        self.projection: nn.Module | None = None
        self.rule = "copy"
        if in_units is not None and out_units is not None and in_units != out_units:
            self.rule = _RULES[projection][out_units < in_units]
            where: dict[str, Any] = {"device": device, "dtype": dtype}
            if self.rule == "fixed":
                self.projection = FixedProjection(in_units, out_units, unit_dim=unit_dim, seed=seed, **where)
            elif self.rule == "project":
                layer = nn.Linear if unit_dim == -1 else partial(_CONVOLUTIONS[unit_dim], kernel_size=1)
                self.projection = layer(in_units, out_units, bias=False, **where)
                self.reset_parameters()
        self.level = self.level.to(device)

    def reset_parameters(self) -> None:
        """Draw the learned projection anew."""
        if self.rule == "project":
            nn.init.xavier_uniform_(cast(nn.Linear, self.projection).weight)

    def forward(self, below: Tensor, above: Tensor) -> Tensor:
        if not self.active:
            return self.pass_through(above + self.shortcut(below, above) if self.residual else above)
        settings: dict[str, Any] = {
            "unit_dim": self.unit_dim,
            "residual": self.residual,
            "uniform": self.uniform(above),
        }
        return ops.unit(above, self.unpadded(below, above), None, None, level=self.level, **settings)

    def unpadded(self, below: Tensor, above: Tensor) -> Tensor:
        """Return what is copied, without zero-padding where the operator can pad by itself."""
        if below.is_nested or below.layout is not torch.strided:
            refuse_nested(below)
            below = below.to_dense()
        if self.projection is None and below.shape == above.shape:
            return below
        if self.projection is None and below.dim() == above.dim() >= -self.unit_dim:
            fixed, rest = below.dim() + self.unit_dim, above.dim() + self.unit_dim + 1
            if below.shape[:fixed] == above.shape[:fixed] and below.shape[rest:] == above.shape[rest:]:
                units = below.shape[self.unit_dim]
                if units == above.shape[self.unit_dim] or (self.rule == "pad" and units == self.in_units):
                    return below
        return self.shortcut(below, above)

    def shortcut(self, below: Tensor, above: Tensor) -> Tensor:
        """Return what is copied: below, pooled, padded or projected to the shape of above."""
        if self.unit_dim < -1:
            below = _pool(below, above, -self.unit_dim - 1)
        if self.projection is not None:
            below = self.projection(below)
        elif self.rule == "pad":
            missing = above.shape[self.unit_dim] - below.shape[self.unit_dim]
            below = F.pad(below, (0, 0) * (-self.unit_dim - 1) + (0, missing))
        if below.shape != above.shape:
            raise ValueError(
                f"the copy path cannot bring the layer's input to its output: it has shape {tuple(below.shape)}, the output "
                f"{tuple(above.shape)} (in_units={self.in_units}, out_units={self.out_units}, unit_dim={self.unit_dim}). "
                "Give mollify an example= input so that shapes are known, or name another block."
            )
        return below.to(above.dtype)

    def extra_repr(self) -> str:
        units = f"{self.in_units} → {self.out_units}, " if self.in_units is not None else ""
        return f"{units}{self.rule}{', residual' if self.residual else ''}, {super().extra_repr()}"


def _pool(below: Tensor, above: Tensor, spatial: int) -> Tensor:
    """Average-pool to the spatial size of above, with plain windows where they fit and adaptive ones elsewhere."""
    have, want = below.shape[-spatial:], above.shape[-spatial:]
    if have == want or below.dim() != above.dim():
        return below
    whole = all(h % w == 0 for h, w in zip(have, want, strict=True))
    if whole and (spatial < 3 or below.dtype in (torch.float32, torch.float64)):  # torch has no half-precision 3-d pool
        window = [h // w for h, w in zip(have, want, strict=True)]
        return _POOLS[spatial](below, window)
    return _ADAPTIVE[spatial](below, list(want))  # type: ignore[arg-type]


class MollifiedBlock(nn.Module):
    """h → block(h), copying h past the block with probability p, unit by unit and example by example.

        >>> import torch
        >>> from torch import nn
        >>> from mollifier.nn import MollifiedBlock, NoisyActivation
        >>> layer = MollifiedBlock(nn.Sequential(nn.Linear(40, 100), NoisyActivation("sigmoid", 100)), 40, 100)
        >>> layer(torch.randn(8, 40)).shape
        torch.Size([8, 100])

    For an existing model, `mollifier.mollify` does the same without changing its structure. The levels of the modules inside
    follow the block's own level (`mollifier.levels` counts one for the whole block).

    Args:
        block: Any module. Further arguments of a call are passed on to it; if it returns a tuple, the first tensor is mixed.
        in_units: Number of units in the input; None if the output has the same shape.
        out_units: Number of units in the output.
        **options: Options of `Copy`: ``unit_dim``, ``projection``, ``residual``, ``seed``, ``level``, ``train_noise``, ``eval_noise``.
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


def version(tensor: object) -> int | None:
    """Return the number of in-place changes to a tensor, or None where torch does not count them, and for anything else."""
    if torch.compiler.is_compiling() or not isinstance(tensor, Tensor) or tensor.is_inference():
        return None
    return tensor._version


def check_unchanged(below: Tensor, before: int | None) -> None:
    """Raise an error if a block has changed its own input in place since the version was recorded."""
    if before is not None and below._version != before:
        raise RuntimeError(
            "the block changed its own input in place, so there is nothing left to copy. "
            "Make its first operation out of place (e.g. inplace=False)."
        )


def first_tensor(change: Any, out: Any) -> Any:
    """Return ``out`` with its first tensor changed, for blocks that return a tensor, a tuple or a list.

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
