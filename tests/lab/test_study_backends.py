"""The same numbers from processes of this machine, a Dask cluster and a local Ray."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mollifier_lab.backends import opened
from mollifier_lab.errors import LabError
from mollifier_lab.study import compare

TINY = {"bits": 6, "width": 8, "depth": 2, "samples": 64, "updates": 40, "evaluate_every": 20}
METHODS = ["plain", "mollified:lr=0.5"]


def study(out: Path, **where: Any) -> dict[str, bytes]:
    """What a comparison leaves that must be the same everywhere."""
    runs = compare("parity", METHODS, 2, out, preset="quick", changes=TINY, threads=1, show=False, **where)
    assert [run.status for run in runs] == ["done"] * 4
    names = ("metrics.jsonl", "model.safetensors")
    return {f"{run.path.relative_to(out.resolve())}/{name}": (run.path / name).read_bytes() for run in runs for name in names}  # fmt: skip


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """From this process, one after the other."""
    return study(tmp_path_factory.mktemp("here"))


@pytest.fixture(autouse=True)
def path_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers import what the tests import."""
    monkeypatch.setenv("PYTHONPATH", ":".join(filter(None, sys.path)))


@pytest.fixture
def dask() -> Iterator[str]:
    """A cluster of two processes that somebody else has started."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0") as cluster:
        yield cluster.scheduler_address


def test_processes(here: dict[str, bytes], tmp_path: Path) -> None:
    assert study(tmp_path, workers=2) == here


def test_dask(here: dict[str, bytes], tmp_path: Path, dask: str) -> None:
    assert study(tmp_path, backend="dask", address=dask) == here


def test_ray(here: dict[str, bytes], tmp_path: Path) -> None:
    assert study(tmp_path, workers=2, backend="ray") == here


def test_two_clusters_on_one_machine_are_no_trouble() -> None:
    with socket.socket() as usual:
        with contextlib.suppress(OSError):  # taken already: as well
            usual.bind(("0.0.0.0", 8787))
            usual.listen()
        with opened("dask", None, 1) as config:
            assert config["backend"] == "dask"


def test_dask_workers_with_several_threads_are_refused() -> None:
    from distributed import LocalCluster

    with (
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        pytest.raises(LabError, match=r"several threads \(.*dask worker --nthreads 1"),
        opened("dask", cluster.scheduler_address, 2),
    ):
        pass


def test_a_backend_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown: Any = "slurm"
    with (
        pytest.raises(LabError, match="no backend 'slurm'; expected one of: loky, dask, ray"),
        opened(unknown, None, 2),
    ):
        pass
    monkeypatch.setitem(sys.modules, "distributed", None)
    told = r"distributed is not installed; pip install 'mollifier\[cluster\]'"
    with pytest.raises(LabError, match=told), opened("dask", None, 2):
        pass


def test_nothing_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mollifier_lab.backends.PATIENCE", 0.5)
    address = "tcp://127.0.0.1:9"
    with pytest.raises(LabError, match=rf"backend dask: no cluster at {address}"), opened("dask", address, 2):
        pass
