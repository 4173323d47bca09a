"""Which settings a method uses: setting one that would have no effect is an error."""

from __future__ import annotations

import dataclasses

from mollifier_lab.errors import LabError
from mollifier_lab.methods import Method
from mollifier_lab.settings.base import Settings
from mollifier_lab.settings.recurrent import RecurrentSettings

# setting: what a method must have to use it; k, c, horizon and the like are not listed, since presets set them for all methods
NEEDS = {
    "v": "an annealer",
    "then": "an annealer",
    "p_min": "an annealer",
    "copy": "the copy",
    "projection": "the copy",
    "push": "noisy activations",
    "unbiased_gates": "mollified gates",
    "time": "mollified gates",
    "carry_time": "mollified gates",
    "time_cap": "mollified gates",
}


def refuse_idle(method: Method, settings: Settings) -> None:
    """Refuse settings that differ from their defaults and that the method does not use.

    >>> from mollifier_lab.methods import METHODS
    >>> from mollifier_lab.settings import settings_for
    >>> try:
    ...     refuse_idle(METHODS["plain"], settings_for("parity", push="odds"))
    ... except LabError as error:
    ...     print(str(error).partition(".")[0])
    push='odds' would do nothing: method 'plain' has no noisy activations

    Raises:
        LabError: If there are such settings; the message names all of them.
    """
    recurrent = isinstance(settings, RecurrentSettings)
    has = {
        "an annealer": method.annealed,
        "the copy": method.has("copy", recurrent),
        "noisy activations": method.has("activations", recurrent),
        "mollified gates": method.has("gates", recurrent),
    }
    idle = [
        f"{each.name}={getattr(settings, each.name)!r} would do nothing: method {method.name!r} has no {NEEDS[each.name].removeprefix('an ').removeprefix('the ')}"
        for each in dataclasses.fields(settings)
        if each.name in NEEDS and not has[NEEDS[each.name]] and getattr(settings, each.name) != each.default
    ]
    if idle:
        raise LabError(f"{'; '.join(idle)}. Leave it out, or set it for one method only: mollified:setting=value")
    if not settings.copy and not method.has("activations", recurrent) and not method.has("gates", recurrent):
        raise LabError(f"copy=False leaves nothing of method {method.name!r}, which has only the copy")
