"""Check before a network is built whether the memory suffices: a machine that runs out of memory kills processes without a message.

>>> needed(4_000_000_000, layers=100_000, copies=4)
67000000000
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from mollifier_lab.errors import LabError
from mollifier_lab.settings import Settings

PER_LAYER = (
    30_000  # bytes of Python objects that a mollified layer of four units took, measured with 1000 and 4000 layers
)
MANY = 2000  # layers: building as many takes seconds
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # the limits of a container


def check_memory(settings: Settings, memory: int | None = None) -> None:
    """Refuse a network that does not fit into this machine's memory for training, and say that building a very deep one takes a while.

        >>> from mollifier_lab.settings import Parity
        >>> check_memory(Parity(), memory=10**9)
        >>> check_memory(Parity(depth=1_000_000), memory=24 * 10**9)
        Traceback (most recent call last):
        ...
        mollifier_lab.errors.LabError: not enough memory for bits=40, depth=1000000, width=200: about 40,000,000,000 weights in 1,000,000 layers, their gradients, the optimiser's state and a copy of the best need 670 GB or more, and there are 24 GB; choose a smaller network

    Args:
        settings: The settings of the run.
        memory: The memory in bytes; by default that of this machine. 0 if it is not known.

    Raises:
        LabError: If it is too large.
    """
    layers, weights = settings.network_size()
    copies = 4 + (settings.optimizer == "adam") - (settings.optimizer == "sgd" and settings.momentum == 0)
    need, have = needed(weights, layers, copies), physical_memory() if memory is None else memory
    if have and need > have:
        given = ", ".join(f"{name}={getattr(settings, name)}" for name in ("bits", "layers", "depth", "width") if hasattr(settings, name))  # fmt: skip
        raise LabError(
            f"not enough memory for {given}: about {float(f'{weights:.2g}'):,.0f} weights in {layers:,} layers, their gradients, the optimiser's "
            f"state and a copy of the best need {need / 1e9:,.0f} GB or more, and there are {have / 1e9:,.0f} GB; choose a smaller network"
        )
    if layers > MANY:
        logging.getLogger("mollifier").info("building a network of %s layers", f"{layers:,}")


def needed(weights: int, layers: int, copies: int) -> int:
    """Return the bytes that training takes at least."""
    return 4 * weights * copies + PER_LAYER * layers


def physical_memory() -> int:
    """Return the memory in bytes of this machine, or of this container if it has less; 0 if the system does not say."""
    try:
        found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 0
    for path in LIMITS:
        try:
            found = min(found, int(Path(path).read_text()))
        except (OSError, ValueError):  # not in a container, or "max"
            continue
    return max(found, 0)
