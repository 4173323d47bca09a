"""`mollifier train`: make one run. Torch is not imported until it starts."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import tyro
from tyro.conf import arg

from mollifier_lab import loggers, notes, seal
from mollifier_lab.commands.config_file import ConfigFile
from mollifier_lab.commands.default_folders import run_folder
from mollifier_lab.commands.dry_run import print_plan
from mollifier_lab.commands.import_flag import Imports
from mollifier_lab.commands.output import result_line, say, tell_end
from mollifier_lab.commands.shared_flags import (
    SWITCHES,
    DataFolder,
    DryRun,
    HardwareFlags,
    MethodName,
    NoteText,
    OtherData,
    Preset,
    Quiet,
    Tags,
    Task,
)
from mollifier_lab.errors import Busy, LabError
from mollifier_lab.files import leaving_nothing
from mollifier_lab.hardware import Hardware, resume_command
from mollifier_lab.ranks import rank
from mollifier_lab.runs import PREPARED, RunFolder
from mollifier_lab.settings import TASKS, RunConfig

S = TypeVar("S")
SWITCHED = {"-h", "--help", "--quiet", "--no-tensorboard", "--allow-other-data", "--dry-run"}


@dataclass(frozen=True)
class Nothing:
    """No settings, because no task has been named yet."""


@dataclass(frozen=True)
class Train(Generic[S]):
    """Train one network. `mollifier train TASK --help` also lists the task's settings."""

    task: Task
    settings: Annotated[tyro.conf.OmitArgPrefixes[S], arg(help="All settings of this task.")]
    preset: Preset = "paper"
    method: MethodName = "mollified"
    seed: Annotated[int, arg(metavar="N")] = 0
    """Seed of the weights, the order of the data and the noise."""
    label: Annotated[str, arg(metavar="TEXT", help_behavior_hint="(default: the method's title)")] = ""
    """Name in tables and plots."""
    config: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Read settings from the config.json of a run, the best.json of a search, or any part of such a file, in JSON or YAML; flags override it. If it names a task, TASK can be left out."""
    out: Annotated[
        Path | None, arg(metavar="DIR", help_behavior_hint="(default: runs/TASK/METHOD and what is changed/seed-SEED)")
    ] = None  # fmt: skip
    """Folder of the run."""
    data: DataFolder = None
    allow_other_data: OtherData = False
    imports: Imports = ()
    tags: Tags = ""
    note: NoteText = ""
    dry_run: DryRun = False
    quiet: Quiet = False
    hardware: HardwareFlags = field(default_factory=Hardware)

    @classmethod
    def parse(cls, args: Sequence[str], prog: str) -> Train[Any]:
        """Parse the flags. Which flags exist, and their defaults, depends on the task, the preset and the file."""
        words, flags = glance(args)
        if {"-h", "--help"} & set(flags):
            args = ["--help"]  # flags before the task would be missing from the help
        start = ConfigFile.read(Path(flags["--config"])) if flags.get("--config") else ConfigFile()
        if not words and start.task:
            words, args = [start.task], [start.task, *args]
        if not words:
            if args != ["--help"]:
                raise LabError(f"{prog} needs a task: one of {', '.join(TASKS)}; for example: {prog} parity")
            return tyro.cli(Train[Nothing], args=args, prog=prog, config=SWITCHES)
        settings = start.begin(words[0], flags.get("--preset", ""))
        kind: Any = type(settings)
        default = Train(
            task=tyro.MISSING,
            settings=settings,
            preset=flags.get("--preset") or start.preset or "paper",
            method=start.method or "mollified",
            seed=start.seed,
            label=start.label,
            allow_other_data=start.other_data,
        )
        about = f"Train one network: {settings.summary}. Presets: {', '.join(settings.presets)}."
        return tyro.cli(Train[kind], args=args, default=default, prog=prog, description=about, config=SWITCHES)

    def run_config(self) -> RunConfig:
        """Return the config: everything that the run depends on."""
        values = dataclasses.asdict(self.settings)  # type: ignore[call-overload]
        settings = TASKS[self.task](**values)
        return RunConfig(
            self.task, self.method, self.seed, settings, self.preset, self.label, other_data=self.allow_other_data
        )

    def run(self) -> int:
        """Train, unless the run is done already."""
        config = self.run_config()
        out = self.out or run_folder(config)
        if self.dry_run:
            loggers.check(self.hardware.logger)
            return print_plan([(config, out)])
        if found := _done_already(RunFolder(out), config, resume_command(out, self.data, self.hardware)):
            say(f"done already: {result_line(self.task, found, out)}")
            return 0

        from mollifier_lab import engine

        with leaving_nothing(out, PREPARED, Busy) if rank() == 0 else contextlib.nullcontext():
            if rank() == 0:
                notes.add(out, self.tags, self.note)
            result = engine.train(config, out, data=self.data, hardware=self.hardware, show=not self.quiet, warn=True)
        tell_end(self.task, result, out)
        return 0


def _done_already(folder: RunFolder, config: RunConfig, command: str) -> dict[str, Any]:
    """Return the result of the same run, if it exists.

    Raises:
        LabError: If the folder contains a run with another config, or one that is not done.
    """
    if folder.status == "empty":
        return {}
    there = folder.config()
    if there != config:
        raise LabError(
            f"{folder.path} contains a different run ({', '.join(differences(there, config))}); nothing was changed. "
            f"Name another folder: --out DIR"
        )
    # not checked in the other processes of a run: the first may have just written its config
    if folder.status != "done" and rank() == 0:
        raise LabError(
            f"{folder.path} contains this run already, and it is not done yet; nothing was changed. To resume it: {command}"
        )
    if folder.status == "done":
        seal.refuse(folder.path)
    return folder.json("result.json")


def differences(there: RunConfig, here: RunConfig) -> list[str]:
    """Describe what differs between two configs."""
    old, new = (
        {
            **vars(each),
            **dataclasses.asdict(each.settings),
            "imports": {one.name: one.sha256[:12] for one in each.imports},
        }
        for each in (there, here)
    )
    names = [name for name in {**old, **new} if name != "settings" and old.get(name) != new.get(name)]
    return [f"{name} {old.get(name)!r} there, {new.get(name)!r} here" for name in names]


def glance(args: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the words and flags of a command line before it is known which flags exist: all flags except the switches take one value.

    >>> glance(["--quiet", "--preset", "quick", "parity", "--lr=0.1"])
    (['parity'], {'--quiet': '', '--preset': 'quick', '--lr': '0.1'})
    """
    fields = [each for kind in TASKS.values() for each in dataclasses.fields(kind) if each.type in ("bool", bool)]
    switched = SWITCHED | {f"--{start}{each.name.replace('_', '-')}" for each in fields for start in ("", "no-")}
    words: list[str] = []
    flags: dict[str, str] = {}
    rest = iter(args)
    for each in rest:
        name, equals, value = each.partition("=")
        if not each.startswith("-"):
            words.append(each)
        elif equals or each in switched:
            flags[name] = value
        else:
            flags[name] = next(rest, "")
    return words, flags
