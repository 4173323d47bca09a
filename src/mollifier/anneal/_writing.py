"""Write the levels into the buffers of a model on the host."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from mollifier.nn._annealed import on_cpu


class _Place(NamedTuple):
    """Where a level is: the dictionary that holds its buffer, the buffer as it was found, its address, the number there, and the number of its block."""

    buffers: dict[str, Any]
    level: Tensor
    address: int
    number: ctypes.c_double
    block: int


class LevelWriter:
    """Write one level per block into buffers on the host, at every update of a training.

        >>> buffers = {"level": torch.ones((), dtype=torch.float64)}
        >>> LevelWriter([[buffers]]).write([0.5])
        >>> buffers["level"]
        tensor(0.5000, dtype=torch.float64)

    `Tensor.fill_` would take longer for a dozen levels than everything else in a step of the Annealer, so the numbers are written to where
    the tensors keep them. Autograd is told, as by `fill_`. Buffers may be replaced or moved at any time: each is looked up at each call.

    Args:
        groups: For each block the dictionaries of the modules' buffers.
    """

    def __init__(self, groups: Sequence[Sequence[dict[str, Any]]]) -> None:
        self._groups = groups
        self._find()

    def __reduce__(self) -> tuple[Any, ...]:
        return LevelWriter, (self._groups,)  # a copy finds its own places

    def _find(self) -> None:
        """Look for the buffers again. Levels that are no ordinary numbers on the host are left to torch."""
        self._places: list[_Place] = []
        self._others: list[tuple[dict[str, Any], int]] = []
        for block, group in enumerate(self._groups):
            for buffers in group:
                level: Tensor = buffers["level"]
                if on_cpu(level) and level.dtype == torch.float64 and not level.is_inference():
                    address = level.data_ptr()
                    number = ctypes.c_double.from_address(address)
                    self._places.append(_Place(buffers, level, address, number, block))
                else:
                    self._others.append((buffers, block))
        self._levels = [place.level for place in self._places]

    def write(self, values: Sequence[float]) -> None:
        """Set the levels of all blocks."""
        for buffers, level, address, number, block in self._places:
            if buffers["level"] is not level or level.data_ptr() != address:
                self._find()
                self.write(values)
                return
            number.value = values[block]
        increment_version(self._levels)
        for buffers, block in self._others:
            buffers["level"].fill_(values[block])
