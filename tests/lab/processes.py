"""Real processes for the tests: forked from a server that has torch and the laboratory loaded, so that each starts in milliseconds."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from typing import Any

import mollifier
from mollifier_lab.hardware import _import_fabric

_import_fabric()
mollifier.kernels.info()  # builds them, if need be: before the first clock of a test runs
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["mollifier_lab.engine", "mollifier_lab.tasks", "tests.lab.processes"])


class Child:
    """A process under test."""

    def __init__(self, process: ForkServerProcess) -> None:
        self.process = process

    def wait(self, seconds: float = 120.0) -> int:
        """Its exit code; negative: the signal that ended it."""
        self.process.join(seconds)
        assert self.process.exitcode is not None, f"still running after {seconds} s"
        return self.process.exitcode

    def kill(self) -> None:
        self.process.kill()
        self.process.join()


def fork(function: Callable[..., Any], *arguments: Any) -> Child:
    """Call a module-level function in a process of its own."""
    process = _CONTEXT.Process(target=function, args=arguments)
    process.start()
    return Child(process)
