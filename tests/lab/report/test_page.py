"""The page as text: what is in it without a script, and what is not."""

import base64
import html
import re
from html.parser import HTMLParser

import pytest

from mollifier_lab.report.summary import columns
from tests.lab.report.conftest import NASTY, Written


class Page(HTMLParser):
    """Tags with their attributes, and the text outside of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._skip = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._skip = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._skip = False

    def handle_data(self, data: str) -> None:
        self.text += "" if self._skip else data


@pytest.fixture(scope="module")
def page(study: Written) -> Page:
    return Page(study.report.page.read_text())


@pytest.fixture(scope="module")
def nasty(odd: Written) -> Page:
    return Page(odd.report.page.read_text())


def test_nothing_is_fetched(page: Page, nasty: Page) -> None:
    for tag, attributes in page.tags + nasty.tags:
        for name in ("src", "href", "action", "poster", "srcset"):
            assert (attributes.get(name) or "data:").startswith(("data:", "#")), (tag, attributes)
    policy = next(attributes["content"] for tag, attributes in page.tags if attributes.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert "unsafe-inline'; script-src 'sha256-" in policy


def test_the_head(page: Page) -> None:
    assert ("html", {"lang": "en"}) in page.tags
    assert any(attributes.get("name") == "viewport" for _, attributes in page.tags)
    assert any(attributes.get("rel") == "icon" for _, attributes in page.tags)


def test_without_a_script_there_are_the_table_and_the_pictures(page: Page, study: Written) -> None:
    sources = [attributes["src"] or "" for tag, attributes in page.tags if tag == "img"]
    pictures = [base64.b64decode(source.removeprefix("data:image/png;base64,")) for source in sources]
    assert pictures == [(study.root / name).read_bytes() for name in ("curves.png", "levels.png")]
    for row in study.report.rows:
        for place in columns(study.report.rows):
            assert row.cells()[place] in page.text
    assert "The paper's numbers are of its full size; there are none for runs of this size." in page.text


def test_how_sure_the_numbers_are(page: Page, study: Written) -> None:
    assert "interval of the mean by Student's t" in page.text
    assert "bootstrap" not in page.text
    baseline = study.report.rows[0].baseline
    assert f"the best variant that anneals nothing: {baseline}." in page.text
    assert "A seed that diverged counts as 0.693" in page.text


def test_what_failed_and_how_to_do_it_again(page: Page) -> None:
    assert page.text.count("RuntimeError: out of <memory>") == 2
    assert "mollifier compare parity --preset quick --seeds 5" in page.text
    assert page.text.count("mollifier train parity --method mollified --preset quick --seed") == 5
    assert "22 runs done (1 diverged), 2 failed, 1 unfinished" in page.text
    assert "width=100 (200)" in page.text
    assert "e18f370c0ffee" in page.text


def test_what_comes_from_files_is_text(nasty: Page, odd: Written) -> None:
    source = odd.report.page.read_text()
    scripts = re.findall(r"<script[^>]*>", source)
    assert [tag for tag in scripts if "json" not in tag] == ["<script>"] * 4
    assert "<script>document.title" not in source
    assert NASTY in nasty.text
    assert "</pre><script>document.title='got you'</script>" in nasty.text
    assert "<img src=x onerror=alert(1)>" in nasty.text
    assert html.escape(odd.report.notes[0], quote=False).split("(")[0] in source
    assert "first line" not in nasty.text  # only the end of a long failure


def test_one_section_a_task_and_what_is_not_drawn(nasty: Page) -> None:
    sections = [attributes["id"] for tag, attributes in nasty.tags if tag == "section" and "id" in attributes]
    assert sections == ["parity", "cifar10"]
    assert "Lines are thinned to 600 points" in nasty.text
