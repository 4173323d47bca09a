"""Write the rows of a run: metrics, the clock, events for TensorBoard."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from mollifier_lab.errors import LabError
from mollifier_lab.loggers import Logger
from mollifier_lab.runs import Row

FILES = ("metrics.jsonl", "clock.jsonl")


def finite(value: Any) -> Any:
    """Return a number, or None for one that JSON cannot represent.

    >>> finite(float("nan")) is None
    True
    """
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _whole_lines(path: Path) -> int:
    """Return the bytes up to the end of the last complete line."""
    return path.read_bytes().rfind(b"\n") + 1


class Records:
    """Append rows. A checkpoint records the `lengths` of the files, and a resumed run cuts them to these."""

    def __init__(
        self,
        folder: Path,
        lengths: list[int] | None,
        tensorboard: bool,
        update: int,
        loggers: Sequence[Logger] = (),
    ) -> None:
        self._loggers = loggers
        self._files: list[BinaryIO] = []
        for name, length in zip(FILES, lengths or [0] * len(FILES), strict=True):
            path = folder / name
            path.touch()
            if path.stat().st_size < length and name == "clock.jsonl":
                length = _whole_lines(path)  # no part of the result: what is left of it is continued
            elif path.stat().st_size < length:
                raise LabError(
                    f"{path}: {path.stat().st_size} bytes, but it had {length} when the checkpoint was made; restore it"
                )
            os.truncate(path, length)
            self._files.append(path.open("ab"))
        self._board: Any = None
        if tensorboard:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                return
            self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=update + 1 if lengths else None)

    @property
    def lengths(self) -> list[int]:
        """Return the lengths of the files, when all rows are on the disk."""
        for file in self._files:
            file.flush()
            os.fsync(file.fileno())
        return [file.tell() for file in self._files]

    def write(self, row: Row, seconds: float) -> None:
        """One evaluation."""
        for file, each in zip(self._files, (row, {"update": row["update"], "seconds": round(seconds, 3)}), strict=True):
            file.write(json.dumps(each).encode() + b"\n")
            file.flush()
        for logger in self._loggers:
            logger.write(row)
        if self._board is not None:
            update = row["update"]
            for key, value in row.items():
                if isinstance(value, float):
                    self._board.add_scalar(key.replace("_", "/", 1), value, update)
            for number, level in enumerate(row.get("levels", ()), start=1):
                self._board.add_scalar(f"level/{number}", level, update)

    def close(self) -> None:
        """Close the files. Every row was flushed when it was written; if that failed, on a full disk, it was reported then."""
        for file in self._files:
            with contextlib.suppress(OSError):
                file.close()
        for logger in self._loggers:
            logger.close()
        if self._board is not None:
            self._board.close()
