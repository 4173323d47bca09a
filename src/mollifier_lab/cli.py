"""The command `mollifier`: understand the line, do it, and say what went wrong without a traceback. No torch here.

>>> main(["train", "paritty"])  # on stderr: there is no task 'paritty' (did you mean 'parity'?) ...
2
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mollifier_lab.errors import Interrupted, LabError, pick

if TYPE_CHECKING:
    from mollifier_lab.commands.table import Command

ABOUT = """usage: mollifier COMMAND ...

Mollifying Networks: the paper's experiments. For a start: mollifier compare parity --preset quick

  mollifier COMMAND --help   all about a command
  mollifier --version        the version

commands:"""
FAILED, WRONG, INTERRUPTED = 1, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; the exit code: 0 done, 1 a run of a study failed, 2 not understood or not possible, 130 interrupted.

    Args:
        argv: The words after `mollifier`; those of this process by default.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that has no ξ gets a question mark, not a crash
    try:
        code = parse(sys.argv[1:] if argv is None else list(argv)).run()
        sys.stdout.flush()
        return code
    except SystemExit as end:  # tyro, after --help or what it did not understand
        return end.code if isinstance(end.code, int) else WRONG
    except BrokenPipeError:  # `mollifier tasks | head`: what was not read is not missed
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED  # as rich ends in this case
    except KeyboardInterrupt:
        return _say("interrupted", INTERRUPTED)
    except Interrupted as stopped:
        return _say(str(stopped), INTERRUPTED)
    except (LabError, OSError) as error:
        return _say(f"error: {error}", WRONG)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("", "mollifier", "mollifier_lab"):
            raise
        return _say(f"error: {error.name} is not installed; pip install 'mollifier[lab]'", WRONG)


def parse(args: list[str]) -> Command:
    """The command that a line means.

    >>> parse(["methods", "ptb"])
    Methods(task='ptb')

    Raises:
        LabError: If there is no such command, task, preset or setting.
        SystemExit: By tyro, after --help (0) or after telling what is wrong with a flag (2).
    """
    if not args or args[0] in ("-h", "--help"):
        print(_overview())
        raise SystemExit(0)
    if args[0] == "--version":
        print(f"mollifier {_version()}")
        raise SystemExit(0)

    import tyro

    from mollifier_lab.commands.imported import take_imports
    from mollifier_lab.commands.options import SWITCHES
    from mollifier_lab.commands.repeated import gather
    from mollifier_lab.commands.table import COMMANDS, Train

    name = args[0]
    kind = pick("command", name, COMMANDS)
    rest = gather(take_imports(args[1:]))
    prog = f"mollifier {name}"
    if kind is Train:
        return Train.parse(rest, prog)
    found: Command = tyro.cli(kind, args=rest, prog=prog, config=SWITCHES)
    return found


def _overview() -> str:
    from mollifier_lab.commands.table import COMMANDS

    lines = [f"  {name:9}  {(kind.__doc__ or '').partition(': ')[0].rstrip('.')}" for name, kind in COMMANDS.items()]
    return "\n".join([ABOUT, *lines])


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("mollifier")
    except metadata.PackageNotFoundError:  # run from its sources
        from mollifier import __version__

        return __version__


def _say(text: str, code: int) -> int:
    if os.environ.get("MOLLIFIER_DEBUG"):
        traceback.print_exc()
    from mollifier_lab.commands.screen import rank

    who = f"rank {rank()}: " if rank() else ""
    print(f"{who}{text}", file=sys.stderr)
    return code
