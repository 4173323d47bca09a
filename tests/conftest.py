"""What all tests share: a seed, one hypothesis profile, and a process group of one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

import mollifier.activations as table
from mollifier.convert import _structure

settings.register_profile("mollifier", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("mollifier")


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    """torch.distributed with one process, for what only asks whether it runs."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.fixture
def clean_tables() -> Iterator[None]:
    """Whatever a test registers is gone after it."""
    places = (table._TABLE, table._MODULES, table._FUNCTIONS, table._METHODS, _structure._RESIDUAL_TYPES)
    before = [place.copy() for place in places]
    yield
    for place, old in zip(places, before, strict=True):
        place.clear()
        place.update(old)


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat the levels as on an accelerator: the host may write them and must not read them."""
    monkeypatch.setattr("mollifier.nn._annealed.on_cpu", lambda level: False)
    monkeypatch.setattr("mollifier.ops._library.LIBRARY", None)  # whose kernels are for the CPU
    monkeypatch.setattr("mollifier.ops._library._SILENT", True)
