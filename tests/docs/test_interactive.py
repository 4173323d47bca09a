"""The interactive page in a real browser: it computes what the library computes, moves by slider and keyboard, and asks for nothing."""

import base64
import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait
from torch import nn

import mollifier
from mollifier.nn import NoisyActivation
from tests.docs.conftest import ROOT, load

Open = Callable[..., Chrome]
DATA = json.loads((ROOT / "examples/interactive/network.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("interactive") / "page.html"
    path.write_text(load("docs/.hooks/interactive.py").build(), encoding="utf-8")
    return path


@pytest.fixture
def visit(browser: Chrome, page: Path) -> Iterator[Open]:
    """Opens the page at a width and in a colour scheme; at the end no word in the console and no request but for the page."""
    pages: list[str] = []

    def visit(width: int = 1280, scheme: str = "light") -> Chrome:
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        pages.append(page.as_uri())
        browser.get(pages[-1])
        return browser

    browser.get("about:blank")
    browser.get_log("browser"), browser.get_log("performance")
    yield visit
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith(("data:", "blob:"))] == pages


def text(browser: Chrome, name: str) -> str:
    found: str = browser.execute_script("return document.getElementById(arguments[0]).textContent", name)
    return found


def eventually(browser: Chrome, condition: Callable[[Chrome], Any]) -> None:
    WebDriverWait(browser, 20).until(condition)


def press(browser: Chrome, *keys: str) -> None:
    slider = browser.find_element(By.ID, "slider")
    browser.execute_script("arguments[0].focus()", slider)
    for key in keys:
        slider.send_keys(key)


def library(run: str, snapshot: int) -> nn.Module:
    """The network of a snapshot, built with the library."""
    stored = DATA[run]["snapshots"][snapshot]
    whole = torch.frombuffer(bytearray(base64.b64decode(stored["bits"])), dtype=torch.int16)
    numbers = iter(whole.double() * stored["scale"])
    sizes = DATA["widths"]
    model = nn.Sequential()
    for width, out in pairwise(sizes[:-1]):
        model += nn.Sequential(nn.Linear(width, out), nn.Sigmoid())
    model.append(nn.Linear(sizes[-2], sizes[-1])).double()
    mollifier.mollify(model, c=DATA["c"]).eval()

    def fill(tensor: torch.Tensor) -> None:
        tensor.data.copy_(torch.stack([next(numbers) for _ in range(tensor.numel())]).view_as(tensor))

    for module in model:
        if isinstance(module, nn.Linear):
            fill(module.weight), fill(module.bias)
        else:
            fill(next(part for part in module.modules() if isinstance(part, NoisyActivation)).a)
    assert next(numbers, None) is None
    return model


def test_it_computes_what_the_library_computes(visit: Open) -> None:
    browser = visit()
    torch.manual_seed(0)
    inputs = 2 * torch.rand(50, 2, dtype=torch.float64) - 1
    script = """const [run, i, levels, inputs] = arguments;
        return [...outputs(data[run].snapshots[i], levels, Float32Array.from(inputs), inputs.length / 2)]"""
    depth = len(DATA["widths"]) - 2
    for snapshot, levels in (
        (-1, [0.0] * depth),
        (-1, [0.3] * depth),
        (-1, [1.0] * depth),
        (12, DATA["mollified"]["levels"][12]),
    ):
        model = library("mollified", snapshot)
        mollifier.set_level(model, levels)
        expected = model(inputs).flatten().detach()
        place = snapshot % len(DATA["mollified"]["snapshots"])
        found = torch.tensor(browser.execute_script(script, "mollified", place, levels, inputs.flatten().tolist()))
        assert torch.allclose(found, expected.float(), rtol=1e-3, atol=2e-3 * float(expected.abs().max()))


def test_the_slider_bends_the_boundary(visit: Open) -> None:
    browser = visit()
    pixels = "return document.getElementById('surface').toDataURL()"
    assert text(browser, "value") in ("", "1.00")
    eventually(browser, lambda page: text(page, "value") == "1.00")
    straight = browser.execute_script(pixels)
    browser.execute_script(
        "const s = document.getElementById('slider'); s.value = 1000; s.dispatchEvent(new Event('input'))"
    )
    eventually(browser, lambda page: text(page, "value") == "0.00" and "bit for bit" in text(page, "story"))
    assert "100 %" in text(browser, "score")
    assert browser.execute_script(pixels) != straight
    mean = "return document.getElementById('mean').getAttribute('d')"
    sigmoid = "return document.querySelector('#unit .stroke-ink').getAttribute('d')"
    assert browser.execute_script(mean) == browser.execute_script(sigmoid)  # level 0: the push is gone
    assert browser.execute_script("return document.querySelectorAll('#layers circle.copied').length") == 0


def test_it_can_be_used_by_keyboard_alone(visit: Open) -> None:
    browser = visit()
    press(browser, Keys.END)
    eventually(browser, lambda page: text(page, "value") == "0.00")
    press(browser, Keys.HOME, Keys.ARROW_RIGHT)
    eventually(browser, lambda page: text(page, "value") == "0.98")
    assert browser.find_element(By.ID, "slider").get_attribute("aria-valuetext") == "level 0.98"
    press(browser, Keys.PAGE_UP)
    eventually(browser, lambda page: text(page, "value") == "0.79")
    radio = browser.find_element(By.CSS_SELECTOR, "[name=mode]:checked")
    browser.execute_script("arguments[0].focus()", radio)
    radio.send_keys(Keys.ARROW_RIGHT)
    eventually(browser, lambda page: not page.find_element(By.ID, "twin-figure").get_attribute("hidden"))
    button = browser.find_element(By.ID, "play")
    browser.execute_script("arguments[0].focus()", button)
    before = int(browser.find_element(By.ID, "slider").get_attribute("value") or 0)
    button.send_keys(Keys.SPACE)
    eventually(browser, lambda page: int(page.find_element(By.ID, "slider").get_attribute("value") or 0) > before)
    button.send_keys(Keys.SPACE)
    assert button.get_attribute("aria-pressed") == "false"


def test_the_training_shows_the_twin_that_does_not_train(visit: Open) -> None:
    browser = visit()
    browser.find_element(By.CSS_SELECTOR, "[value=training] + span").click()
    press(browser, Keys.END)
    eventually(browser, lambda page: "100 %" in text(page, "score"))
    assert "50 %" in text(browser, "twin-score")
    levels = "return [...document.querySelectorAll('#layers text')].map(each => Number(each.dataset.level))"
    assert set(browser.execute_script(levels)) == {0}
    press(browser, Keys.HOME)
    eventually(browser, lambda page: set(page.execute_script(levels)) == {1})


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_it_fits_every_screen_and_scheme(visit: Open, width: int, scheme: str) -> None:
    browser = visit(width, scheme)
    browser.find_element(By.CSS_SELECTOR, "[value=training] + span").click()
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert browser.execute_script("return document.documentElement.dataset.scheme") == scheme
    paper = browser.execute_script("return getComputedStyle(document.documentElement).backgroundColor")
    assert (paper == "rgb(251, 250, 247)") == (scheme == "light")
