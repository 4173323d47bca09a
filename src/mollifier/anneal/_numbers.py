"""Numbers that are kept as Python numbers on the host and as a tensor on a device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Numbers:
    """A row of numbers, as a list and as a tensor. Writing one form updates the other when it is next read.

        >>> row = Numbers(torch.zeros(2, dtype=torch.float64))
        >>> row.write([0.5, 1.0])
        >>> row.tensor
        tensor([0.5000, 1.0000], dtype=torch.float64)

    On the CPU, creating a tensor of a few numbers costs more than everything that is computed with them.

    Attributes:
        list: The numbers on the host; reading them makes the host wait for an accelerator. A plain attribute once it has been read or written,
            since an Annealer on the CPU reads a dozen of them at every step.
    """

    list: Sequence[float]

    def __init__(self, tensor: Tensor) -> None:
        self._tensor: Tensor | None = tensor
        self._dtype, self._device = tensor.dtype, tensor.device

    def write(self, values: Sequence[float]) -> None:
        """Set the numbers from the host."""
        self.list, self._tensor = values, None

    @property
    def tensor(self) -> Tensor:
        """The numbers on their device."""
        if self._tensor is None:
            self._tensor = torch.tensor(self.list, dtype=self._dtype, device=self._device)
        return self._tensor

    @tensor.setter
    def tensor(self, values: Tensor) -> None:
        self._tensor = values
        self._dtype, self._device = values.dtype, values.device
        self.__dict__.pop("list", None)

    def __getattr__(self, name: str) -> Sequence[float]:
        if name != "list":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self.list = self.tensor.tolist()
        return self.list
