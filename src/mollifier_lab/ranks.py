"""Find out which of the processes of a run this is. Nothing is imported, so that this also works in a command that is interrupted at once."""

import os


def rank() -> int:
    """Return the rank of this process in its run, as torchrun, Slurm or Fabric set it. The process with rank 0 prints."""
    for names in (("RANK",), ("SLURM_PROCID",), ("NODE_RANK", "LOCAL_RANK")):
        found = [int(os.environ[name]) for name in names if os.environ.get(name, "").isdecimal()]
        if found:
            return sum(found)
    return 0
