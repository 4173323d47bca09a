"""The fixed projection, with which a narrowing layer copies the layer below without any parameters."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from mollifier.functional import signed_sums


class FixedProjection(nn.Module):
    """Sums of every ``out_units``-th unit, with signs determined by a seed, scaled to keep the variance per unit.

        >>> import torch
        >>> from mollifier.nn import FixedProjection
        >>> narrow = FixedProjection(4096, 200)
        >>> narrow(torch.randn(8, 4096)).shape
        torch.Size([8, 200])
        >>> list(narrow.parameters()), list(narrow.state_dict())
        ([], [])

    y_j = n_j^(-1/2) Σ_i s_{j + i m} h_{j + i m}, with m units above, n_j units below that are summed into unit j, and signs s. With random
    signs the expected squared norm of y is that of h times m/n for every h (a count sketch). The signs depend only on the widths
    and the seed, so the map is the same in every process and need not be stored in a checkpoint. Seeds 2k and 2k + 1 differ in the
    sign of every second unit of a sum: from two units below they form the sum and the difference, and together lose nothing.
    The two directions of a recurrent layer use such a pair.

    Args:
        in_units: Number of units below, which exceeds the number above.
        out_units: Number of units above.
        unit_dim: The dimension of the units: -1 for features, -3 for the channels of an image.
        seed: The seed of the signs.
        device: The device of the weights ±n_j^(-1/2).
        dtype: The dtype of the weights.
    """

    weight: Tensor

    def __init__(
        self,
        in_units: int,
        out_units: int,
        *,
        unit_dim: int = -1,
        seed: int = 0,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if not 1 <= out_units <= in_units or seed < 0:
            raise ValueError(
                f"FixedProjection({in_units}, {out_units}, seed={seed}): expected 1 <= out_units <= in_units and seed >= 0"
            )
        self.in_units, self.out_units, self.unit_dim, self.seed = in_units, out_units, unit_dim, seed
        self.register_buffer("weight", torch.empty(in_units, device=device, dtype=dtype), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Compute the weights on their current device; nothing is drawn at random."""
        if not self.weight.is_meta:
            self.weight.copy_(torch.tensor(self.weights(), dtype=torch.float64, device="cpu"))

    def weights(self) -> list[float]:
        """Return the signs, taken from a hash, each divided by the square root of the number of units in its sum."""
        wide, units = self.in_units, self.out_units
        digest = hashlib.shake_256(f"{wide} {units} {self.seed // 2}".encode()).digest(wide // 8 + 1)
        found = []
        for unit in range(wide):
            drawn, turned = digest[unit // 8] >> (unit % 8) & 1, self.seed & (unit // units) & 1
            together = (wide - unit % units - 1) // units + 1
            found.append((1.0 if drawn == turned else -1.0) / math.sqrt(together))
        return found

    def forward(self, below: Tensor) -> Tensor:
        if below.shape[self.unit_dim] != self.in_units:
            raise ValueError(
                f"FixedProjection: expected {self.in_units} units on dimension {self.unit_dim}, got a tensor of shape {tuple(below.shape)}"
            )
        return signed_sums(below, self.weight.to(below), self.out_units, self.unit_dim)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FixedProjection:
        before = self.weight
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.weight is not before and type(self.weight) is Tensor:
            self.reset_parameters()  # they may now be empty (to_empty) or have lost digits
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, local_metadata: Any, *args: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)
        if local_metadata.get("assign_to_params_buffers") and self.weight.is_meta:
            self.to_empty(device=torch.get_default_device())  # the checkpoint assigns nothing to this module

    def extra_repr(self) -> str:
        return f"{self.in_units} → {self.out_units}, unit_dim={self.unit_dim}, seed={self.seed}"
