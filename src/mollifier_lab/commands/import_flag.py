"""The flag `--import`: the user's own code is loaded before the rest of the line is parsed, because its tasks define flags as well. No torch
here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import tyro
from tyro.conf import arg

from mollifier_lab import imports
from mollifier_lab.errors import LabError
from mollifier_lab.methods import METHODS
from mollifier_lab.settings import TASKS

# only for the help: the parser never sees the values
Imports = Annotated[
    tyro.conf.UseAppendAction[tuple[str, ...]],
    arg(
        name="import",
        metavar="FILE",
        help="Python file or module with tasks and methods of your own; can be repeated.",
        help_behavior_hint="(default: none)",
    ),
]


def take_imports(args: Sequence[str]) -> list[str]:
    """Load what `--import` names, and what installed packages offer under a name on this line; return the line without the flag.

    >>> try:
    ...     take_imports(["parity", "--import", "nowhere.py", "--lr", "0.1"])
    ... except LabError as error:
    ...     print(str(error).partition(" (")[0])
    --import nowhere.py: there is no such file

    Raises:
        LabError: If something cannot be loaded.
    """
    rest: list[str] = []
    words = iter(args)
    for word in words:
        name, equals, value = word.partition("=")
        if name != "--import":
            rest.append(word)
            continue
        value = value if equals else next(words, "")
        if not value or value.startswith("-"):
            raise LabError("--import: expected a Python file or a module after it, for example --import my_task.py")
        imports.load(value)
    names = {word.partition(":")[0] for word in rest if not word.startswith("-")}
    if names - set(TASKS) - set(METHODS):  # searching all installed packages takes a while
        imports.load_named(names - set(TASKS) - set(METHODS))
    return rest
