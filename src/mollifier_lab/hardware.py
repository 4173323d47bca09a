"""The hardware of a run: one device or several, through Lightning Fabric. torch is imported only when it is needed."""

from __future__ import annotations

import os
import shlex
import sys
import threading
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mollifier_lab.errors import LabError

if TYPE_CHECKING:
    from lightning_fabric import Fabric


MOST = max(64, os.cpu_count() or 1)  # threads or processes: far more crash the system instead of raising an error

GRACE = 5.0  # seconds


Precision = Literal["32-true", "64-true", "bf16-mixed", "16-mixed", "bf16-true", "16-true"]
FULL: Precision = "32-true"


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """Where and how a run computes. Under torchrun, torchrun starts the processes; otherwise Fabric starts them."""

    accelerator: str = "auto"
    """cpu, cuda, mps, …; auto takes what is available."""
    devices: int = 1
    """Processes on this machine, one per device."""
    nodes: int = 1
    """Machines."""
    strategy: str = "auto"
    """How the processes work together: auto, ddp, …, with Fabric's names."""
    precision: Precision = FULL
    """Precision of the numbers, with Fabric's names."""
    threads: int = 0
    """Threads per process; 0: torch decides."""
    tensorboard: bool = True
    """Write events for TensorBoard, if it is installed."""
    logger: str = ""
    """Also log to mlflow or wandb (offline), in the folder of each run; for both: mlflow,wandb."""

    def __post_init__(self) -> None:
        check_threads(self.threads)
        for name, most in (("devices", MOST), ("nodes", 10_000)):
            if not 1 <= getattr(self, name) <= most:
                raise LabError(f"{name}={getattr(self, name)}: expected a whole number from 1 to {most}")

    def flags(self) -> list[str]:
        """Return the flags that describe the same hardware on the command line.

        >>> Hardware(devices=2, precision="64-true", tensorboard=False).flags()
        ['--devices', '2', '--precision', '64-true', '--no-tensorboard']
        """
        words: list[str] = []
        for each in fields(self):
            value = getattr(self, each.name)
            if value is False:
                words.append(f"--no-{each.name}")
            elif value != each.default:
                words += [f"--{each.name}", str(value)]
        return words

    def fabric(self) -> Fabric:
        """Return Fabric, not launched yet."""
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
        except (ValueError, RuntimeError, TypeError, ImportError) as error:
            given = " ".join(self.flags()) or "this machine"
            raise LabError(f"{given}: Fabric cannot run with this: {error}") from error


def check_threads(threads: int) -> None:
    """Refuse a number of threads that the system would not survive.

    Raises:
        LabError: If it is below 0 or too large.
    """
    if not 0 <= threads <= MOST:
        raise LabError(f"threads={threads}: expected a whole number from 0 (torch decides) to {MOST}")


def resume_command(path: Path, data: Path | None, hardware: Hardware) -> str:
    """Return the command that resumes a run with the flags it was started with, quoted for a shell.

    >>> resume_command(Path("my runs/a"), Path("data"), Hardware(threads=2))
    "mollifier resume 'my runs/a' --data data --threads 2"
    """
    words = ["mollifier"]
    if "TORCHELASTIC_RUN_ID" in os.environ:
        words = ["torchrun", "--nproc-per-node", os.environ.get("LOCAL_WORLD_SIZE", "1"), "-m", "mollifier_lab"]
        if (nodes := os.environ.get("GROUP_WORLD_SIZE", "1")) != "1":
            words[1:1] = ["--nnodes", nodes]
    words += ["resume", str(path), *(["--data", str(data)] if data is not None else []), *hardware.flags()]
    return shlex.join(words)


def watch_ranks(message: str) -> None:
    """Let the first process print a message before Fabric kills it, and all others, because one of them has died.

    Fabric's own watcher is silent, and a process that waits for a dead one cannot print anything itself.
    """
    for thread in threading.enumerate():
        if thread.name == "child-process-observer" and hasattr(thread, "_child_processes"):
            watcher: Any = thread
            children, watcher._sleep_period = watcher._child_processes, 1

            def end(children: Any = children) -> None:
                time.sleep(GRACE)  # it may print a message of its own meanwhile, and end
                for child in children:
                    child.kill()
                print(f"error: {message}", file=sys.stderr, flush=True)
                os._exit(2)

            watcher._terminate_all = end


def _import_fabric() -> type[Fabric]:
    """Import Fabric without torchmetrics: it imports torchmetrics for a callback that is not used here, and with it transformers, which
    takes seconds.
    """
    unwanted = "torchmetrics" not in sys.modules
    if unwanted:
        sys.modules["torchmetrics"] = None  # type: ignore[assignment]
    try:
        from lightning_fabric import Fabric
    finally:
        if unwanted:
            del sys.modules["torchmetrics"]
    return Fabric
