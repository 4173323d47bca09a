"""`mollifier figures`: draw the figures of the method itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from mollifier_lab.errors import LabError, pick


@dataclass(frozen=True)
class Figures:
    """Draw the figures of the paper and of the documents."""

    names: Annotated[
        Positional[tuple[str, ...]],
        arg(metavar="NAME ...", help="continuation, linearisation, schedules, loss-surface, layer, noise-variance.", help_behavior_hint="(default: all)"),
    ] = ()  # fmt: skip
    out: Annotated[Path, arg(metavar="DIR")] = Path("figures")
    """Folder for the PNG files."""
    dpi: Annotated[int, arg(metavar="N")] = 100
    """Dots per inch."""

    def run(self) -> int:
        """Draw the figures and print their paths."""
        from mollifier import figures

        if not 1 <= self.dpi <= 2000:
            raise LabError(f"--dpi {self.dpi}: expected a whole number from 1 to 2000")
        for name in self.names:
            pick("figure", name, figures.FIGURES)
        for name in self.names or tuple(figures.FIGURES):
            try:
                print(*figures.save(self.out, [name], self.dpi), flush=True)
            except OSError as error:  # on a full disk the system does not name the file
                error.filename = error.filename or str(self.out / f"{name}.png")
                raise
        return 0
