"""All commands by their names. No torch here.

>>> sorted(COMMANDS)
['compare', 'data', 'figures', 'frontier', 'ls', 'methods', 'note', 'report', 'reproduce', 'resume', 'search', 'tasks', 'train']
"""

from __future__ import annotations

from typing import Any, Protocol

from mollifier_lab.commands.compare import Compare as Compare
from mollifier_lab.commands.data import Data as Data
from mollifier_lab.commands.figures import Figures as Figures
from mollifier_lab.commands.frontier import Frontier as Frontier
from mollifier_lab.commands.lists import Methods as Methods, Tasks as Tasks
from mollifier_lab.commands.ls import Ls as Ls, Note as Note
from mollifier_lab.commands.report import Report as Report
from mollifier_lab.commands.reproduce import Reproduce as Reproduce
from mollifier_lab.commands.resume import Resume as Resume
from mollifier_lab.commands.search import Search as Search
from mollifier_lab.commands.train import Train as Train


class Command(Protocol):
    """A command line that has been parsed."""

    def run(self) -> int:
        """Run the command and return the exit code."""


COMMANDS: dict[str, type[Any]] = {
    "train": Train,
    "resume": Resume,
    "compare": Compare,
    "search": Search,
    "reproduce": Reproduce,
    "frontier": Frontier,
    "report": Report,
    "ls": Ls,
    "note": Note,
    "data": Data,
    "figures": Figures,
    "tasks": Tasks,
    "methods": Methods,
}
