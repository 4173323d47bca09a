"""``python -m mollifier``: print versions, machine and kernels, for a bug report.

>>> print(about().splitlines()[0])  # doctest: +ELLIPSIS
mollifier ...
"""

from __future__ import annotations

import platform

import torch

from mollifier import __version__, kernels


def about() -> str:
    """Return the installed versions, and which kernels are in use."""
    if torch.cuda.is_available():
        accelerator = torch.cuda.get_device_name()
    else:
        accelerator = "mps" if torch.backends.mps.is_available() else "none"
    threads = torch.get_num_threads()
    return "\n".join(
        [
            f"mollifier {__version__}",
            f"torch {torch.__version__}, {threads} thread{'' if threads == 1 else 's'}, accelerator: {accelerator}",
            f"Python {platform.python_version()}, {platform.platform()}, {torch.backends.cpu.get_cpu_capability()}",
            "kernels:",
            *(f"  {line}" for line in str(kernels.info()).splitlines()),
        ]
    )


if __name__ == "__main__":
    print(about())
