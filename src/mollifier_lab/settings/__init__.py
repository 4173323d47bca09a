"""What can be chosen, and the facts about each task. No torch here: `mollifier --help` and `mollifier tasks` are instant.

>>> config = RunConfig.make("parity", "mollified", seed=1, preset="quick", lr=0.5)
>>> config.settings.lr, config.settings.updates
(0.5, 2000)
>>> RunConfig.from_json(config.to_json()) == config
True
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from mollifier_lab.errors import LabError, did_you_mean, pick
from mollifier_lab.methods import Method, method_for
from mollifier_lab.settings.adding import Adding as Adding
from mollifier_lab.settings.applies import refuse_idle
from mollifier_lab.settings.base import KNOBS as KNOBS, Range as Range, Settings as Settings
from mollifier_lab.settings.characters import Characters as Characters
from mollifier_lab.settings.cifar10 import Cifar10 as Cifar10
from mollifier_lab.settings.mnist import Mnist as Mnist
from mollifier_lab.settings.parity import Parity as Parity
from mollifier_lab.settings.pentomino import Pentomino as Pentomino
from mollifier_lab.settings.ptb import Ptb as Ptb
from mollifier_lab.settings.recurrent import RecurrentSettings as RecurrentSettings

TASKS: dict[str, type[Settings]] = {
    "parity": Parity,
    "pentomino": Pentomino,
    "mnist": Mnist,
    "cifar10": Cifar10,
    "ptb": Ptb,
    "characters": Characters,
    "adding": Adding,
}
FORMAT = 1


def settings_for(task: str, preset: str = "paper", **changes: Any) -> Settings:
    """The settings of a task: its defaults, the preset's, and then the changes.

    Raises:
        LabError: If there is no such task, preset or setting, or a value is out of range.
    """
    kind = pick("task", task, TASKS)
    values: dict[str, Any] = dict(pick(f"preset of {task}", preset, kind.presets)) | changes
    known = {field.name for field in dataclasses.fields(kind)}
    for name in values:
        if name not in known:
            raise LabError(
                f"{task} has no setting {name!r}{did_you_mean(name, known)}; see mollifier train {task} --help"
            )
    return kind(**values)


@dataclass(frozen=True)
class RunConfig:
    """What is asked of a run. Equal configs give equal runs where the rest is equal, too: see `mollifier_lab.identity`."""

    task: str
    method: str
    seed: int
    settings: Settings
    preset: str = "paper"
    label: str = ""
    trial: bool = False
    """Of a search: the test set is never looked at."""
    other_data: bool = False
    """May the data be other files than the published ones? What they were is in environment.json."""

    def __post_init__(self) -> None:
        refuse_idle(method_for(self.method, self.task), self.settings)
        if self.seed < 0:
            raise LabError(f"seed={self.seed}: expected a whole number >= 0")

    @classmethod
    def make(
        cls, task: str, method: str, seed: int = 0, preset: str = "paper", label: str = "", **changes: Any
    ) -> RunConfig:
        """A config from a preset and changes to it."""
        return cls(task, method, seed, settings_for(task, preset, **changes), preset, label)

    @property
    def title(self) -> str:
        """As tables and plots name it: the label, or the method's title."""
        return self.label or self.spec.title

    @property
    def spec(self) -> Method:
        """The method."""
        return method_for(self.method, self.task)

    def to_json(self) -> str:
        """As a file: readable, and read back by `from_json`."""
        facts = dataclasses.asdict(self)
        for name in ("trial", "other_data"):  # as files were before there were these
            if not facts[name]:
                del facts[name]
        return json.dumps({"format": FORMAT, **facts}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> RunConfig:
        """Read what `to_json` wrote.

        Raises:
            LabError: If it is no config, or one that this version does not know.
        """
        try:
            found = json.loads(text)
            settings = found["settings"]
            rest = {name: found[name] for name in ("task", "method", "seed", "preset", "label")}
            rest |= {name: found.get(name) is True for name in ("trial", "other_data")}
        except (ValueError, KeyError, TypeError) as error:
            raise LabError(f"this is not the config of a run ({error!r})") from None
        if found.get("format") != FORMAT:
            raise LabError(f"config of format {found.get('format')}, this version reads {FORMAT}")
        kind = pick("task", rest["task"], TASKS)
        known = {field.name for field in dataclasses.fields(kind)}
        if unknown := sorted(set(settings) - known):
            raise LabError(f"config with settings that this version does not know: {', '.join(unknown)}")
        return cls(**rest, settings=kind(**settings))
