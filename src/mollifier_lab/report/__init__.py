"""The report of a folder of runs: a page, pictures and tables.

`report` writes them; `table` and `terminal.terminal_tables` return the same numbers for the terminal.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mollifier_lab.errors import LabError
from mollifier_lab.files import write_atomically
from mollifier_lab.report.folder_contents import read_folder
from mollifier_lab.report.summary import Estimate as Estimate, TableRow as TableRow, table as table

__all__ = ["Estimate", "Report", "TableRow", "report", "table"]


@dataclass(frozen=True)
class Report:
    """What was written, and its contents.

    Attributes:
        page: The path of the page.
        files: All files, the page first.
        rows: The table.
        notes: One sentence per run that could not be read, is damaged, failed, or was left out as a copy of another.
    """

    page: Path
    files: tuple[Path, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...]


def report(folder: str | Path | Sequence[Path], out: str | Path | None = None) -> Report:
    """Write report.html, curves.png, levels.png, losses.png (if a validation loss was measured), table.csv and curves.csv for all runs of a
    folder.

    The same runs give the same bytes.

    Args:
        folder: A run, or any folder with runs in it; or several of these.
        out: The folder to write to; by default the folder itself, or ``report`` in the folder that contains the several.

    Raises:
        LabError: If no run can be read, or `out` is not a folder.
    """
    from mollifier_lab.report.page import page_html
    from mollifier_lab.report.pictures import curves_png, levels_png, losses_png
    from mollifier_lab.report.tables import curves_csv, table_csv

    several = [Path(folder)] if isinstance(folder, str | Path) else list(folder)
    root = several[0] if len(several) == 1 else Path(os.path.commonpath([each.absolute() for each in several]))
    usual = root if len(several) == 1 else root / "report"
    target = usual if out is None else Path(out)
    if target.exists() and not target.is_dir():
        raise LabError(f"{target}: the report is written into a folder, and this is a file; name another with --out")
    seen = read_folder(root, several)
    tasks, rows, notes = seen.tasks, seen.rows, seen.notes
    failed = [f"{run.folder.path}: failed: {run.reason}" for run in seen.runs if run.status == "failed"]
    pictures = {"curves.png": curves_png(tasks), "levels.png": levels_png(tasks)}
    if losses := losses_png(tasks):
        pictures["losses.png"] = losses
    contents = {
        "report.html": page_html(root, tasks, rows, notes, pictures).encode(
            errors="replace"
        ),  # a path may contain any bytes
        **pictures,
        "table.csv": table_csv(rows).encode(errors="replace"),
        "curves.csv": curves_csv(seen.found, root).encode(errors="replace"),
    }
    for name, data in contents.items():
        write_atomically(target / name, data)
    files = tuple(target / name for name in contents)
    return Report(files[0], files, tuple(rows), (*notes, *failed))
