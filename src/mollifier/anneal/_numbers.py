"""Numbers that are kept as Python numbers on the host and as a tensor on a device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Numbers:
    """A row of numbers, as a list and as a tensor. Writing one form updates the other when it is next read.

        >>> row = Numbers(torch.zeros(2, dtype=torch.float64))
        >>> row.list = [0.5, 1.0]
        >>> row.tensor
        tensor([0.5000, 1.0000], dtype=torch.float64)

    On the CPU, creating a tensor of a few numbers costs more than everything that is computed with them.
    """

    def __init__(self, tensor: Tensor) -> None:
        self._tensor: Tensor | None = tensor
        self._list: Sequence[float] | None = None
        self._dtype, self._device = tensor.dtype, tensor.device

    @property
    def tensor(self) -> Tensor:
        """The numbers on their device."""
        if self._tensor is None:
            assert self._list is not None
            self._tensor = torch.tensor(self._list, dtype=self._dtype, device=self._device)
        return self._tensor

    @tensor.setter
    def tensor(self, values: Tensor) -> None:
        self._tensor, self._list = values, None
        self._dtype, self._device = values.dtype, values.device

    @property
    def list(self) -> Sequence[float]:
        """The numbers on the host; reading them makes the host wait for an accelerator."""
        if self._list is None:
            self._list = self.tensor.tolist()
        return self._list

    @list.setter
    def list(self, values: Sequence[float]) -> None:
        self._list, self._tensor = values, None
