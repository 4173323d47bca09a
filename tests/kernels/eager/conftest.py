"""A process whose backend is the eager functions for one test, whatever there is beside them."""

from collections.abc import Iterator

import pytest

from mollifier.kernels import _library


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As MOLLIFIER_KERNELS=eager from the start."""
    monkeypatch.setenv("MOLLIFIER_KERNELS", "eager")
    _library._asked.cache_clear()
    _library._state.cache_clear()
    yield
    monkeypatch.undo()
    _library._asked.cache_clear()
    _library._state.cache_clear()
