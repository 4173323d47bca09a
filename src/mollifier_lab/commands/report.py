"""`mollifier report`: a page about the runs in a folder."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from mollifier_lab.commands.import_flag import Imports
from mollifier_lab.commands.output import show_report
from mollifier_lab.errors import LabError
from mollifier_lab.signals import Stop


@dataclass(frozen=True)
class Report:
    """Make one page about all runs in one or several folders: curves, table and settings, with pictures and CSV files next to it."""

    folders: Annotated[
        Positional[tuple[Path, ...]], arg(metavar="DIR ...", help="Folders of a run, of a comparison, or of many.")
    ]
    out: Annotated[
        Path | None, arg(metavar="DIR", help_behavior_hint="(default: DIR; for several folders, report next to them)")
    ] = None  # fmt: skip
    """Folder to write to."""
    imports: Imports = ()
    serve: Annotated[bool, arg(help_behavior_hint="")] = False
    """Show the page in a browser instead, and update it while runs are in progress. Only this machine can reach it, and nothing is written."""
    port: Annotated[int, arg(metavar="N")] = 8765
    """With --serve: the port; the next free one if it is in use, 0 for any."""
    host: Annotated[str, arg(metavar="ADDRESS")] = "127.0.0.1"
    """With --serve: another address of this machine lets others read the page, without a password."""

    def run(self) -> int:
        """Write the page, and print the table and where the page is; or serve the page until Ctrl-C."""
        if not self.folders:
            raise LabError("mollifier report needs a folder with runs; for example: mollifier report runs")
        if self.serve:
            return self._serve()
        show_report(self.folders[0] if len(self.folders) == 1 else self.folders, self.out)
        return 0

    def _serve(self) -> int:
        from mollifier_lab.report.server import Server

        if self.out is not None:
            raise LabError(f"--serve and --out {self.out}: expected one of them; --serve writes nothing")
        folder, *others = self.folders
        if others:
            raise LabError(f"--serve and {len(self.folders)} folders: expected one; name the folder that contains them")
        if not 0 <= self.port <= 65_535:
            raise LabError(f"--port {self.port}: expected a number from 0 to 65535")
        with Server(folder, self.host, self.port) as server:
            print(f"{folder} at {server.address} (Ctrl-C ends it)", flush=True)
            if not server.private:
                print(f"warning: everyone who reaches {self.host} can read the page", file=sys.stderr)
            with Stop() as stop:
                server.timeout = 0.5
                while not stop.asked:
                    server.handle_request()
        return 0
