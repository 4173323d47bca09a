"""On what a run runs: a device or several, through Lightning Fabric. No torch until it is asked for."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

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
    """Threads a process; 0: torch decides."""
    tensorboard: bool = True
    """Events for TensorBoard, if it is installed."""
    logger: str = ""
    """Log to mlflow or wandb (offline), too, in the folder of each run; both: mlflow,wandb."""

    def fabric(self) -> Fabric:
        """Fabric, not launched yet."""
        import torch

        Fabric = _import_fabric()  # noqa: N806

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


def _import_fabric() -> type[Fabric]:
    """Without torchmetrics: for a callback that nobody uses here Fabric imports it and, through it, transformers, which takes seconds."""
    unwanted = "torchmetrics" not in sys.modules
    if unwanted:
        sys.modules["torchmetrics"] = None  # type: ignore[assignment]
    try:
        from lightning_fabric import Fabric
    finally:
        if unwanted:
            del sys.modules["torchmetrics"]
    return Fabric
