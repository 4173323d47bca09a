from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test sees the user's folders or proxies."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("MOLLIFIER_CACHE", str(home / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("MOLLIFIER_DATA", raising=False)
    return home
