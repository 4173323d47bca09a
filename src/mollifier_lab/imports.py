"""Load the user's Python code that defines tasks and methods, from a file or by a module's name, and recognise it by its hash. No torch
here.

>>> import tempfile
>>> path = Path(tempfile.mkdtemp()) / "my_words.py"
>>> _ = path.write_text("answer = 42")
>>> load(path, record=False).name, sys.modules["my_words"].answer
('my_words.py', 42)

A run records in its config.json the code that it needs, and loads it again from there. Only code that this user has named before (``--import``, or
code that registered something) is loaded, because merely looking at a folder of runs from elsewhere must not run code.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import platform
import sys
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from mollifier_lab.errors import LabError
from mollifier_lab.trusted_code import is_trusted, trust

GROUPS = ("mollifier.tasks", "mollifier.methods")
OURS = "mollifier_lab."
HOOK = "mollifier_register"  # called after the import, if there is a function of that name: for modules that should not register anything by themselves
_LOADED: dict[str, Import] = {}  # by source: the code that this process has loaded
_ASKED: dict[str, None] = {}  # the sources that are recorded in configs made in this process
_LOADING: list[str] = []


@dataclass(frozen=True)
class Import:
    """A piece of code. Two pieces are equal if their bytes are, wherever they are stored.

    Attributes:
        source: The path of a file, or the name of a module.
        sha256: The hash of the file, or of all Python files of a package.
    """

    source: str = field(compare=False)
    sha256: str

    @property
    def name(self) -> str:
        """The name of the file or module."""
        return Path(self.source).name if is_file(self.source) else self.source


def is_file(source: str) -> bool:
    """Return whether a string is a path and not the name of a module.

    >>> is_file("my_task.py"), is_file("my_package.tasks")
    (True, False)
    """
    return source.endswith(".py") or os.sep in source or "/" in source


def load(source: str | Path, *, record: bool = True) -> Import:
    """Import a file or a module, once.

    Args:
        source: A path that ends in ``.py``, or the name of a module.
        record: Whether configs that are made from now on name it, and runs that name it may load it without being told to.

    Raises:
        LabError: If it does not exist, or fails.
    """
    text = str(source)
    key = str(Path(text).expanduser().resolve()) if is_file(text) else text
    if key not in _LOADED:
        _LOADING.append(key)
        try:
            module = _from_file(Path(key)) if is_file(key) else importlib.import_module(key)
            getattr(module, HOOK, lambda: None)()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # the user's code may raise anything
            raise LabError(f"--import {text}: {_reason(error, key)} (on {platform.node()})") from error
        finally:
            _LOADING.pop()
        _LOADED[key] = Import(key, digest(module))
    if record:
        note(_LOADED[key])
    return _LOADED[key]


def note(found: Import) -> None:
    """Let configs that are made from now on record a piece of code, and trust it in later processes of this user."""
    _LOADED[found.source] = found
    _ASKED.setdefault(found.source)
    if not found.source.startswith(OURS):
        trust(found.source)


def note_origin(thing: Any) -> None:
    """Record the code that defines a class or a function, if it is in a file or is being loaded now."""
    module = sys.modules.get(getattr(thing, "__module__", ""))
    path = getattr(module, "__file__", None)
    if _LOADING or module is None or path is None or module.__name__.startswith(OURS):
        return
    packaged = module.__package__ and module.__name__ != "__main__"  # such a file cannot be imported by its path
    key = module.__name__ if packaged else str(Path(path).resolve())
    if key not in _LOADED:
        note(Import(key, digest(module)))


def forget(before: Sequence[Import]) -> None:
    """Restore what configs recorded before."""
    _ASKED.clear()
    _ASKED.update(dict.fromkeys(each.source for each in before))


def recorded() -> tuple[Import, ...]:
    """Return what a config that is made now records."""
    return tuple(_LOADED[source] for source in _ASKED)


def recall(wanted: Sequence[Import], *, trusted: bool = False, record: bool = False) -> None:
    """Load the code that a config names. Code that has changed is loaded as it is now: `hashes` shows the change, and resuming a run checks
    it.

    Args:
        wanted: The code as the config names it.
        trusted: Whether the user has asked for this code.
        record: Whether configs that are made from now on name it as well.

    Raises:
        LabError: If it does not exist, fails, or was never named by this user.
    """
    there = set(_LOADED.values())
    for each in wanted:
        if each in there or (each.source in _LOADED and not trusted):
            if record and each.source in _LOADED:
                note(_LOADED[each.source])
            continue
        if (
            is_file(each.source) and each.source in _LOADED
        ):  # by a worker of a cluster that lives longer than one version of the file
            _unload(each.source)
        if is_file(each.source) and not Path(each.source).is_file():
            raise LabError(
                f"{each.source} does not exist on {platform.node()}, and this run was made with it; if it is elsewhere now, give --import FILE"
            )
        if not (trusted or each.source.startswith(OURS) or is_trusted(each.source)):
            raise LabError(
                f"this run was made with {each.source}, which you have not imported here before; "
                f"if you trust that code, give --import {each.source}"
            )
        load(each.source, record=record)


def hashes(wanted: Sequence[Import]) -> dict[str, str] | None:
    """Return the hashes of the code that a config names, as it is loaded now; None if it names none."""
    there = set(_LOADED.values())
    found: dict[str, str] = {}
    for each in wanted:
        now = each if each in there else _LOADED.get(each.source, each)
        found[each.name if each.name not in found else each.source] = now.sha256
    return found or None


def refuse_others(wanted: Sequence[Import]) -> None:
    """Refuse code that differs from the code with which the run was requested.

    Raises:
        LabError: If it differs.
    """
    here = hashes(wanted) or {}
    for each in wanted:
        if each.sha256 not in here.values():
            raise LabError(
                f"{each.source} on {platform.node()} is not the file that this was started with: expected the same file on all machines"
            )


def load_named(words: Iterable[str]) -> None:
    """Load the entry points of installed packages whose names are among the words.

    Raises:
        LabError: If one fails.
    """
    wanted = set(words)
    for point in (point for group in GROUPS for point in metadata.entry_points(group=group)):
        if point.name in wanted:
            load(point.module)


def entry_points() -> list[str]:
    """Return the names of all entry points of installed packages."""
    return [point.name for group in GROUPS for point in metadata.entry_points(group=group)]


def flags() -> list[str]:
    """Return the words of a command line that load the same code."""
    return [word for each in recorded() if not each.source.startswith(OURS) for word in ("--import", each.source)]


def not_while_loading(what: str) -> None:
    """Refuse to start something while a file is being imported: every worker that imports the file would start it as well.

    Raises:
        LabError: If a file is being imported.
    """
    if _LOADING:
        raise LabError(
            f'{_LOADING[-1]} starts {what} while it is being imported; put that under: if __name__ == "__main__":'
        )


def digest(module: ModuleType) -> str:
    """Return the hash of a module's source, or of all Python files of a package."""
    path = Path(str(module.__file__)).resolve()
    if path.name != "__init__.py":
        return hashlib.sha256(path.read_bytes()).hexdigest()
    every = sorted(path.parent.rglob("*.py"))
    told = "".join(f"{each.relative_to(path.parent).as_posix()} {hashlib.sha256(each.read_bytes()).hexdigest()}\n" for each in every)  # fmt: skip
    return hashlib.sha256(told.encode()).hexdigest()


def _unload(source: str) -> None:
    del _LOADED[source]
    for name in [name for name, module in sys.modules.items() if getattr(module, "__file__", None) == source]:
        if name != "__main__":
            del sys.modules[name]


def _from_file(path: Path) -> ModuleType:
    """Import a file under its own name, if that name is free. The file can import the files next to it."""
    if not path.is_file():
        raise LabError("there is no such file")
    name, folder = path.stem, str(path.parent)
    there = sys.modules.get(name)
    if there is not None and getattr(there, "__file__", None) == str(path):
        return there
    if there is not None or importlib.util.find_spec(name) is not None:
        name = f"{name}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if folder not in sys.path:
        sys.path.append(folder)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _reason(error: BaseException, key: str) -> str:
    if isinstance(error, LabError):
        return str(error)
    lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == key]
    where = f", line {lines[-1]}" if lines else ""
    return f"it cannot be imported{where} ({type(error).__name__}: {error})"
