"""Use the clusters that joblib supports: Dask and Ray, at an address or started here for as long as they are needed."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any, Literal

from mollifier_lab.errors import LabError

Backend = Literal["loky", "dask", "ray"]
PATIENCE = 30.0  # seconds within which a scheduler must answer


@contextlib.contextmanager
def opened(backend: Backend, address: str | None, workers: int) -> Iterator[dict[str, Any]]:
    """Yield the arguments of `joblib.parallel_config` while the cluster is running.

    Raises:
        LabError: If there is no such backend, it is not installed, or nothing answers at the address.
    """
    kinds = {"loky": _loky, "dask": _dask, "ray": _ray}
    if backend not in kinds:
        raise LabError(f"there is no backend {backend!r}; expected one of: {', '.join(kinds)}")
    with contextlib.ExitStack() as stack:
        try:
            config = stack.enter_context(kinds[backend](address, workers))
        except ModuleNotFoundError as error:
            raise LabError(f"backend {backend}: {error.name} is not installed; pip install 'mollifier[cluster]'") from None  # fmt: skip
        except (OSError, TimeoutError, RuntimeError, ValueError) as error:
            where = f"at {address}" if address else "here"
            raise LabError(f"backend {backend}: no cluster {where} ({type(error).__name__}: {error})") from error
        yield config


@contextlib.contextmanager
def _loky(address: str | None, workers: int) -> Iterator[dict[str, Any]]:
    from joblib.externals.loky import get_reusable_executor  # type: ignore[import-untyped]

    try:
        yield {"backend": "loky"}
    finally:
        if workers > 1:  # joblib would keep them for a while, each with torch in memory
            get_reusable_executor(reuse=True).shutdown(wait=True, kill_workers=True)


@contextlib.contextmanager
def _dask(address: str | None, workers: int) -> Iterator[dict[str, Any]]:
    import distributed

    dask: Any = distributed  # it has no useful types

    with contextlib.ExitStack() as stack:
        # any free port: None would mean Dask's usual one, with a warning if another cluster uses it
        place = address or stack.enter_context(
            dask.LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0", silence_logs=logging.ERROR)
        )  # fmt: skip
        client = stack.enter_context(dask.Client(place, timeout=PATIENCE, set_as_default=False))
        several = [name for name, threads in client.nthreads().items() if threads > 1]
        if several:
            raise LabError(
                f"Dask workers with several threads ({', '.join(several)}): expected one run per process; "
                "start them with: dask worker --nthreads 1 --nworkers N"
            )
        yield {"backend": "dask", "client": client, "wait_for_workers_timeout": PATIENCE}


@contextlib.contextmanager
def _ray(address: str | None, workers: int) -> Iterator[dict[str, Any]]:
    import joblib  # type: ignore[import-untyped]
    import ray
    from ray.util.joblib.ray_backend import RayBackend

    class Streaming(RayBackend):
        """Return results as they arrive. Ray's pool can do this, but joblib's own Ray backend, which this replaces, cannot."""

        supports_return_generator = True

    mine = not ray.is_initialized()
    if mine:
        here: dict[str, Any] = {} if address else {"num_cpus": workers, "include_dashboard": False}
        ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **here)
    try:
        joblib.register_parallel_backend("mollifier-ray", Streaming)
        yield {"backend": "mollifier-ray"}
    finally:
        if mine:
            ray.shutdown()
