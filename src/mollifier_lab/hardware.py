"""On what a run runs: a device or several, through Lightning Fabric."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from mollifier_lab.errors import LabError

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """Where and how a run computes. Under torchrun the processes are torchrun's; else Fabric starts them."""

    accelerator: str = "auto"
    """cpu, cuda, mps, …; auto takes what there is."""
    devices: int = 1
    """Processes on this machine, one a device."""
    nodes: int = 1
    """Machines."""
    strategy: str = "auto"
    """How they work together: auto, ddp, …; as Fabric names them."""
    precision: Literal["32-true", "64-true", "bf16-mixed", "16-mixed", "bf16-true", "16-true"] = "32-true"
    """Of the numbers."""
    threads: int = 0
    """Threads of each process on the CPU; 0: as torch has it."""
    tensorboard: bool = True
    """Write events for TensorBoard, if it is installed?"""

    def fabric(self) -> Fabric:
        """Fabric, not launched yet."""
        from lightning_fabric import Fabric

        if self.threads:
            torch.set_num_threads(self.threads)
        elastic = os.environ.get("LOCAL_WORLD_SIZE") if "TORCHELASTIC_RUN_ID" in os.environ else None
        devices = int(elastic) if elastic else self.devices
        nodes = int(os.environ["GROUP_WORLD_SIZE"]) if elastic else self.nodes
        strategy = "ddp" if self.strategy == "auto" and devices * nodes > 1 else self.strategy
        precision: Any = self.precision
        try:
            return Fabric(
                accelerator=self.accelerator, devices=devices, num_nodes=nodes, strategy=strategy, precision=precision
            )
        except (ValueError, RuntimeError, TypeError) as error:
            raise LabError(f"{self}: {error}") from error


class Group:
    """The processes of a run, and what they must agree on."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric, self.rank, self.size = fabric, fabric.global_rank, fabric.world_size

    @property
    def main(self) -> bool:
        """Does this process write and print?"""
        return self.rank == 0

    def agree(self, error: LabError | None) -> None:
        """Raise the first process's error in all of them, so that none waits for the others."""
        shared: LabError | None = error if self.size == 1 else self.fabric.broadcast(error)
        if shared is not None:
            raise shared

    def gather(self, mine: dict[str, Any]) -> list[dict[str, Any]]:
        """One entry a process, in the order of the ranks."""
        if self.size == 1:
            return [mine]
        found: list[dict[str, Any]] = [{}] * self.size
        torch.distributed.all_gather_object(found, mine)
        return found

    def mean(self, value: torch.Tensor) -> torch.Tensor:
        """Over all processes."""
        if self.size > 1:
            torch.distributed.all_reduce(value)
        return value / self.size

    def any(self, flag: bool) -> bool:
        """Is it so in any process?"""
        if self.size == 1:
            return flag
        value = torch.tensor(float(flag), device=self.fabric.device)
        torch.distributed.all_reduce(value, op=torch.distributed.ReduceOp.MAX)
        return bool(value > 0)

    def part(self, batch: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """This process's part of a batch, on its device."""
        if self.size > 1:
            length = len(batch[0]) // self.size
            batch = tuple(each[self.rank * length : (self.rank + 1) * length] for each in batch)
        if self.fabric.device.type == "cpu":
            return batch
        return tuple(each.to(self.fabric.device, non_blocking=True) for each in batch)
