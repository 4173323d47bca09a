"""Which of the processes of a run this is. Nothing is imported for it: also a command that is interrupted at once asks."""

import os


def rank() -> int:
    """Of this process among those of its run, as torchrun, Slurm or Fabric have set it; 0 in the one that speaks, and there alone."""
    for names in (("RANK",), ("SLURM_PROCID",), ("NODE_RANK", "LOCAL_RANK")):
        found = [int(os.environ[name]) for name in names if os.environ.get(name, "").isdecimal()]
        if found:
            return sum(found)
    return 0
