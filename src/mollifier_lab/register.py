"""Register the user's own tasks and methods, in addition to those of the paper. No torch here.

>>> from mollifier_lab import methods
>>> register_method("copy-and-noise", mollify={"recurrent": {"gates": False}}, summary="All but the gates.", knobs=("k",))
>>> methods.METHODS["copy-and-noise"].annealed
True
>>> del methods.METHODS["copy-and-noise"]

The guide in docs/own-tasks.md has a task, a method and a model in one file.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, get_args, overload

from mollifier_lab import methods, variants
from mollifier_lab.errors import LabError
from mollifier_lab.imports import note_origin
from mollifier_lab.methods import EVERY, METHODS, Architecture, Method
from mollifier_lab.settings import KNOBS, TASKS, RecurrentSettings, Settings

T = TypeVar("T")
OWN: dict[str, type[Any]] = {}  # the classes of users' tasks, by name
_WHENCE: dict[str, str] = {}  # where a task or a method was registered
NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
FACTS = ("curve", "headline", "target", "chance")


def register_task(
    name: str,
    settings: type[Settings],
    *,
    methods: Sequence[str] = variants.USUAL,
    architectures: Sequence[Architecture] = ("plain",),
) -> Callable[[type[T]], type[T]]:
    """Register a class as the task of that name, for every command, as a decorator.

        @register_task("spirals", Spirals)
        class SpiralsTask(Task[Spirals]): ...

    Args:
        name: The name on the command line: small letters, digits, - and _.
        settings: A frozen, keyword-only dataclass derived from `mollifier_lab.Settings`; its class variables are facts about the task.
        methods: The methods that `mollifier compare` runs by default.
        architectures: The networks that the task's `model` can build, by ``self.config.spec.architecture``; methods with other architectures do not apply.

    Raises:
        LabError: If the name is taken, or a part of the settings or the class is missing.
    """

    def register(task: type[T]) -> type[T]:
        _free("task", name, TASKS, task)
        _check(name, settings, task)
        TASKS[name], OWN[name] = settings, task
        variants.DEFAULTS[name] = tuple(methods)
        _open(name, architectures, issubclass(settings, RecurrentSettings))
        if "summary" not in vars(settings):
            settings.summary = (inspect.getdoc(settings) or name).partition("\n")[0].rstrip(".")
        note_origin(task)
        return task

    return register


@overload
def register_method(name: str, *, title: str = ..., summary: str = ..., knobs: Sequence[str] = ..., anneals: bool = ..., undo: Callable[..., Any] | None = ...) -> Callable[[T], T]: ...  # fmt: skip
@overload
def register_method(name: str, *, title: str = ..., summary: str = ..., knobs: Sequence[str] = ..., **facts: Any) -> None: ...  # fmt: skip
def register_method(
    name: str,
    *,
    title: str = "",
    summary: str = "",
    knobs: Sequence[str] = (),
    anneals: bool = True,
    undo: Callable[..., Any] | None = None,
    **facts: Any,
) -> Any:
    """Register a function as a method for every command and task, as a decorator; or compose a method from existing parts, with keywords.

        @register_method("half-time", knobs=("c",))
        def half_time(model, settings, example):
            mollifier.mollify(model, c=settings.c, example=example)
            return mollifier.Annealer(model, "linear", horizon=settings.updates / 2)

    The function receives the plain network, the settings and an example (or None), changes the network in place, and returns its annealer.
    At the end of a run the laboratory removes what `mollifier.mollify` added.

    Args:
        name: The name on the command line.
        title: The name in tables and plots; by default the same.
        summary: One sentence; the function's docstring by default.
        knobs: Settings that a search varies in addition to the learning rate, from `mollifier_lab.settings.KNOBS`.
        anneals: Whether the function returns an annealer; otherwise it must return None.
        undo: Removes what the function added to the network apart from mollification.
        **facts: Without a function: ``architecture``, ``mollify``, ``weight_noise``, ``per_sample`` or ``tasks``, as in `Method`.

    Raises:
        LabError: If the name is taken, or something is not known.
    """
    if unknown := sorted(set(knobs) - set(KNOBS)):
        raise LabError(
            f"method {name!r}: knobs {', '.join(unknown)} are not known; expected some of: {', '.join(KNOBS)}"
        )
    if wrong := sorted(set(facts) - {each.name for each in dataclasses.fields(Method)}):
        raise LabError(f"method {name!r}: {', '.join(wrong)} is not known; see mollifier_lab.methods.Method")
    common: dict[str, Any] = {"name": name, "title": title or name, "knobs": tuple(knobs)}
    if facts:
        _free("method", name, METHODS, None)
        METHODS[name] = Method(**common, summary=summary or f"{title or name}.", **{"tasks": EVERY} | facts)
        return None

    def register(function: T) -> T:
        _free("method", name, METHODS, function)
        told = summary or (inspect.getdoc(function) or f"{title or name}.").partition("\n")[0]
        METHODS[name] = Method(**common, summary=told, apply=function, undo=undo, anneals=anneals)  # type: ignore[arg-type]
        note_origin(function)
        return function

    return register


def _free(kind: str, name: str, table: dict[str, Any], thing: Any) -> None:
    """Check that the name is valid and free. The same file may be read twice, as a script and by its workers."""
    if not NAME.fullmatch(name):
        raise LabError(f"{kind} {name!r}: expected a name of small letters, digits, - and _")
    whence = f"{kind} {getattr(thing, '__qualname__', '')} of {getattr(inspect.getmodule(thing), '__file__', '')}"
    if name in table and _WHENCE.get(f"{kind} {name}") != whence:
        raise LabError(f"there is a {kind} {name!r} already; give yours another name")
    _WHENCE[f"{kind} {name}"] = whence


def _open(name: str, architectures: Sequence[Architecture], recurrent: bool) -> None:
    known = get_args(Architecture)
    if wrong := [each for each in architectures if each not in known]:
        raise LabError(f"task {name!r}: architecture {wrong[0]!r} is not known; expected some of: {', '.join(known)}")
    methods.OPEN[name] = (tuple(architectures), recurrent)


def _check(name: str, settings: Any, task: type[Any]) -> None:
    if not (isinstance(settings, type) and issubclass(settings, Settings) and "__dataclass_fields__" in vars(settings)):
        raise LabError(
            f"task {name!r}: {settings!r} is not a dataclass derived from mollifier_lab.Settings; put @dataclass(frozen=True, kw_only=True) above it"
        )
    if missing := [each for each in FACTS if not hasattr(settings, each)]:
        raise LabError(f"task {name!r}: {settings.__name__} lacks {', '.join(missing)}; give each as a ClassVar")
    if "mollifier_lab.tasks.base" not in {
        base.__module__ for base in getattr(task, "__mro__", ())
    }:  # `Task` is imported only if torch is
        raise LabError(f"task {name!r}: {task!r} is not a subclass of mollifier_lab.tasks.Task")
    if abstract := sorted(getattr(task, "__abstractmethods__", ())):
        raise LabError(f"task {name!r}: {task.__name__} lacks {', '.join(abstract)}")
    if "paper" not in settings.presets:
        raise LabError(
            f"task {name!r}: presets={settings.presets}: expected one named 'paper', the defaults: {{'paper': {{}}}}"
        )
    kind: Any = settings
    try:
        for preset in settings.presets.values():
            kind(**preset)
    except (LabError, TypeError) as error:
        raise LabError(f"task {name!r}: {settings.__name__}: its defaults or presets make no sense: {error}") from None
