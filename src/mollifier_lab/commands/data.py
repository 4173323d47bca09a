"""`mollifier data`: download a task's data, or check the files in a folder."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from mollifier_lab.commands.shared_flags import DataFolder, Quiet
from mollifier_lab.data.folder import check, data_folder
from mollifier_lab.data.sources import SOURCES, source
from mollifier_lab.errors import LabError, pick
from mollifier_lab.settings import TASKS

SETS = {name: "word-vectors" if name == "characters" else name for name in TASKS} | {name: name for name in SOURCES}


@dataclass(frozen=True)
class Data:
    """Download and check the data of a task; or, with --from, check the files in a folder."""

    task: Annotated[Positional[str], arg(metavar="TASK", help=f"One of: {', '.join(TASKS)}.")]
    from_: Annotated[Path | None, arg(name="from", metavar="FOLDER", help_behavior_hint="")] = None
    """Download nothing: check the files in this folder, and say how to use them where they are."""
    data: DataFolder = None
    force: Annotated[bool, arg(help_behavior_hint="")] = False
    """Replace existing files that are wrong."""
    quiet: Quiet = False

    def run(self) -> int:
        """Download or check."""
        name = pick("task", self.task, SETS)
        if name in ("parity", "adding"):
            print(f"{name}: needs no files, its samples are generated during training")
            return 0
        if name == "pentomino":
            return self._make_pentomino()
        if self.from_ is not None:
            return self._check(name, self.from_)

        from mollifier_lab.data.fetch import fetch

        folder = data_folder(self.data)
        print(f"{source(name).title}\n  {source(name).remark}")
        print(f"ready: {fetch(name, folder, progress=not self.quiet, force=self.force)}")
        return 0

    def _check(self, name: str, folder: Path) -> int:
        if not folder.exists():
            raise LabError(f"--from {folder}: there is no such folder")
        reports = check(name, folder)
        for report in reports:
            print(f"{report.status:8}{report.path}: {report.detail}")
        bad = sum(report.status != "ok" for report in reports)
        if bad:
            raise LabError(
                f"{source(name).title}: {bad} of {len(reports)} files in {folder} are missing or not the published ones; "
                f"to download: mollifier data {self.task} --data {shlex.quote(str(folder))}"
            )
        where = shlex.quote(str(folder.resolve()))
        print(f"all good; to use them: export MOLLIFIER_DATA={where}\nor name the folder each time: --data {where}")
        return 0

    def _make_pentomino(self) -> int:
        """Report the images that our generator makes and keeps."""
        from mollifier_lab.data import pentomino

        sizes = []
        for split in ("train", "valid", "test"):
            sizes.append(f"{split} {len(pentomino.load(split, self.from_ or self.data)):,}")
        print(f"pentomino: generated, no download; images: {', '.join(sizes)}")
        return 0
