"""Runs the examples of the documents: every python block of README.md and docs/, every >>> in the docstrings of src/.

One document is one test: its blocks share a namespace and run in order, whatever process it lands in.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# before anything imports pyplot: an example must not look for a display
os.environ["MPLBACKEND"] = "Agg"

import pytest
import torch
from sybil import Document
from sybil.document import PythonDocStringDocument
from sybil.example import SybilFailure
from sybil.parsers.markdown import PythonCodeBlockParser
from sybil.parsers.rest import DocTestParser

import mollifier.activations as table
from mollifier.convert import _structure

ROOT = Path(__file__).parent


def parse(path: Path) -> Document:
    """A document with its examples, or with none."""
    if path.suffix == ".md":
        return Document.parse(str(path), PythonCodeBlockParser())
    return PythonDocStringDocument.parse(str(path), DocTestParser())


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Pages and sources; the tests are pytest's own business."""
    inside = file_path.relative_to(ROOT).parts if file_path.is_relative_to(ROOT) else ("",)
    page = file_path.suffix == ".md" and (inside[0] == "docs" or inside == ("README.md",))
    source = file_path.suffix == ".py" and inside[0] == "src"
    return DocumentFile.from_parent(parent, path=file_path) if page or source else None


def _lab_tables() -> tuple[Any, ...]:
    """Where tasks and methods of users are; none where the laboratory is not installed (make test-oldest)."""
    try:
        from mollifier_lab import imports, methods, register, settings, variants
    except ModuleNotFoundError:
        return ()
    own = (imports._LOADED, imports._ASKED, register.OWN, register._WHENCE)
    return (settings.TASKS, methods.METHODS, methods.OPEN, variants.DEFAULTS, *own)


class DocumentFile(pytest.File):
    """One document."""

    def collect(self) -> Iterator[pytest.Item]:
        """One item, or none where there is nothing to run."""
        if next(parse(self.path).examples(), None) is not None:
            yield Examples.from_parent(self, name="examples")


class Examples(pytest.Item):
    """All examples of a document, in order; the first that fails ends it."""

    def runtest(self) -> None:
        """Run them; what they register is gone afterwards."""
        tables: tuple[Any, ...] = (
            table._TABLE,
            table._MODULES,
            table._FUNCTIONS,
            table._METHODS,
            _structure._RESIDUAL_TYPES,
            *_lab_tables(),
        )
        before = [place.copy() for place in tables]
        torch.manual_seed(0)
        try:
            for example in parse(self.path).examples():
                self.line = example.line
                example.evaluate()
        finally:
            for place, old in zip(tables, before, strict=True):
                place.clear()
                place.update(old)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: str | None = None) -> str:
        """The example and, of the traceback, only what lies in the document or below it."""
        if isinstance(excinfo.value, SybilFailure):
            return str(excinfo.value)
        excinfo.traceback = excinfo.traceback.cut(path=self.path)
        return f"{self.path.relative_to(ROOT)}, example at line {self.line}\n{excinfo.getrepr(style='short')}"

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where it is, for the heading of a failure."""
        return self.path, 0, f"examples of {self.path.relative_to(ROOT)}"
