"""The settings of every task, and facts about it. No torch here: `mollifier --help` and `mollifier tasks` are instant.

>>> config = RunConfig.make("parity", "mollified", seed=1, preset="quick", lr=0.5)
>>> config.settings.lr, config.settings.updates
(0.5, 2000)
>>> RunConfig.from_json(config.to_json()) == config
True
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from mollifier_lab import imports as code
from mollifier_lab.errors import LabError, did_you_mean, pick
from mollifier_lab.imports import Import as Import
from mollifier_lab.json_files import is_number, is_whole, parse
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
SEEDS = 2**32  # what all random generators of a run can take
KINDS = {
    "task": (str, "a text"),
    "method": (str, "a text"),
    "preset": (str, "a text"),
    "label": (str, "a text"),
    "seed": (int, "a whole number"),
    "settings": (dict, "an object, {...}"),
}


def settings_for(task: str, preset: str = "paper", **changes: Any) -> Settings:
    """Return the settings of a task: its defaults, then the preset's, then the changes.

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
    """What a run is asked to do. Equal configs give equal runs if everything else is equal as well: see `mollifier_lab.identity`."""

    task: str
    method: str
    seed: int
    settings: Settings
    preset: str = "paper"
    label: str = ""
    trial: bool = False
    """Whether it is a trial of a search, which never looks at the test set."""
    other_data: bool = False
    """Whether the data may be other files than the published ones. environment.json records which they were."""
    imports: tuple[Import, ...] = dataclasses.field(default_factory=code.recorded)
    """The user's own code that the run was made with, see `mollifier_lab.imports`."""

    def __post_init__(self) -> None:
        refuse_idle(method_for(self.method, self.task), self.settings)
        if not 0 <= self.seed < SEEDS:
            raise LabError(f"seed={self.seed}: expected a whole number from 0 to {SEEDS - 1}")
        for name in ("label", "preset"):
            if any("\ud800" <= letter <= "\udfff" for letter in getattr(self, name)):
                raise LabError(f"{name}={getattr(self, name)!r}: expected text; it contains bytes that are not UTF-8")

    @classmethod
    def make(
        cls, task: str, method: str, seed: int = 0, preset: str = "paper", label: str = "", **changes: Any
    ) -> RunConfig:
        """Make a config from a preset and changes to it."""
        return cls(task, method, seed, settings_for(task, preset, **changes), preset, label)

    @property
    def title(self) -> str:
        """The name in tables and plots: the label, or the method's title."""
        return self.label or self.spec.title

    @property
    def spec(self) -> Method:
        """The method."""
        return method_for(self.method, self.task)

    def to_json(self) -> str:
        """Return the config as text for a file, which `from_json` reads back."""
        facts = dataclasses.asdict(self)
        for name in ("trial", "other_data", "imports"):  # files from before there were these
            if not facts[name]:
                del facts[name]
        return json.dumps({"format": FORMAT, **facts}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str, *, trusted: bool = False) -> RunConfig:
        """Read what `to_json` wrote, and load the code that it names, if this user has loaded it before or it is trusted.

        Raises:
            LabError: If it is not a config, or one that this version does not know, or its code cannot be loaded.
        """
        found = parse(text, "this is not the config of a run")
        if not isinstance(found, dict):
            raise LabError(f"this is not the config of a run: expected an object, {{...}}, not {type(found).__name__}")
        for name, (kind, expected) in KINDS.items():
            if type(found.get(name)) is not kind:
                given = f"{name}={found[name]!r:.100}" if name in found else f"{name} is missing"
                raise LabError(f"this is not the config of a run: {given}, expected {expected}")
        settings, rest = found["settings"], {name: found[name] for name in KINDS if name != "settings"}
        rest |= {name: found.get(name) is True for name in ("trial", "other_data")}
        if found.get("format") != FORMAT:
            raise LabError(f"config of format {found.get('format')}, this version reads {FORMAT}")
        rest["imports"] = _imports(found.get("imports", []))
        code.recall(rest["imports"], trusted=trusted)
        task = pick("task", rest["task"], TASKS)
        known = {field.name for field in dataclasses.fields(task)}
        if unknown := sorted(set(settings) - known):
            raise LabError(f"config with settings that this version does not know: {', '.join(unknown)}")
        check_types(task, settings)
        return cls(**rest, settings=task(**settings))


def _imports(found: object) -> tuple[Import, ...]:
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise LabError(f"this is not the config of a run: imports={found!r:.100}, expected a list of objects")
    for each in found:
        for name in ("source", "sha256"):
            if not isinstance(each.get(name), str):
                raise LabError(
                    f"this is not the config of a run: imports: {name}={each.get(name)!r:.100}, expected a text"
                )
    return tuple(Import(each["source"], each["sha256"]) for each in found)


def check_types(task: type[Settings], settings: Mapping[str, Any]) -> None:
    """Refuse settings of a file whose values do not have the type that the task declares.

    >>> try:
    ...     check_types(Parity, {"bits": True})
    ... except LabError as error:
    ...     print(error)
    bits=True: expected a whole number

    Raises:
        LabError: If there is such a setting; the message names the first.
    """
    hints = get_type_hints(task)
    for name, value in settings.items():
        hint = hints[name]
        if get_origin(hint) is Literal:
            choices = get_args(hint)
            good = any(type(value) is type(choice) and value == choice for choice in choices)
            expected = f"one of {', '.join(map(str, choices))}"
        else:
            expected, check = TYPES[hint]
            good = check(value)
        if not good:
            raise LabError(f"{name}={value!r:.100}: expected {expected}")


TYPES: dict[type, tuple[str, Callable[[object], bool]]] = {
    bool: ("true or false", lambda value: isinstance(value, bool)),
    int: ("a whole number", is_whole),
    float: ("a finite number", is_number),
    str: ("a text", lambda value: isinstance(value, str)),
}
