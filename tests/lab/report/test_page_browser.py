"""The page in a real browser: it draws, it sorts, it fits, it asks for nothing and complains about nothing."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.action_chains import ActionChains
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


def drawn(browser: Chrome, plot: str, kind: str = "") -> int:
    """Lines of a plot that can be seen."""
    script = """return [...document.querySelectorAll(`#${arguments[0]} path.line${arguments[1]}`)]
        .filter(line => line.getAttribute("d") && line.getTotalLength() > 0).length"""
    found: int = browser.execute_script(script, plot, kind)
    return found


def spec(browser: Chrome, plot: str, what: str) -> Any:
    """What a plot was told to draw."""
    return browser.execute_script(f"return document.getElementById(arguments[0]).plot.spec.{what}", plot)


def ticks(browser: Chrome, plot: str, axis: str) -> list[str]:
    script = "return [...document.querySelectorAll(`#${arguments[0]} .${arguments[1]}tick`)].map(e => e.textContent)"
    found: list[str] = browser.execute_script(script, plot, axis)
    return found


def press(browser: Chrome, where: str, *keys: str) -> None:
    """Keys on an element that has the focus."""
    element = browser.find_element(By.CSS_SELECTOR, where)
    browser.execute_script("arguments[0].focus()", element)
    for key in keys:
        element.send_keys(key)


def names(browser: Chrome) -> list[str]:
    return [each.text for each in browser.find_elements(By.CSS_SELECTOR, "#table-0 tbody th")]


def eventually(browser: Chrome, condition: Callable[[Chrome], Any]) -> None:
    WebDriverWait(browser, 20).until(condition)


def seconds_of_work(browser: Chrome) -> float:
    found = browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return float(next(each["value"] for each in found if each["name"] == "TaskDuration"))


def test_plots_are_drawn_and_follow_their_controls(visit: Open, study: Written) -> None:
    page = visit(study.report.page)
    assert drawn(page, "curve-0-0") == drawn(page, "curve-0-1") == 5  # five variants: each seed only when asked for
    assert drawn(page, "levels-0-0") == 6
    dots = "return document.querySelectorAll(`#final-0 .point.${arguments[0]}`).length"
    assert page.execute_script(dots, "dot") == 21  # seeds with a number; one of the 22 that are done diverged
    assert page.execute_script(dots, "diamond") == 5
    assert page.execute_script(dots, "cross") == 0  # the paper's numbers are of another size
    page.find_element(By.CSS_SELECTOR, "[data-toggle=seeds]").click()
    assert drawn(page, "curve-0-0", ".seed") == 25
    page.find_element(By.CSS_SELECTOR, "[data-value=linear]").click()
    assert not spec(page, "curve-0-1", "y.log")
    page.find_element(By.CSS_SELECTOR, "[data-value=seconds]").click()
    assert spec(page, "curve-0-1", "x.title") == "seconds of wall-clock"
    assert (
        14 < max(at or 0 for line in spec(page, "curve-0-1", "lines") for at in line["x"]) < 15
    )  # 2000 updates at 140 a second


def test_the_scale_is_chosen_by_the_data_and_the_mean_on_a_log_scale_is_geometric(visit: Open, study: Written) -> None:
    page = visit(study.report.page)
    assert [spec(page, f"curve-0-{place}", "y.log") for place in range(2)] == [True, True]  # from 0.7 to 0.02
    values = page.execute_script("""
        const task = JSON.parse(document.getElementById("data-0").textContent), of = task.variants[0];
        return of.averaged.map(i => of.seeds[i].values[1][20])""")
    last = spec(page, "curve-0-1", "lines")[-1]  # the first variant is drawn on top
    assert last["y"][20] == pytest.approx(geometric_mean(values))
    page.find_element(By.CSS_SELECTOR, "[data-value=linear]").click()
    assert spec(page, "curve-0-1", "lines")[-1]["y"][20] == pytest.approx(fmean(values))


def test_every_logged_metric_can_be_drawn(visit: Open, study: Written) -> None:
    page = visit(study.report.page)
    buttons = page.find_elements(By.CSS_SELECTOR, "[data-metric]")
    assert [each.text for each in buttons] == [
        "training loss",
        "training NLL",
        "learning rate",
        "loss average",
        "mean level",
    ]
    figures = [page.find_element(By.ID, f"figure-0-{place}") for place in range(5)]
    assert [figure.is_displayed() for figure in figures] == [True, True, False, False, False]
    for button in buttons[2:]:
        button.click()
    assert all(figure.is_displayed() for figure in figures)
    assert [drawn(page, f"curve-0-{place}") for place in range(2, 5)] == [5, 2, 2]  # what is not annealed has no level
    buttons[0].click()
    assert not figures[0].is_displayed()


def test_smoothing_pulls_a_noisy_line_together(visit: Open, study: Written) -> None:
    page = visit(study.report.page)
    rough = """const y = document.getElementById("curve-0-0").plot.spec.lines.at(-1).y.filter(v => v !== null);
        return y.slice(1).reduce((sum, v, i) => sum + Math.abs(Math.log(v / y[i])), 0)"""
    before = page.execute_script(rough)
    page.find_element(By.CSS_SELECTOR, "[data-toggle=seeds]").click()
    press(page, "[data-smooth]", *[Keys.PAGE_UP] * 8)
    assert float(page.find_element(By.CSS_SELECTOR, "output").text) >= 0.7
    assert 0 < page.execute_script(rough) < before / 2
    assert drawn(page, "curve-0-0", ".seed") == 25
    page.find_element(By.CSS_SELECTOR, "[data-toggle=seeds]").click()
    assert "smoothed" in spec(page, "curve-0-0", "reach[0].points[0].text")


def test_a_click_shows_one_variant_alone_and_another_all_again(visit: Open, study: Written) -> None:
    page = visit(study.report.page)
    button = page.find_element(By.CSS_SELECTOR, "[data-variant='3']")
    button.click()
    shown = page.find_elements(By.CSS_SELECTOR, "[data-variant][aria-pressed=true]")
    assert [each.text for each in shown] == ["mollified"]
    assert drawn(page, "curve-0-0") == 1
    assert ticks(page, "final-0", "y") == ["mollified"]
    button.click()
    assert drawn(page, "curve-0-0") == 5
    ActionChains(page).key_down(Keys.SHIFT).click(button).key_up(Keys.SHIFT).perform()
    assert drawn(page, "curve-0-0") == 4  # with Shift that one goes
    page.find_element(By.CSS_SELECTOR, "[data-all]").click()
    assert drawn(page, "curve-0-0") == 5
    # a click on a line, at its first point
    where = """const plot = document.getElementById("curve-0-1").plot, target = plot.spec.reach.find(each => each.name === "plain"), at = target.points[30];
        return [plot.x(at.x), plot.y(at.y)]"""
    host = page.find_element(By.ID, "curve-0-1")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", host)
    left, top = page.execute_script(where)
    across, down = left - host.rect["width"] / 2, top - host.rect["height"] / 2
    ActionChains(page).move_to_element_with_offset(host, round(across), round(down)).perform()
    assert "plain" in page.find_element(By.ID, "tip").text
    ActionChains(page).click().perform()
    assert drawn(page, "curve-0-1") == 1


def test_values_are_reached_by_keyboard(visit: Open, study: Written) -> None:
    page = visit(study.report.page)
    plots = page.find_elements(By.CSS_SELECTOR, ".plot")
    assert all(each.get_attribute("role") and each.get_attribute("tabindex") == "0" for each in plots)
    assert "against updates, log scale, 5 of 5 variants" in plots[2].get_attribute("aria-label")
    said = "return document.getElementById('voice').textContent"
    press(page, "#curve-0-1", Keys.ARROW_RIGHT)
    first = page.execute_script(said)
    assert first.startswith("plain: update 0: 0.69")
    press(page, "#curve-0-1", Keys.ARROW_RIGHT)
    assert page.execute_script(said).startswith("plain: update 50: 0.6")
    press(page, "#curve-0-1", Keys.END, Keys.ARROW_DOWN)
    assert page.execute_script(said).startswith("plain, gain=4, lr=0.1: update 2,000: ")
    assert page.find_element(By.ID, "tip").is_displayed()
    press(page, "#curve-0-1", "+")
    assert page.execute_script("return document.getElementById('curve-0-1').plot.zoom") == [1475, 2100]
    press(page, "#curve-0-1", Keys.ESCAPE)
    assert page.execute_script("return document.getElementById('curve-0-1').plot.zoom") is None
    press(page, "#final-0", Keys.ARROW_RIGHT, Keys.END)
    assert "plain: mean of 5: 0.69" in page.execute_script(said)
    press(page, "#difference-0", Keys.ARROW_DOWN)
    assert "95 % interval" in page.execute_script(said)
    press(page, "#difference-0", Keys.ENTER)
    assert len(page.find_elements(By.CSS_SELECTOR, "[data-variant][aria-pressed=true]")) == 1


def test_the_full_setting_is_there_on_hover_and_on_focus(visit: Open, many: Written) -> None:
    page = visit(many.report.page)
    name = page.find_element(By.CSS_SELECTOR, "#table-0 tbody .name[data-full*='gain=1.00123456789']")
    assert "0.123456789" not in name.text
    page.execute_script("arguments[0].focus()", name)
    tip = page.find_element(By.ID, "tip")
    assert tip.is_displayed()
    assert "gain=1.00123456789" in tip.text
    page.execute_script("arguments[0].blur()", name)
    assert not tip.is_displayed()
    button = page.find_element(By.CSS_SELECTOR, "[data-variant][data-full*='gain=1.01123456789']")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    page.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")  # a scroll hides it
    ActionChains(page).move_to_element(button).perform()
    assert "gain=1.01123456789" in tip.text


def test_no_two_labels_of_forty_overlap(visit: Open, many: Written) -> None:
    script = """const boxes = [...document.querySelectorAll("#final-0 .ytick, #final-0 .xtick")].map(e => e.getBoundingClientRect());
        const svg = document.querySelector("#final-0 svg").getBoundingClientRect();
        const cross = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
        return [boxes.length, boxes.filter((a, i) => boxes.some((b, j) => j > i && cross(a, b))).length, boxes.filter(a => a.left < svg.left || a.right > svg.right).length]"""
    for width in (390, 1440):
        page = visit(many.report.page, width)
        count, overlapping, outside = page.execute_script(script)
        assert (count > 40, overlapping, outside) == (True, 0, 0)


def test_a_page_of_nine_runs_is_small_and_quick(visit: Open, nine: Written) -> None:
    assert nine.report.page.stat().st_size < 1_500_000
    page = visit(nine.report.page)
    page.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})  # not of the wall: others may be at work
    visit(nine.report.page)
    assert 0 < seconds_of_work(page) < 1
    page.execute_cdp_cmd("Performance.disable", {})


def test_a_value_that_stands_alone_is_a_dot(visit: Open, one: Written) -> None:
    page = visit(one.report.page)
    dots = "return document.querySelectorAll(`#${arguments[0]} circle.lone.mean`).length"
    assert [page.execute_script(dots, f"curve-0-{place}") for place in range(2)] == [
        1,
        0,
    ]  # the loss has no value at update 0
    assert drawn(page, "curve-0-1", ".mean") == 1
    assert page.find_elements(By.ID, "final-0") == []  # a plot of one number says no more than the table


def test_the_table_fits_a_desktop(visit: Open, nine: Written, study: Written) -> None:
    """Of three methods, and of five with diverged, failed and unfinished runs."""
    for written in (nine, study):
        page = visit(written.report.page, 1280)
        box = "const e = document.getElementById('table-0').parentNode; return e.scrollWidth - e.clientWidth"
        assert page.execute_script(box) <= 0


def test_no_heading_is_broken_within_a_word_on_a_phone(visit: Open, study: Written) -> None:
    page = visit(study.report.page, 390)
    words = """return [...document.querySelectorAll("thead th .name")].flatMap(e => {
        const text = e.firstChild, range = document.createRange();
        return [...text.data.matchAll(/[^ ]+/g)].map(found => {
            range.setStart(text, found.index); range.setEnd(text, found.index + found[0].length);
            return [found[0], range.getClientRects().length];
        });
    })"""
    found = page.execute_script(words)
    assert ["mollified", 1] in found
    assert all(lines == 1 for _, lines in found), found


def test_many_names_leave_room_for_the_plots_on_a_phone(visit: Open, many: Written) -> None:
    page = visit(many.report.page, 390)
    height = "return document.querySelector('.legend:not(.metrics)').getBoundingClientRect().height"
    assert page.execute_script(height) < 300


def test_an_interval_beyond_the_axis_has_no_end_there(visit: Open, study: Written) -> None:
    page = visit(study.report.page)
    bars = (
        "return [...document.querySelectorAll('#final-0 .bar')].map(e => e.getAttribute('d').split('v10').length - 1)"
    )
    assert page.execute_script(bars) == [2, 1, 2, 2, 2]


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
    assert spec(page, "curve-0-0", "x.title") == "epochs"
    assert max(spec(page, "curve-0-0", "lines[0].x")) == 200  # 2000 updates, ten to an epoch


@pytest.mark.parametrize("width", [390, 1440])
def test_no_page_is_wider_than_the_window(visit: Open, study: Written, odd: Written, many: Written, width: int) -> None:
    for written in (study, many, odd):
        page = visit(written.report.page, width)
        page.execute_script("document.querySelectorAll('details').forEach(e => e.open = true)")
        assert page.execute_script("return [innerWidth, document.documentElement.scrollWidth]") == [width, width]
        script = """return [...document.querySelectorAll("figure:not([hidden]) .plot")]
            .map(e => [e.firstChild.getBoundingClientRect().width, e.getBoundingClientRect().width])"""
        assert all(250 < inside <= around + 1 <= width for inside, around in page.execute_script(script))
    if width == 390:
        table = "const e = document.getElementById('table-0').parentNode; return [e.clientWidth < 390, e.scrollWidth > e.clientWidth]"
        assert page.execute_script(table) == [True, True]


def test_dark_and_light_change_page_and_plots_while_it_is_open(visit: Open, study: Written) -> None:
    page = visit(study.report.page, scheme="light")
    colours = (
        "return [getComputedStyle(document.body).backgroundColor,"
        " ...['final-0', 'curve-0-1', 'levels-0-0'].map(id => getComputedStyle(document.querySelector('#' + id + ' .ground')).fill)]"
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
    assert ticks(page, "final-0", "y")[0].startswith("_<script>document")
    assert ticks(page, "final-0", "y")[0].endswith("<b>")
    assert page.find_elements(By.CSS_SELECTOR, "main script:not([type])") == []
    assert page.find_elements(By.CSS_SELECTOR, "[data-value=seconds]")[0].get_attribute("disabled")
    assert drawn(page, "levels-1-0") == 54
    assert len(spec(page, "curve-1-0", "lines[0].x")) == 600


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
