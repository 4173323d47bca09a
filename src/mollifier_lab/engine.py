"""Make one run, from its start to its result, or from the point where it was stopped.

>>> import tempfile, pathlib
>>> from mollifier_lab.settings import RunConfig
>>> config = RunConfig.make("parity", "mollified", preset="quick", bits=4, width=8, depth=2, samples=16, updates=20, evaluate_every=10)
>>> result = train(config, pathlib.Path(tempfile.mkdtemp()) / "run", show=False)
>>> result["updates"], sorted(result["final"])
(20, ['test_error', 'test_nll', 'train_error', 'train_nll'])
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from mollifier_lab import loggers, seal
from mollifier_lab.allocator import keep_freed_memory
from mollifier_lab.denormals import flush_denormal
from mollifier_lab.errors import Busy as Busy, Interrupted as Interrupted, LabError
from mollifier_lab.files import leaving_nothing
from mollifier_lab.group import Group
from mollifier_lab.hardware import Hardware as Hardware, resume_command, watch_ranks
from mollifier_lab.imports import not_while_loading
from mollifier_lab.loop import Judge, Loop, Observe
from mollifier_lab.ranks import rank
from mollifier_lab.runs import PREPARED, WANTED, Row, RunFolder
from mollifier_lab.settings import RunConfig

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
LOST = "another process of this run has ended (killed, or out of memory?); the last checkpoint is kept"
BROKEN = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "gloo/transport", "NCCL")


def train(
    config: RunConfig,
    out: Path,
    *,
    data: Path | None = None,
    hardware: Hardware | None = None,
    show: bool = True,
    observe: Observe | None = None,
    judge: Judge | None = None,
    warn: bool = False,
) -> Row:
    """Train one run.

    Args:
        config: Everything that the result depends on.
        out: The folder of the run; it must not contain a run already.
        data: The folder with the data; see `mollifier data`.
        hardware: The hardware to run on; one device by default.
        show: Whether to show the progress.
        observe: Called after every update with its number, its loss and the levels.
        judge: Called after every evaluation with the update and the value of the curve; the run ends if it returns True.
        warn: Whether to warn at the start if annealing cannot end in time, even if nothing else is shown.

    Returns:
        The contents of result.json.

    Raises:
        LabError: If the folder contains a run, the data is missing, or the disk is full.
        Interrupted: After SIGINT or SIGTERM, with a checkpoint saved.
        Busy: If another process works in that folder.
    """
    with leaving_nothing(out, PREPARED, Busy) if rank() == 0 else contextlib.nullcontext():
        return _go(config, RunFolder(out), data, hardware or Hardware(), show, observe, judge, new=True, warn=warn)


def resume(
    out: Path,
    *,
    data: Path | None = None,
    hardware: Hardware | None = None,
    show: bool = True,
    observe: Observe | None = None,
    judge: Judge | None = None,
) -> Row:
    """Resume a run from its last good checkpoint. The result is that of an uninterrupted run, bit for bit.

    A run that is done is not changed, and its result is returned. For the arguments see `train`.
    """
    folder = RunFolder(out)
    config = folder.config()
    if folder.status == "done":
        seal.refuse(folder.path)
        return folder.json("result.json")
    return _go(config, folder, data, hardware or Hardware(), show, observe, judge, new=False)


def _go(
    config: RunConfig,
    folder: RunFolder,
    data: Path | None,
    hardware: Hardware,
    show: bool,
    observe: Observe | None,
    judge: Judge | None,
    new: bool,
    warn: bool = False,
) -> Row:
    command = resume_command(folder.path, data, hardware)
    not_while_loading("a run")
    loggers.check(hardware.logger)
    keep_freed_memory()
    fabric = hardware.fabric()
    fabric.launch()
    group = Group(fabric)
    watch_ranks(f"{folder.path}: {LOST}. To resume: {command}")
    with contextlib.ExitStack() as stack, _together(folder, group, command):
        group.agree(_claim(folder, new, stack, command) if group.main else None)
        if folder.status == "done":  # by another process, just before this one locked the folder
            return folder.json("result.json")
        with _disk(folder, command), flush_denormal(config.settings.flush_denormal):
            loop = Loop(config, folder, data, hardware, group, show, observe, judge, warn)
            stack.callback(loop.close)
            return loop.run()


def _claim(folder: RunFolder, new: bool, stack: contextlib.ExitStack, command: str) -> LabError | None:
    """Lock the folder for this process, and return what is wrong with it, if anything."""
    import filelock

    if new and folder.status not in ("empty", "failed"):
        return LabError(f"{folder.path}: contains a run already ({folder.status}); to resume: {command}")
    folder.path.mkdir(parents=True, exist_ok=True)
    try:
        stack.enter_context(filelock.FileLock(folder.path / ".lock", timeout=0))
    except filelock.Timeout:
        return Busy(f"{folder.path}: another process is working on this run")
    for name in ("failure.txt", WANTED):
        (folder.path / name).unlink(missing_ok=True)
    return None


@contextlib.contextmanager
def _together(folder: RunFolder, group: Group, command: str) -> Iterator[None]:
    """If a process was killed, end the others with a message that says how to resume."""
    try:
        yield
    except RuntimeError as error:  # Gloo raises plain RuntimeErrors
        lost = type(error).__name__.startswith("Dist") or any(word in str(error) for word in BROKEN)
        if group.size == 1 or not lost:
            raise
        raise LabError(f"{folder.path}: {LOST}. To resume: {command}") from error


@contextlib.contextmanager
def _disk(folder: RunFolder, command: str) -> Iterator[None]:
    """End a run on a full disk with a message that says what is safe."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise LabError(
            f"{folder.path}: {error.strerror}; the last good checkpoint is kept. Make room, then resume: {command}"
        ) from error
