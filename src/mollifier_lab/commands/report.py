"""`mollifier report`: a page about the runs in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from mollifier_lab.commands.imported import Imports
from mollifier_lab.commands.screen import show_report


@dataclass(frozen=True)
class Report:
    """Make one page of all runs in a folder: curves, table, settings; pictures and CSV beside it."""

    folder: Annotated[Positional[Path], arg(metavar="DIR", help="Folder of a run, of a comparison, or of many.")]
    out: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: into DIR)")] = None
    """Where to write it."""
    imports: Imports = ()

    def run(self) -> int:
        """Write it; print the table and where the page is."""
        show_report(self.folder, self.out)
        return 0
