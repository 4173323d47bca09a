"""Loggers in addition to TensorBoard: MLflow and Weights & Biases, offline by default. Their packages are imported only when needed.

Both write into the folder of the run: nothing leaves the machine unless ``MLFLOW_TRACKING_URI`` or ``WANDB_MODE=online`` says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import os
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from mollifier_lab.errors import LabError
from mollifier_lab.files import write_atomically
from mollifier_lab.runs import Row
from mollifier_lab.settings import RunConfig

# usage statistics that the packages would send to their makers; a user who wants that sets these variables
SILENT = {"MLFLOW_DISABLE_TELEMETRY": "true", "WANDB_ERROR_REPORTING": "false"}


class Logger(Protocol):
    """What a logger receives while a run is in progress."""

    def write(self, row: Row) -> None:
        """One evaluation."""

    def close(self) -> None:
        """Handle the end, or the interruption, of a run."""


def open_loggers(names: str, folder: Path, config: RunConfig) -> list[Logger]:
    """Return the loggers with these names, which are separated by commas.

    >>> open_loggers("", Path("run"), RunConfig.make("parity", "plain"))
    []

    Raises:
        LabError: If there is no logger of that name, or its package is not installed.
    """
    found: list[Logger] = []
    for switch, value in SILENT.items():
        os.environ.setdefault(switch, value)
    for name in check(names):
        try:
            with _quiet():
                found.append(KINDS[name](importlib.import_module(name), folder, config))
        except Exception as error:  # a foreign package may raise anything
            raise LabError(f"--logger {name}: {name} does not work here ({type(error).__name__}: {error})") from error
    return found


def check(names: str) -> list[str]:
    """Return the names, if such loggers exist and their packages are installed.

    >>> check("")
    []

    Raises:
        LabError: If there is no logger of that name, or its package is not installed.
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in KINDS:
            raise LabError(f"--logger {name}: expected {' or '.join(KINDS)} (TensorBoard is on anyway)")
        if importlib.util.find_spec(name) is None:
            raise LabError(f"--logger {name}: {name} is not installed; pip install {name}")
    return wanted


def numbers(row: Row) -> dict[str, float]:
    """Return the numbers of a row, with one entry per level.

    >>> numbers({"update": 5, "train_loss": 0.5, "valid_loss": None, "levels": [0.25, 1.0]})
    {'train_loss': 0.5, 'level_1': 0.25, 'level_2': 1.0}
    """
    levels = {f"level_{block}": level for block, level in enumerate(row.get("levels") or (), start=1)}
    return {name: value for name, value in row.items() if isinstance(value, float)} | levels


class Mlflow:
    """A run of MLflow, in the folder ``mlflow`` of our run or where ``MLFLOW_TRACKING_URI`` says. A resumed run continues the same MLflow
    run.
    """

    def __init__(self, mlflow: Any, folder: Path, config: RunConfig) -> None:
        uri = os.environ.get("MLFLOW_TRACKING_URI") or (folder / "mlflow").resolve().as_uri()
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        self._client = mlflow.MlflowClient(tracking_uri=uri)
        known, name = folder / "mlflow-run.txt", f"mollifier {config.task}"
        if known.exists():
            self._run = known.read_text().strip()
            self._client.update_run(self._run, status="RUNNING")
            return
        there = self._client.get_experiment_by_name(name)
        experiment = there.experiment_id if there else self._client.create_experiment(name)
        made = self._client.create_run(experiment, run_name=f"{config.title}, seed {config.seed}")
        self._run = made.info.run_id
        for key, value in {"method": config.method, "seed": config.seed, **asdict(config.settings)}.items():
            self._client.log_param(self._run, key, value)
        write_atomically(known, f"{self._run}\n".encode())

    def write(self, row: Row) -> None:
        """One evaluation."""
        with _quiet():
            for name, value in numbers(row).items():
                self._client.log_metric(self._run, name, value, step=row["update"])

    def close(self) -> None:
        """Report the end of the run."""
        with _quiet():
            self._client.set_terminated(self._run)


class Wandb:
    """A run of Weights & Biases in the folder ``wandb``. A resumed run has the same id, so that ``wandb sync`` joins the parts."""

    def __init__(self, wandb: Any, folder: Path, config: RunConfig) -> None:
        name = hashlib.sha256(f"{folder.resolve()}\n{config.to_json()}".encode()).hexdigest()[:16]
        facts = {"task": config.task, "method": config.method, "seed": config.seed, **asdict(config.settings)}
        self._run = wandb.init(
            project="mollifier", name=f"{config.title}, seed {config.seed}", id=name, dir=str(folder), config=facts, resume="allow",
            mode=os.environ.get("WANDB_MODE", "offline"), settings=wandb.Settings(silent=True, console="off"), reinit="create_new",
        )  # fmt: skip

    def write(self, row: Row) -> None:
        """One evaluation."""
        with _quiet():
            self._run.log(numbers(row), step=row["update"])

    def close(self) -> None:
        """Write what is left."""
        with _quiet():
            self._run.finish()


KINDS: dict[str, Any] = {"mlflow": Mlflow, "wandb": Wandb}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the packages' deprecation warnings, which do not concern the user of this command."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
