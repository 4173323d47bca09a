"""Denormals are taken as 0 while a run trains, on every thread, and not a moment longer."""

import threading
from pathlib import Path

import pytest
import torch

from mollifier_lab import engine
from mollifier_lab.denormals import flush_denormal, is_flushed
from mollifier_lab.settings import RunConfig

TINY = torch.ones(1 << 20, dtype=torch.int32).view(torch.float32)  # of the smallest numbers that there are
SHORT = {"bits": 6, "width": 8, "depth": 2, "samples": 32, "batch": 8, "updates": 3, "evaluate_every": 3}


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def left() -> int:
    """How many are still there after a multiplication by 1, on all threads of the pool."""
    return int(((TINY * 1.0).view(torch.int32) != 0).sum())


@pytest.mark.parametrize("warm", [True, False], ids=["pool-there", "new-pool"])
def test_every_thread_of_the_pool_follows_and_goes_back(threads: int, warm: bool) -> None:
    found = []

    def look() -> None:  # in a thread of its own, which has a pool of its own
        if warm:
            found.append(left() == len(TINY))
        with flush_denormal(True):
            found.append(left() == 0)
            with flush_denormal(False):
                found.append(left() == len(TINY))
            found.append(is_flushed())
        found.append(left() == len(TINY))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [True] * (5 if warm else 4)


@pytest.mark.parametrize("method", ["plain", "mollified"])
@pytest.mark.parametrize("on", [True, False])
def test_a_run_trains_as_its_config_says_and_leaves_the_process_as_it_was(
    method: str, on: bool, threads: int, tmp_path: Path
) -> None:
    seen: list[int] = []
    config = RunConfig.make("parity", method, preset="quick", flush_denormal=on, **SHORT)
    engine.train(
        config,
        tmp_path,
        hardware=engine.Hardware(accelerator="cpu", tensorboard=False),
        show=False,
        observe=lambda *_: seen.append(left()),
    )
    assert seen == [0 if on else len(TINY)] * 3
    assert left() == len(TINY)
    assert f'"flush_denormal": {str(on).lower()}' in (tmp_path / "config.json").read_text()


def test_a_run_that_fails_leaves_the_process_as_it_was(tmp_path: Path) -> None:
    def stop(*_: object) -> None:
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        engine.train(RunConfig.make("parity", "plain", preset="quick", **SHORT), tmp_path, show=False, observe=stop)
    assert left() == len(TINY)
