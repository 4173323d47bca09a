"""The command `mollifier`: parse the line, run it, and report errors without a traceback. No torch here.

>>> main(["train", "paritty"])  # on stderr: there is no task 'paritty' (did you mean 'parity'?) ...
2
"""

from __future__ import annotations

import os
import signal
import sys

from mollifier_lab.interrupts import PRESSED, press

TYPE_CHECKING = False  # see `mollifier_lab`: as little as possible is imported before `main` can handle Ctrl-C
if TYPE_CHECKING:
    from collections.abc import Sequence

    from mollifier_lab.commands.all_commands import Command

ABOUT = """usage: mollifier COMMAND ...

Mollifying Networks: the paper's experiments. To start: mollifier compare parity --preset quick

  mollifier COMMAND --help   explain a command
  mollifier --version        print the version

commands:"""
FAILED, WRONG, INTERRUPTED = 1, 2, 130
SHORT = ("can't allocate memory", "out of memory", "Storage size calculation overflowed", "Cannot allocate memory")
BUG = "this is a bug in mollifier. MOLLIFIER_DEBUG=1 shows where it happened; please report it"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return the exit code: 0 done, 1 a run of a study failed, 2 not understood or not possible, 130 interrupted.

    Args:
        argv: The words after `mollifier`; by default those of this process.
    """
    if argv is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, press)
    try:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")  # a terminal that has no ξ gets a question mark, not a crash
        code = parse(sys.argv[1:] if argv is None else list(argv)).run()
        sys.stdout.flush()
        return code
    except SystemExit as end:  # from tyro, after --help or after a line that it did not understand
        return end.code if isinstance(end.code, int) else WRONG
    except BrokenPipeError:  # `mollifier tasks | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED  # the same exit as rich in this case
    except BaseException as error:
        code = _say(*_end(error))
        if argv is None and code == INTERRUPTED and (PRESSED or _interrupted(error)):
            # Python would end with a signal of its own if the interrupt came while it executed a string, as dataclasses do
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        return code


def _end(error: BaseException) -> tuple[str, int]:
    """Return the message for an error, as one sentence, and the exit code."""
    from mollifier_lab.errors import Interrupted, LabError

    if isinstance(error, Interrupted):
        return str(error), INTERRUPTED
    if isinstance(error, LabError):
        return f"error: {error}", WRONG
    if PRESSED or _interrupted(error):
        return "interrupted", INTERRUPTED
    if isinstance(error, OSError):
        return f"error: {error}", WRONG
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and any(word in text for word in SHORT)):
        detail = f" ({text[:200]})" if text else ""
        return f"error: not enough memory{detail}; use a smaller network, batch or data set, or fewer workers", WRONG
    if isinstance(error, ValueError) and "null byte" in text:
        return "error: a path contains a null byte: expected the name of a file or folder", WRONG
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        if package not in ("", "mollifier", "mollifier_lab"):
            return (
                f"error: this command belongs to the laboratory, which needs {error.name}: pip install 'mollifier[lab]'",
                WRONG,
            )
    return f"error: {type(error).__name__}: {text[:500]}; {BUG}", WRONG


def _interrupted(error: BaseException | None) -> bool:
    """Return whether an exception is a Ctrl-C, or was caused by one during an import."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def parse(args: list[str]) -> Command:
    """Parse a command line.

    >>> parse(["methods", "ptb"])
    Methods(task='ptb')

    Raises:
        LabError: If there is no such command, task, preset or setting.
        SystemExit: From tyro, after --help (0) or after an error about a flag (2).
    """
    if not args or args[0] in ("-h", "--help"):
        print(_overview())
        raise SystemExit(0)
    if args[0] == "--version":
        print(f"mollifier {_version()}")
        raise SystemExit(0)

    import tyro

    from mollifier_lab.commands.all_commands import COMMANDS, Train
    from mollifier_lab.commands.import_flag import take_imports
    from mollifier_lab.commands.repeated_flags import gather
    from mollifier_lab.commands.shared_flags import SWITCHES
    from mollifier_lab.errors import pick

    name = args[0]
    kind = pick("command", name, COMMANDS)
    rest = gather(take_imports(args[1:]))
    prog = f"mollifier {name}"
    if kind is Train:
        return Train.parse(rest, prog)
    found: Command = tyro.cli(kind, args=rest, prog=prog, config=SWITCHES)
    return found


def _overview() -> str:
    from mollifier_lab.commands.all_commands import COMMANDS

    lines = [f"  {name:9}  {(kind.__doc__ or '').partition(': ')[0].rstrip('.')}" for name, kind in COMMANDS.items()]
    return "\n".join([ABOUT, *lines])


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("mollifier")
    except metadata.PackageNotFoundError:  # running from the sources
        from mollifier import __version__

        return __version__


def _say(text: str, code: int) -> int:
    if os.environ.get("MOLLIFIER_DEBUG"):
        import traceback

        traceback.print_exc()
    from mollifier_lab.ranks import rank

    who = f"rank {rank()}: " if rank() else ""
    print(f"{who}{text}", file=sys.stderr)
    return code
