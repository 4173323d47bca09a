"""Flags that several commands share, with the same name, meaning and help everywhere. No torch here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro
from tyro.conf import Positional, arg

from mollifier_lab.hardware import Hardware, Precision as PrecisionName
from mollifier_lab.settings import TASKS

SWITCHES = (tyro.conf.FlagCreatePairsOff,)  # only --quiet, without --no-quiet

Task = Annotated[Positional[str], arg(metavar="TASK", help=f"One of: {', '.join(TASKS)}.")]
Preset = Annotated[str, arg(metavar="NAME", help="Preset to start from; `mollifier tasks` lists them.")]
MethodName = Annotated[str, arg(metavar="NAME", help="Training method; `mollifier methods` lists them.")]
DataFolder = Annotated[
    Path | None,
    arg(metavar="DIR", help="Folder of the data.", help_behavior_hint="(default: $MOLLIFIER_DATA, or a cache)"),
]
OtherData = Annotated[
    bool,
    arg(
        help="Accept data files that are not the published ones; every table and page then says so.",
        help_behavior_hint="",
    ),
]
Workers = Annotated[int, arg(metavar="N", help="Number of runs at a time.")]
Backend = Annotated[
    Literal["loky", "dask", "ray"], arg(help="loky: processes of this machine; dask, ray: those of a cluster.")
]
Address = Annotated[
    str | None,
    arg(
        metavar="ADDRESS",
        help="Address of the cluster's scheduler.",
        help_behavior_hint="(default: a small cluster is started here)",
    ),
]
Changes = Annotated[
    tuple[str, ...],
    arg(
        name="set",
        metavar="NAME=VALUE ...",
        help="Settings to change, for every run; `mollifier train TASK --help` lists them.",
        help_behavior_hint="(default: none)",
    ),
]
Quiet = Annotated[bool, arg(help="No progress.", help_behavior_hint="")]
Pruner = Annotated[
    Literal["none", "median", "halving"],
    arg(help="End unpromising trials of the search early, with one of Optuna's pruners, the same for all methods."),
]
Logger = Annotated[
    str,
    arg(
        metavar="NAME",
        help="Also log to mlflow or wandb (offline), in the folder of each run; for both: mlflow,wandb.",
        help_behavior_hint="(default: only TensorBoard)",
    ),
]
Tags = Annotated[str, arg(metavar="A,B", help="Tags for `mollifier ls`.", help_behavior_hint="(default: none)")]
NoteText = Annotated[str, arg(metavar="TEXT", help="A note for `mollifier ls`.", help_behavior_hint="(default: none)")]
DryRun = Annotated[
    bool, arg(help="Print what would be run, with every setting; run and write nothing.", help_behavior_hint="")
]
Precision = Annotated[PrecisionName, arg(help="Precision of the numbers, with Lightning Fabric's names.")]
Threads = Annotated[int, arg(help="Threads per process; 0: torch decides.")]


HardwareFlags = Annotated[
    tyro.conf.OmitArgPrefixes[Hardware], arg(help="Hardware to run on, with Lightning Fabric's names.")
]
