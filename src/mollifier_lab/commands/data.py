"""`mollifier data`: fetch a task's data, or check what is in a folder."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from mollifier_lab.commands.options import DataFolder, Quiet
from mollifier_lab.data.folder import check, data_folder
from mollifier_lab.data.sources import SOURCES, source
from mollifier_lab.errors import LabError, pick
from mollifier_lab.settings import TASKS

SETS = {name: "word-vectors" if name == "characters" else name for name in TASKS} | {name: name for name in SOURCES}


@dataclass(frozen=True)
class Data:
    """Fetch the data of a task, checked; or, with --from, check what is in a folder."""

    task: Annotated[Positional[str], arg(metavar="TASK", help=f"One of: {', '.join(TASKS)}.")]
    from_: Annotated[Path | None, arg(name="from", metavar="FOLDER", help_behavior_hint="")] = None
    """Fetch nothing: check the files in this folder, and tell how to use them where they are."""
    data: DataFolder = None
    force: Annotated[bool, arg(help_behavior_hint="")] = False
    """Replace files that are there and wrong."""
    quiet: Quiet = False

    def run(self) -> int:
        """Fetch or check."""
        name = pick("task", self.task, SETS)
        if name in ("parity", "adding"):
            print(f"{name}: needs no files, its samples are drawn as it trains")
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
                f"{source(name).title}: {bad} of {len(reports)} files in {folder} are missing or not as published; "
                f"to fetch: mollifier data {self.task} --data {shlex.quote(str(folder))}"
            )
        where = shlex.quote(str(folder.resolve()))
        print(f"all good; to use it: export MOLLIFIER_DATA={where}\nor name it each time: --data {where}")
        return 0

    def _make_pentomino(self) -> int:
        """Made by our generator, and kept."""
        from mollifier_lab.data import pentomino

        sizes = []
        for split in ("train", "valid", "test"):
            sizes.append(f"{split} {len(pentomino.load(split, self.from_ or self.data)):,}")
        print(f"pentomino: made here, no download; images: {', '.join(sizes)}")
        return 0
