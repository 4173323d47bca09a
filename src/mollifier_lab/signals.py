"""Turn SIGINT and SIGTERM into a flag that a loop checks when it can."""

from __future__ import annotations

import signal
import threading
from types import TracebackType
from typing import Any

from mollifier_lab.interrupts import PRESSED


class Stop:
    """Record whether the process has been told to stop. The first signal sets the flag, the second interrupts at once. A Ctrl-C that a library
    swallowed before, while it was imported, is the first.

    >>> with Stop() as stop:
    ...     stop.asked
    False
    """

    def __init__(self) -> None:
        self.asked = bool(PRESSED)
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():  # Python allows no handler outside the main thread
            self._before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
