"""What a comparison compares: a method, with settings of its own after a colon. No torch here.

>>> variant = Variant.parse("plain:lr=0.1,gain=4", "parity")
>>> variant.method, variant.changes
('plain', {'gain': 4.0, 'lr': 0.1})
>>> variant.label, variant.slug, str(variant)
('plain, gain=4, lr=0.1', 'plain_gain=4_lr=0.1', 'plain:gain=4,lr=0.1')
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from mollifier_lab.errors import LabError, did_you_mean, pick
from mollifier_lab.methods import METHODS, method_for
from mollifier_lab.settings import TASKS, RunConfig

Changes = Mapping[str, Any] | Iterable[str]
DEFAULTS: dict[str, tuple[str, ...]] = {
    "parity": ("plain", "mollified", "residual-bn"),
    "pentomino": ("plain", "residual", "residual-bn", "mollified", "mollified-residual"),
    "mnist": ("plain", "mollified", "residual-bn"),
    "cifar10": ("residual", "stochastic-depth", "mollified-residual"),
    "ptb": ("plain", "paper-lstm", "mollified", "residual"),
    "characters": ("plain", "mollified", "residual-bn"),
    "adding": ("plain", "copy", "paper-lstm", "mollified"),
}
USUAL = ("plain", "mollified")  # of a task that names none
LONGEST = 100  # of a folder's name; file systems accept 255 bytes
SWITCH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


@dataclass(frozen=True)
class Variant:
    """A method with settings of its own.

    Attributes:
        method: The name of the method.
        changes: The settings in which it differs from the others, by name.
    """

    method: str
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def parse(cls, text: str, task: str) -> Variant:
        """Read ``method`` or ``method:setting=value,setting=value``.

        Raises:
            LabError: If the method does not apply to the task, or a setting or its value is not understood.
        """
        method, colon, rest = text.strip().partition(":")
        try:
            method_for(method, task)
            changes = parse_changes(rest.split(","), task) if colon else {}
        except LabError as error:
            raise LabError(f"{text!r}: {error}" if colon else str(error)) from None
        return cls(method, dict(sorted(changes.items())))

    @property
    def label(self) -> str:
        """The name in tables and plots."""
        return ", ".join([METHODS[self.method].title, *self._parts])

    @property
    def slug(self) -> str:
        """The name of a folder: no two variants have the same, and every file system accepts it."""
        plain = "_".join([self.method, *self._parts])
        safe = re.sub(r"[^A-Za-z0-9._=+-]", "-", plain)
        if safe == plain and len(safe) <= LONGEST:
            return safe
        return f"{safe[:LONGEST]}-{hashlib.sha256(plain.encode()).hexdigest()[:8]}"

    @property
    def _parts(self) -> list[str]:
        return [f"{name}={show(value)}" for name, value in self.changes.items()]

    def __str__(self) -> str:
        return ":".join([self.method, *([",".join(self._parts)] if self.changes else [])])

    def config(self, task: str, seed: int, preset: str, changes: Mapping[str, Any]) -> RunConfig:
        """Return the config of its run with a seed. Its own settings take precedence over those of all variants."""
        label = self.label if self.changes else ""
        return RunConfig.make(task, self.method, seed, preset, label, **{**changes, **self.changes})


def parse_variants(given: Sequence[str | Variant], task: str) -> list[Variant]:
    """Return all variants, or the task's default methods if none is given.

    >>> [str(variant) for variant in parse_variants([], "ptb")]
    ['plain', 'paper-lstm', 'mollified', 'residual']

    Raises:
        LabError: If a variant is not understood, or given twice.
    """
    pick("task", task, TASKS)
    found = [
        each if isinstance(each, Variant) else Variant.parse(each, task) for each in given or default_methods(task)
    ]
    twice = sorted({str(each) for each in found if found.count(each) > 1})
    if twice:
        raise LabError(f"given twice: {', '.join(twice)}; expected each variant once")
    return found


def default_methods(task: str) -> list[str]:
    """Return what is compared by default: everything that the paper reports, the plain network, the method and the strongest remedy.

    >>> default_methods("cifar10")
    ['residual', 'stochastic-depth', 'mollified-residual']
    """
    return list(DEFAULTS.get(task, USUAL))


def parse_changes(given: Changes, task: str) -> dict[str, Any]:
    """Return settings from ``name=value`` words, each with the type that its task's dataclass gives; values with a type already are checked.

    >>> parse_changes(["lr=1e-3", "depth=20"], "cifar10")
    {'lr': 0.001, 'depth': 20}

    Raises:
        LabError: If words, names or values are not understood; the message names all of them.
    """
    kind = pick("task", task, TASKS)
    hints = get_type_hints(kind)
    known = [field.name for field in dataclasses.fields(kind)]
    found: dict[str, Any] = {}
    for name, value in given.items() if isinstance(given, Mapping) else map(_split, given):
        if name not in known:
            raise LabError(
                f"{task} has no setting {name!r}{did_you_mean(name, known)}; see mollifier train {task} --help"
            )
        if name in found:
            raise LabError(f"setting {name!r} is given twice: {show(found[name])} and {value}; expected it once")
        found[name] = _typed(name, value if isinstance(value, str) else show(value), hints[name])
    return found


def show(value: object) -> str:
    """Return a value as text that `parse_changes` reads back exactly.

    >>> show(4.0), show(1e-05), show(True), show("sgd")
    ('4', '1e-05', 'true', 'sgd')
    """
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def _split(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not (equals and name.strip() and value.strip()):
        raise LabError(f"{word!r} is not a setting; expected name=value, for example lr=0.1")
    return name.strip().replace("-", "_"), value.strip()


def _typed(name: str, text: str, hint: Any) -> Any:
    choices: dict[str, Any] = {}
    if get_origin(hint) is Literal:
        choices = {str(choice): choice for choice in get_args(hint)}
    elif hint is bool:
        choices, text = SWITCH, text.lower()
    if choices:
        if text not in choices:
            hint = did_you_mean(text, choices)
            raise LabError(f"{name}={text}: expected one of {', '.join(choices)}{hint}")
        return choices[text]
    try:
        value = hint(text)
    except ValueError:
        value = math.nan
    if isinstance(value, float) and not math.isfinite(value):
        raise LabError(f"{name}={text}: expected a {'whole' if hint is int else 'finite'} number")
    return value
