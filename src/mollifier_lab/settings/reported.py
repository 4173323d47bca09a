"""The numbers that the paper reports for a task, and for which setting: a number is shown only next to runs of that size. No torch here.

>>> from mollifier_lab.settings import settings_for
>>> reported(settings_for("ptb", "published"), "mollified").values["mollified"]
115.7
>>> reported(settings_for("ptb", "quick"), "mollified") is None
True
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mollifier_lab.settings.base import Settings


@dataclass(frozen=True)
class Reported:
    """Numbers of one table or figure of the paper.

    Attributes:
        values: The numbers by method, as the task's headline.
        where: The table or figure.
        size: Settings that must be equal for a run to be compared with these numbers.
        least: Settings that must have at least this value: the length of training.
        note: How they differ from our ``final``, in a few words; empty if they are the same kind of number.
    """

    values: Mapping[str, float]
    where: str
    size: Mapping[str, Any] = field(default_factory=dict)
    least: Mapping[str, float] = field(default_factory=dict)
    note: str = ""

    def full_size(self, settings: Settings) -> bool:
        """Return whether these settings have the size that the numbers are for."""
        same = all(getattr(settings, name) == value for name, value in self.size.items())
        # updates, if given, take precedence over epochs
        counted = {name: 0 if name == "epochs" and settings.updates else getattr(settings, name) for name in self.least}
        return same and all(counted[name] >= least for name, least in self.least.items())


def reported(settings: Settings, method: str) -> Reported | None:
    """Return what the paper reports for a method in a setting of this size, if anything."""
    found = [each for each in settings.paper if method in each.values and each.full_size(settings)]
    return found[0] if found else None


def in_paper(settings: type[Settings]) -> list[str]:
    """Return the methods for which the paper reports a number.

    >>> from mollifier_lab.settings import TASKS
    >>> in_paper(TASKS["cifar10"])
    ['residual', 'stochastic-depth', 'mollified-residual']
    """
    return list(dict.fromkeys(method for each in settings.paper for method in each.values))
