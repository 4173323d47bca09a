"""`mollifier resume`: resume a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from mollifier_lab import seal
from mollifier_lab.commands.import_flag import Imports
from mollifier_lab.commands.output import result_line, say, tell_end
from mollifier_lab.commands.shared_flags import DataFolder, HardwareFlags, Quiet
from mollifier_lab.hardware import Hardware
from mollifier_lab.runs import RunFolder


@dataclass(frozen=True)
class Resume:
    """Resume a run where it stopped; the result is that of an uninterrupted run."""

    folder: Annotated[Positional[Path], arg(metavar="DIR", help="Folder of the run.")]
    data: DataFolder = None
    imports: Imports = ()
    quiet: Quiet = False
    hardware: HardwareFlags = field(default_factory=Hardware)

    def run(self) -> int:
        """Resume the run, unless it is done."""
        run = RunFolder(self.folder)
        task = run.config().task
        if run.status == "done":
            seal.refuse(self.folder)
            say(f"done already: {result_line(task, run.json('result.json'), self.folder)}")
            return 0

        from mollifier_lab import engine

        result = engine.resume(self.folder, data=self.data, hardware=self.hardware, show=not self.quiet)
        tell_end(task, result, self.folder)
        return 0
