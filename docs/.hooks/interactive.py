"""For mkdocs: the interactive page as one file that needs nothing else, put together from examples/interactive."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

SOURCE = Path(__file__).parents[2] / "examples" / "interactive"
ADDRESS = "interactive/page.html"


def build() -> str:
    """The page with its style, its code and its data in it."""
    page = (SOURCE / "page.html").read_text(encoding="utf-8")
    for name in ("page.css", "network.json", "page.js"):
        content = (SOURCE / name).read_text(encoding="utf-8")
        if "</script" in content or "</style" in content:
            raise ValueError(f"{name} would end its own element")
        page = page.replace(f"/* {name} */", content)
    return page


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Called by mkdocs: add the page to the site."""
    from mkdocs.structure.files import File  # not needed by the tests, which have no mkdocs

    files.append(File.generated(config, ADDRESS, content=build()))
    return files
