"""`mollifier report`: a page about the runs in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from mollifier_lab.commands.imported import Imports
from mollifier_lab.commands.screen import show_report
from mollifier_lab.errors import LabError


@dataclass(frozen=True)
class Report:
    """Make one page of all runs in one or several folders: curves, table, settings; pictures and CSV beside it."""

    folders: Annotated[
        Positional[tuple[Path, ...]], arg(metavar="DIR ...", help="Folders of a run, of a comparison, or of many.")
    ]
    out: Annotated[
        Path | None, arg(metavar="DIR", help_behavior_hint="(default: into DIR; of several, into report beside them)")
    ] = None  # fmt: skip
    """Where to write it."""
    imports: Imports = ()

    def run(self) -> int:
        """Write it; print the table and where the page is."""
        if not self.folders:
            raise LabError("mollifier report needs a folder with runs; for example: mollifier report runs")
        show_report(self.folders[0] if len(self.folders) == 1 else self.folders, self.out)
        return 0
