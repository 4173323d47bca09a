"""Where the settings of a run start from: a task's defaults, then a preset, then a file. Flags override all of them. No torch here."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from mollifier_lab.errors import LabError, did_you_mean
from mollifier_lab.imports import Import, recall
from mollifier_lab.json_files import read_object, read_text
from mollifier_lab.settings import FORMAT, Settings, settings_for
from mollifier_lab.variants import parse_changes


@dataclass(frozen=True)
class ConfigFile:
    """The contents of a file: the config.json of a run, the best settings of a search, or any part of such a file."""

    task: str = ""
    method: str = ""
    seed: int = 0
    preset: str = ""
    label: str = ""
    trial: bool = False
    other_data: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    imports: list[Any] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> ConfigFile:
        """Read the file.

        Raises:
            LabError: If it does not exist, is not a JSON or YAML object, or is not understood.
        """
        try:
            found = _yaml(path) if path.suffix in (".yaml", ".yml") else read_object(path, f"--config {path}")
        except OSError as error:
            raise LabError(f"--config {path}: {error.strerror}") from None
        except ValueError as error:  # a name that no file can have
            raise LabError(f"--config {str(path)!r}: {error}") from None
        if found.pop("format", FORMAT) != FORMAT:
            raise LabError(f"--config {path}: expected format {FORMAT}, which this version reads")
        kinds = {each.name: type(getattr(cls(), each.name)) for each in fields(cls)}
        for name, value in found.items():
            if name not in kinds:
                raise LabError(
                    f"--config {path}: {name!r} is not known{did_you_mean(name, kinds)}; expected: {', '.join(kinds)}"
                )
            if type(value) is not kinds[name]:
                raise LabError(f"--config {path}: {name}={value!r:.100}: expected {KINDS[kinds[name]]}")
            if name in NAMED and value == "":
                raise LabError(f"--config {path}: {name}='': expected the name of a {name}, or leave it out")
        start = cls(**found)
        try:
            wanted = [Import(str(each["source"]), str(each["sha256"])) for each in start.imports]
        except (KeyError, TypeError) as error:
            raise LabError(f"--config {path}: imports: expected objects with source and sha256 ({error!r})") from None
        recall(wanted, record=True)
        return start

    def begin(self, task: str, preset: str = "") -> Settings:
        """Return the settings that flags then change.

        Raises:
            LabError: If the file belongs to another task, or a setting is not known or out of range.
        """
        if self.task and self.task != task:
            raise LabError(f"--config is for task {self.task!r}, but the command names {task!r}")
        return settings_for(task, preset or self.preset or "paper", **parse_changes(self.settings, task))


def _yaml(path: Path) -> dict[str, Any]:
    import yaml  # type: ignore[import-untyped]

    class Once(yaml.SafeLoader):  # type: ignore[misc]
        """Refuse a name that is given twice; YAML's own loader silently drops the first."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            names = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
            if twice := [name for name, count in names.items() if count > 1]:
                raise yaml.YAMLError(f"{twice[0]!r:.100} is given twice; expected it once")
            return super().construct_mapping(node, deep)

    try:
        found = yaml.load(read_text(path, what=f"--config {path}"), Loader=Once)
    except (yaml.YAMLError, RecursionError) as error:
        raise LabError(f"--config {path}: not YAML ({' '.join(str(error).split())})") from None
    if not isinstance(found, dict):
        raise LabError(f"--config {path}: expected an object, {{...}}, not {found!r:.100}")
    return found


NAMED = ("task", "method", "preset")
KINDS = {list: "a list, [...]", bool: "true or false", str: "a text", int: "a whole number", dict: "an object, {...}"}
