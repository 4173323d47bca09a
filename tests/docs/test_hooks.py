"""What the site inserts and checks, without building it."""

import json
import re
from pathlib import Path

import pytest

from tests.docs.conftest import ROOT, load

measurements, links, repository = (load(f"docs/.hooks/{name}.py") for name in ("measurements", "links", "repository"))
PAGES = sorted(path for path in (ROOT / "docs").rglob("*.md") if not any(part.startswith(".") for part in path.parts))


def test_every_number_that_a_page_asks_for_is_in_the_data():
    asked = 0
    for page in PAGES:
        markdown = re.sub(r"\{\{ examples? ?\w* \}\}", "", page.read_text(encoding="utf-8"))
        asked += len(measurements.PLACE.findall(markdown))
        assert "{{" not in measurements.insert(markdown, page.name)
    assert asked > 10


def test_a_number_is_the_median_of_the_benchmarks_runs(monkeypatch):
    row = {"line": "parity MLP", "candidate": "all layers, p = 0.5", "backend": "native", "threads": 1}
    rows = [{**row, "ratio": ratio} for ratio in (1.1, 9.0, 1.2)] + [{**row, "threads": 2, "ratio": 5.0}]
    monkeypatch.setattr(measurements, "_read", lambda path: {"rows": rows})
    assert (
        measurements.insert("It takes {{ ratio parity MLP / all layers, p = 0.5 }} times as long.", "a.md")
        == "It takes 1.20 times as long."
    )


@pytest.mark.parametrize(
    "place",
    ["{{ ratio parity MLP / no such line }}", "{{ speedup nothing }}", "{{ accuracy mnist / magic }}", "{{ guess 1 }}"],
)
def test_a_number_that_nobody_measured_is_an_error_that_names_the_page(place):
    with pytest.raises(ValueError, match=r"^cards/a\.md: "):
        measurements.insert(f"a {place} b", "cards/a.md")


def test_broken_links_are_found(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "index.html").write_text('<h2 id="here">x</h2>')
    (tmp_path / "a.html").write_text(
        '<a href="b/#here">good</a><a href="b/#there">no anchor</a><img src="gone.png"><a href="https://example.org/x">away</a><a href="#">top</a>'
    )
    assert sorted(links.broken(tmp_path)) == ["a.html: b/#there", "a.html: gone.png"]


@pytest.mark.parametrize(
    "name",
    ["SECURITY.md", "results/README.md", "results/frontier/README.md"],
)
def test_links_between_the_repositorys_own_files_lead_somewhere(name):
    text = re.sub(r"```.*?```", "", (ROOT / name).read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        assert "://" in target or (ROOT / name).parent.joinpath(target).exists(), target


def test_every_example_has_its_row_and_its_files():
    rows = repository.measured()
    examples = load("examples/notebooks.py")
    assert list(rows) == list(examples.EXAMPLES)
    table = repository.table("")
    for name, row in rows.items():
        assert f"downloads/{name}.ipynb" in table
        assert row["mollified"] in repository.sentence(name, "../")


def test_a_page_of_the_site_is_made_of_contributing():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert not re.findall(r"\]\((?!docs/|https?:|#)", text), "a link that the site would not have"


def test_the_interactive_page_is_one_file():
    page = load("docs/.hooks/interactive.py").build()
    assert not re.findall(r"/\* (?:page|network)\.\w+ \*/", page)
    assert not re.findall(r"""(?:src|href)=["'](?!#)""", page)
    assert json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])["updates"] > 0  # type: ignore[index]
    assert Path(ROOT / "examples/interactive/network.json").stat().st_size < 250_000
