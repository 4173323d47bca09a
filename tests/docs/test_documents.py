"""The documents' form. Their code is run by conftest.py at the root of the repository."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CARDS = sorted(path for path in (ROOT / "docs" / "cards").glob("*.md") if path.name != "index.md")
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(
    (ROOT / "docs").rglob("*.md")
)
# Made while the site is built, which checks links to them: docs/.hooks/links.py
GENERATED = {
    "docs/results.md",
    "docs/frontier.md",
    "docs/contributing.md",
    "docs/changelog.md",
    "docs/interactive/page.html",
}
SECTIONS = [
    "What it does",
    "How to use it",
    "Suggested values",
    "Measured cost",
    "What the paper says, and what we chose",
    "Limits",
]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_of_code_names_its_language(page: Path) -> None:
    # A block marked py, pycon or not at all would look like the others and never run.
    opened = re.findall(r"^```(.*)$", page.read_text(), flags=re.MULTILINE)[::2]
    assert set(opened) <= {"python", "bash", "text"}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", without_code(page.read_text()))
    targets = [(page.parent / link).resolve() for link in links if "://" not in link]
    missing = [target for target in targets if not target.exists() and name(target) not in GENERATED]
    assert not missing


@pytest.mark.parametrize("card", CARDS, ids=name)
def test_cards_open_with_code_and_have_their_sections_in_order(card: Path) -> None:
    text = card.read_text()
    assert re.match(r"# .+\n\n```python\n", text)
    found = re.findall(r"^## (.+)$", without_code(text), flags=re.MULTILINE)
    assert [section for section in found if section in SECTIONS] == SECTIONS


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_python_blocks_can_fail(page: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    silent = [block for block in blocks if "assert " not in block and ">>>" not in block]
    assert not silent


def test_site_lists_every_page() -> None:
    nav = (ROOT / "mkdocs.yml").read_text()
    docs = ROOT / "docs"
    assert not [page for page in docs.rglob("*.md") if str(page.relative_to(docs)) not in nav]


@pytest.mark.parametrize("figure", sorted((ROOT / "docs" / "figures").glob("*.png")), ids=name)
def test_figures_stay_small(figure: Path) -> None:
    assert figure.stat().st_size < 150_000
