"""The processes of a run, and what they must agree on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from mollifier_lab.errors import LabError

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class Group:
    """This process, as one of the processes of a run."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric, self.rank, self.size = fabric, fabric.global_rank, fabric.world_size

    @property
    def main(self) -> bool:
        """Return whether this process writes and prints."""
        return self.rank == 0

    def agree(self, error: LabError | None) -> None:
        """Raise the first process's error in all processes, so that none waits for the others."""
        shared: LabError | None = error if self.size == 1 else self.fabric.broadcast(error)
        if shared is not None:
            raise shared

    def gather(self, mine: dict[str, Any]) -> list[dict[str, Any]]:
        """Return one entry per process, in the order of the ranks."""
        if self.size == 1:
            return [mine]
        found: list[dict[str, Any]] = [{}] * self.size
        torch.distributed.all_gather_object(found, mine)
        return found

    def mean(self, value: Tensor) -> Tensor:
        """Return the mean over all processes."""
        if self.size > 1:
            torch.distributed.all_reduce(value)
        return value / self.size

    def any(self, flag: bool) -> bool:
        """Return whether a condition holds in any process."""
        if self.size == 1:
            return flag
        value = torch.tensor(float(flag), device=self.fabric.device)
        torch.distributed.all_reduce(value, op=torch.distributed.ReduceOp.MAX)
        return bool(value > 0)

    def part(self, batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return this process's part of a batch, on its device."""
        if self.size > 1:
            length = len(batch[0]) // self.size
            batch = tuple(each[self.rank * length : (self.rank + 1) * length] for each in batch)
        if self.fabric.device.type == "cpu":
            return batch
        return tuple(each.to(self.fabric.device, non_blocking=True) for each in batch)


class Converted(nn.Module):
    """Return a network in the precision of the run, outside Fabric's own wrapper: for evaluations of copies of it."""

    def __init__(self, model: nn.Module, fabric: Fabric) -> None:
        super().__init__()
        self.model = model
        self._precision = fabric.strategy.precision

    def forward(self, *inputs: Any) -> Any:
        """Convert inputs and outputs as Fabric does."""
        with self._precision.forward_context():
            outputs = self.model(*self._precision.convert_input(inputs))
        return self._precision.convert_output(outputs)
