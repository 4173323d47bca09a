"""What a search has chosen for a variant, written next to its runs, so that every number says how it was tuned. No torch here.

>>> found = Tuned("plain", 8, {"lr": (0.1, 1.0, "log")}, {"lr": 0.25}, "valid_error", 0.125)
>>> found.summary
'lr on 8 trials'
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mollifier_lab.errors import LabError
from mollifier_lab.files import write_atomically
from mollifier_lab.json_files import is_number, is_whole, read_object
from mollifier_lab.settings import Range

NAME, FORMAT = "tuned.json", 1


@dataclass(frozen=True)
class Tuned:
    """A search and its result.

    Attributes:
        method: The method that was searched.
        trials: The number of trials, the same for every method of a study.
        ranges: The settings that were drawn, and their ranges.
        chosen: The values of the best trial; empty if every trial diverged.
        metric: The metric by which trials were compared: on the validation set if the task has one, never on the test set.
        value: Its value for the best trial.
        changes: Settings that were changed for the trials only, for example a shorter training.
        outcomes: The number of trials with each outcome.
    """

    method: str
    trials: int
    ranges: Mapping[str, Range]
    chosen: Mapping[str, float]
    metric: str
    value: float | None
    changes: Mapping[str, Any] = field(default_factory=dict)
    outcomes: Mapping[str, int] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """Describe the search as the table does."""
        lost = "" if self.chosen else ": all diverged, none chosen"
        return f"{', '.join(self.ranges)} on {self.trials} trial{'' if self.trials == 1 else 's'}{lost}"

    def write(self, folder: Path) -> None:
        """Write it into the folder of a variant."""
        text = json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, indent=2)
        write_atomically(folder / NAME, text.encode() + b"\n")

    @classmethod
    def read(cls, folder: Path) -> Tuned | None:
        """Read it from the folder of a variant; None if there is none.

        Raises:
            LabError: If the file is not understood.
        """
        path = folder / NAME
        try:
            found = read_object(path)
            if found.pop("format") != FORMAT:
                raise ValueError(f"expected format {FORMAT}")
            found["ranges"] = {name: tuple(each) for name, each in found["ranges"].items()}
            return checked(cls(**found))
        except FileNotFoundError:
            return None
        except (LabError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise LabError(f"{path}: not understood ({error!r}); remove it, or make the study again") from None


def checked(found: Tuned) -> Tuned:
    """Return what was read from a file, if its parts have the right types.

    Raises:
        ValueError: If a part has a wrong type.
    """
    for name, good in (
        ("method", isinstance(found.method, str)),
        ("trials", is_whole(found.trials)),
        ("ranges", all(_is_range(each) for each in found.ranges.values())),
        ("chosen", isinstance(found.chosen, dict) and all(map(is_number, found.chosen.values()))),
        ("metric", isinstance(found.metric, str)),
        ("value", found.value is None or is_number(found.value)),
        ("changes", isinstance(found.changes, dict)),
        ("outcomes", isinstance(found.outcomes, dict) and all(map(is_whole, found.outcomes.values()))),
    ):
        if not good:
            raise ValueError(f"{name}={getattr(found, name)!r:.100}")
    return found


def _is_range(value: object) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) == 3
        and all(map(is_number, value[:2]))
        and value[2] in ("log", "linear")
    )
