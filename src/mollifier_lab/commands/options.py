"""Flags that several commands have: the same name, the same meaning, the same help everywhere. No torch here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro
from tyro.conf import Positional, arg

from mollifier_lab.hardware import Hardware
from mollifier_lab.settings import TASKS

SWITCHES = (tyro.conf.FlagCreatePairsOff,)  # --quiet alone, no --no-quiet beside it

Task = Annotated[Positional[str], arg(metavar="TASK", help=f"One of: {', '.join(TASKS)}.")]
Preset = Annotated[str, arg(metavar="NAME", help="Whose settings to start from; `mollifier tasks` lists them.")]
MethodName = Annotated[str, arg(metavar="NAME", help="How to train; `mollifier methods` lists them.")]
DataFolder = Annotated[
    Path | None,
    arg(metavar="DIR", help="Folder of the data.", help_behavior_hint="(default: $MOLLIFIER_DATA, or a cache)"),
]
OtherData = Annotated[
    bool,
    arg(
        help="Take data files that are not the published ones; every table and page then says so.",
        help_behavior_hint="",
    ),
]
Workers = Annotated[int, arg(metavar="N", help="Runs at a time.")]
Backend = Annotated[
    Literal["loky", "dask", "ray"], arg(help="loky: processes of this machine; dask, ray: those of a cluster.")
]
Address = Annotated[
    str | None,
    arg(
        metavar="ADDRESS",
        help="Of the cluster's scheduler.",
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
    arg(help="End trials of the search early that look bad beside the others: Optuna's pruners, the same for all."),
]
Logger = Annotated[
    str,
    arg(
        metavar="NAME",
        help="Log to mlflow or wandb (offline), too, in the folder of each run; both: mlflow,wandb.",
        help_behavior_hint="(default: TensorBoard alone)",
    ),
]
Tags = Annotated[str, arg(metavar="A,B", help="Tags for `mollifier ls`.", help_behavior_hint="(default: none)")]
NoteText = Annotated[str, arg(metavar="TEXT", help="A note for `mollifier ls`.", help_behavior_hint="(default: none)")]
DryRun = Annotated[
    bool, arg(help="Print what would be run, with every setting; run and write nothing.", help_behavior_hint="")
]
Threads = Annotated[int, arg(help="Threads a process; 0: torch decides.")]


HardwareFlags = Annotated[
    tyro.conf.OmitArgPrefixes[Hardware], arg(help="Where it runs; the same words as Lightning Fabric's.")
]
