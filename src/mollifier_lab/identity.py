"""Record what a run's numbers depend on apart from its config, in environment.json, and decide which of it may change when the run is
resumed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import mollifier
from mollifier_lab.data.checksums import Checksums
from mollifier_lab.errors import LabError
from mollifier_lab.imports import hashes
from mollifier_lab.runs import ESSENTIAL, INCIDENTAL, Row
from mollifier_lab.settings import RunConfig

LOG = "resumptions.jsonl"
# how to get the same again, in the order of `ESSENTIAL`
HINTS = (
    "give --precision {there}",
    "start the same number of processes: --devices, or torchrun",
    "give --accelerator {there}",
    "they draw different noise; {kernels}",
    "give the folder with the original files: --data",
    "give the original code: --import FILE",
)
_KERNELS = {
    "native": "the native ones need an installation with the compiled library, and MOLLIFIER_KERNELS must not be set",
    "eager": "these exist only in version 0.1",
    "reference": "set MOLLIFIER_KERNELS=off",
}


def identity(config: RunConfig, precision: str, ranks: int, device: str, data: Checksums) -> Row:
    """Return everything that the numbers of a run depend on and that is not in its config.

    >>> found = identity(RunConfig.make("parity", "plain"), "32-true", 1, "cpu", Checksums())
    >>> found["precision"], found["kernels"], found["data"]
    ('32-true', None, {})
    """
    return {
        "precision": precision,
        "ranks": ranks,
        "device": device,
        "kernels": mollifier.kernels.info().backend if config.spec.annealed else None,  # other methods use none
        "data": data.files,
        "other_data": list(data.other),
        "source": hashes(config.imports),
        "threads": torch.get_num_threads(),
        "torch": str(torch.__version__),
        "mollifier": mollifier.__version__,
        "deterministic": torch.are_deterministic_algorithms_enabled() or torch.backends.cudnn.deterministic,
    }


def recorded(environment: Row, annealed: bool) -> Row:
    """Collect what environment.json says about a run of the previous version, which wrote no identity.

    >>> recorded({"torch": "2.9", "kernels": ["native: compiled"], "machine": {"threads": 1}}, annealed=True)
    {'torch': '2.9', 'threads': 1, 'kernels': 'native'}
    """
    machine, kernels = environment.get("machine"), environment.get("kernels")
    facts = {**environment, **machine} if isinstance(machine, dict) else environment
    found = {name: facts[name] for name in ("torch", "mollifier", "threads", "ranks") if name in facts}
    if annealed and isinstance(kernels, list) and kernels:
        found["kernels"] = str(kernels[0]).partition(":")[0]
    return found


def compare(there: Mapping[str, Any], here: Mapping[str, Any], folder: Path) -> list[str]:
    """Compare the identity of a run with the present one, and return the differences that are allowed, as text.

    >>> compare({"threads": 1}, {"threads": 2}, Path("run"))
    ['threads: 1 before, 2 now']

    Raises:
        LabError: If a difference would make it a different run.
    """
    wrong = [
        f"{name}: {_show(there[name], here[name])} ({hint.format(there=there[name], kernels=_KERNELS.get(str(there[name]), ''))})"
        for name, hint in zip(ESSENTIAL, HINTS, strict=True)
        if name in there and there[name] != here[name]
    ]
    if wrong:
        raise LabError(
            f"{folder}: resuming it like this would not continue the run that was started. {'; '.join(wrong)}. "
            "Nothing was changed"
        )
    return [f"{name}: {_show(there[name], here[name])}" for name in INCIDENTAL if name in there and there[name] != here[name]]  # fmt: skip


def log_resumption(folder: Path, update: int, differs: list[str], here: Row) -> None:
    """Append a line about a resumption to resumptions.jsonl."""
    line = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "update": update, "differs": differs, "identity": here}  # fmt: skip
    with (folder / LOG).open("a") as file:
        file.write(json.dumps(line) + "\n")


def _show(there: Any, here: Any) -> str:
    if isinstance(there, dict) and isinstance(here, dict):
        names = sorted(name for name in {**there, **here} if there.get(name) != here.get(name))
        return f"{', '.join(names)} changed"
    return f"{there} before, {here} now"
