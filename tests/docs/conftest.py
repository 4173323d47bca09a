"""The hooks of the site, loaded without mkdocs, and the browser of the report's tests."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.lab.report.conftest import browser

__all__ = ["browser"]
ROOT = Path(__file__).parents[2]


def load(path: str) -> ModuleType | Any:
    """A Python file of the repository that belongs to no package."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
