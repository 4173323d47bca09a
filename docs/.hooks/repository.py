"""For mkdocs: pages made from files that lie outside docs/, so that the site is complete without the repository.

CONTRIBUTING.md and CHANGELOG.md become pages. The examples can be downloaded, and ``{{ examples }}`` in a page becomes their table,
``{{ example NAME }}`` the sentence about one of them, from what ``make examples`` measured (examples/measured.json).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PAGES = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Called by mkdocs: add the pages and the downloads."""
    from mkdocs.structure.files import File  # not needed by the tests, which have no mkdocs

    for address, source in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, address, content=re.sub(r"\]\(docs/", "](", text)))
    for path in sorted([*EXAMPLES.glob("*_plain.py"), *EXAMPLES.glob("*_mollified.py"), *EXAMPLES.glob("*.ipynb")]):
        address = f"downloads/{path.name}"
        files.append(File.generated(config, address, abs_src_path=str(path)))
    return files


def measured() -> dict[str, dict[str, Any]]:
    """What ``make examples`` found: name → title, figure, plain, mollified, seconds."""
    found: dict[str, dict[str, Any]] = json.loads((EXAMPLES / "measured.json").read_text(encoding="utf-8"))["examples"]
    return found


def table(folder: str) -> str:
    """All examples, with their files and the figures to expect; folder leads from the page to the site's root."""
    lines = ["| example | what is measured | plain | mollified | time | files |", "|---|---|---|---|---|---|"]
    for name, row in measured().items():
        files = " · ".join(
            f"[{label}]({folder}downloads/{file})"
            for label, file in (
                ("plain", f"{name}_plain.py"),
                ("mollified", f"{name}_mollified.py"),
                ("notebook", f"{name}.ipynb"),
            )
        )
        lines.append(
            f"| {row['title']} | {row['figure']} | {row['plain']} | **{row['mollified']}** | {row['time']} | {files} |"
        )
    return "\n".join(lines)


def sentence(name: str, folder: str) -> str:
    """One example in a sentence, with links to its files."""
    row = measured()[name]
    return (
        f"**Measured: {row['title']}.** {row['figure'][0].upper() + row['figure'][1:]}: {row['plain']} plain, {row['mollified']} mollified, after the same number of updates from the "
        f"same initial weights. Single runs with one seed, {row['time']} on {json.loads((EXAMPLES / 'measured.json').read_text(encoding='utf-8'))['hardware']}. "
        f"[Plain]({folder}downloads/{name}_plain.py) and [mollified]({folder}downloads/{name}_mollified.py) differ by a few lines; "
        f"the [notebook]({folder}downloads/{name}.ipynb) draws both."
    )


def on_page_markdown(markdown: str, page: Any, **rest: Any) -> str:
    """Called by mkdocs for every page."""
    folder = "../" * page.file.src_uri.count("/")
    markdown = markdown.replace("{{ examples }}", table(folder)) if "{{ examples }}" in markdown else markdown
    return re.sub(r"\{\{ example (\w+) \}\}", lambda found: sentence(found[1], folder), markdown)
