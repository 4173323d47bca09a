"""The page in a real browser: it draws, it sorts, it fits, it asks for nothing and complains about nothing."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from tests.lab.report.conftest import Written

Open = Callable[..., Chrome]


@pytest.fixture
def visit(browser: Chrome) -> Iterator[Open]:
    """Opens a page at a width and in a colour scheme; at the end no word in the console and no request but for the page."""
    pages: list[str] = []

    def visit(path: Path, width: int = 1440, scheme: str = "light") -> Chrome:
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        set_scheme(browser, scheme)
        pages.append(path.as_uri())
        browser.get(pages[-1])
        return browser

    browser.get("about:blank")
    browser.get_log("browser"), browser.get_log("performance")
    yield visit
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith(("data:", "blob:"))] == pages


def set_scheme(browser: Chrome, scheme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def drawn(browser: Chrome, plot: str) -> int:
    """Lines of a plot that can be seen; the edges of a band have no width."""
    script = """return [...document.querySelectorAll(`#${arguments[0]} .scatterlayer path.js-line`)]
        .filter(line => line.getTotalLength() > 0 && parseFloat(getComputedStyle(line).strokeWidth) > 0).length"""
    found: int = browser.execute_script(script, plot)
    return found


def names(browser: Chrome) -> list[str]:
    return [each.text for each in browser.find_elements(By.CSS_SELECTOR, "#table-0 tbody th")]


def eventually(browser: Chrome, condition: Callable[[Chrome], Any]) -> None:
    WebDriverWait(browser, 20).until(condition)


def test_plots_are_drawn_and_follow_their_controls(visit: Open, study: Written) -> None:
    page = visit(study.report.page)
    # 25 seeds, 5 means; the training loss beside it the same
    assert drawn(page, "curve-0-0") == drawn(page, "curve-0-1") == 30
    assert drawn(page, "levels-0-0") == 6
    assert drawn(page, "loss-0-1") == 6
    dots = "return document.querySelectorAll('#final-0 .point').length"
    assert page.execute_script(dots) == 21 + 5  # seeds with a number, means; the paper's numbers are of another size
    page.find_element(By.CSS_SELECTOR, "[data-toggle=seeds]").click()
    eventually(page, lambda page: drawn(page, "curve-0-0") == 5)
    page.find_element(By.CSS_SELECTOR, "[data-variant='3']").click()
    eventually(page, lambda page: drawn(page, "curve-0-0") == 4)
    page.find_element(By.CSS_SELECTOR, "[data-toggle=log]").click()
    page.find_element(By.CSS_SELECTOR, "[data-value=seconds]").click()
    layout = page.execute_script(
        "const l = document.getElementById('curve-0-1')._fullLayout; return [l.yaxis.type, l.xaxis.title.text, l.xaxis.range[1]]"
    )
    assert layout[:2] == ["log", "seconds of wall-clock"]
    assert 13 < layout[2] < 17  # 2000 updates at 140 a second
    assert (
        page.execute_script("return document.querySelectorAll('.modebar-btn').length") == 7 * 4
    )  # plots, buttons of each: none sends anything


def test_the_table_sorts_by_click_and_by_keyboard(visit: Open, study: Written) -> None:
    page = visit(study.report.page)
    first = names(page)
    final, difference = page.find_elements(By.CSS_SELECTOR, "#table-0 thead th")[1:4:2]
    by_value = [row.variant for row in sorted(study.report.rows, key=lambda row: row.final.mean)]
    final.find_element(By.TAG_NAME, "button").click()
    assert (names(page), final.get_attribute("aria-sort")) == (by_value, "ascending")
    button = difference.find_element(By.TAG_NAME, "button")
    page.execute_script("arguments[0].focus()", button)
    button.send_keys(Keys.ENTER)
    by_difference = [row.variant for row in sorted(study.report.rows, key=lambda row: row.keys()[3])]
    assert names(page) == by_difference
    button.send_keys(Keys.SPACE)
    assert (final.get_attribute("aria-sort"), difference.get_attribute("aria-sort")) == (None, "descending")
    assert names(page) == by_difference[::-1]
    assert sorted(names(page)) == sorted(first)


def test_what_has_no_value_is_sorted_last_either_way(visit: Open, odd: Written) -> None:
    page = visit(odd.report.page)
    button = page.find_elements(By.CSS_SELECTOR, "#table-0 thead th button")[1]
    for _ in range(2):
        button.click()
        assert names(page)[-1].startswith("_")  # the one that failed


def test_against_epochs_an_update_is_a_part_of_one(visit: Open, study: Written) -> None:
    page = visit(study.report.page)
    page.find_element(By.CSS_SELECTOR, "[data-value=epochs]").click()
    found = page.execute_script(
        "const l = document.getElementById('curve-0-0'); return [l._fullLayout.xaxis.title.text, Math.max(...l.data[0].x)]"
    )
    assert found == ["epochs", 200]  # 2000 updates, ten to an epoch


@pytest.mark.parametrize("width", [390, 1440])
def test_no_page_is_wider_than_the_window(visit: Open, study: Written, odd: Written, width: int) -> None:
    for written in (study, odd):
        page = visit(written.report.page, width)
        page.execute_script("document.querySelectorAll('details').forEach(e => e.open = true)")
        assert page.execute_script("return [innerWidth, document.documentElement.scrollWidth]") == [width, width]
        for plot in page.find_elements(By.CSS_SELECTOR, ".plot"):
            inside = plot.find_element(By.CSS_SELECTOR, "svg.main-svg")
            assert 250 < inside.rect["width"] <= plot.rect["width"] + 1 <= width
    if width == 390:
        table = "const e = document.getElementById('table-0').parentNode; return [e.clientWidth < 390, e.scrollWidth > e.clientWidth]"
        assert page.execute_script(table) == [True, True]


def test_dark_and_light_change_page_and_plots_while_it_is_open(visit: Open, study: Written) -> None:
    page = visit(study.report.page, scheme="light")
    colours = (
        "return [getComputedStyle(document.body).backgroundColor,"
        " ...['final-0', 'curve-0-1', 'levels-0-0'].map(id => document.querySelector('#' + id + ' .main-svg').style.background)]"
    )
    light = page.execute_script(colours)
    assert light == ["rgb(251, 251, 250)", *["rgb(255, 255, 255)"] * 3]
    set_scheme(page, "dark")
    eventually(page, lambda page: page.execute_script(colours) == ["rgb(18, 21, 26)", *["rgb(25, 29, 35)"] * 3])
    page.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert page.execute_script(colours) == light  # paper is white
    page.execute_script("dispatchEvent(new Event('afterprint'))")
    assert page.execute_script(colours) != light


def test_labels_are_text_in_the_plots_as_well(visit: Open, odd: Written) -> None:
    page = visit(odd.report.page)
    assert page.title == "parity, cifar10: report"
    ticks = page.execute_script("return [...document.querySelectorAll('#final-0 .ytick')].map(e => e.textContent)")
    assert "<script>document.title='got" in ticks[0]
    assert ticks[0].endswith("<b>")  # plotly would read it as bold
    assert page.find_elements(By.CSS_SELECTOR, "main script:not([type])") == []
    assert page.find_elements(By.CSS_SELECTOR, "[data-value=seconds]")[0].get_attribute("disabled")
    assert drawn(page, "levels-1-0") == 54
    assert page.execute_script("return document.getElementById('curve-1-0').data[0].x.length") == 1000


def test_without_a_script_the_table_and_the_pictures_are_there(visit: Open, study: Written) -> None:
    page = visit(study.report.page)
    page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page = visit(study.report.page, 390)
        pictures = page.find_elements(By.CSS_SELECTOR, "noscript img")
        assert [picture.is_displayed() and picture.rect["width"] > 300 for picture in pictures] == [True, True]
        assert names(page)[0] == "plain"
        assert not any(each.is_displayed() for each in page.find_elements(By.CSS_SELECTOR, ".plot, .controls"))
    finally:
        page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
