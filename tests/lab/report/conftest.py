"""A study with its report, written once, and a real browser to open it in."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from mollifier_lab.report import Report, report
from mollifier_lab.settings import RunConfig
from tests.lab.report.folders import write_run, write_study

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip
NASTY = "<script>document.title='got you'</script>&\"'$\\foo$ %{x} {{ 7 * 7 }} <b>"


@dataclass(frozen=True)
class Written:
    """A folder of runs and the report of it."""

    root: Path
    report: Report


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Five variants × five seeds; failed, running and diverged runs among them."""
    root = write_study(tmp_path_factory.mktemp("report") / "study")
    return Written(root, report(root))


@pytest.fixture(scope="session")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Two tasks, a label that wants to be HTML, a failure that does, one unreadable folder, no clock, no levels, many blocks."""
    root = tmp_path_factory.mktemp("report") / "<i>odd"
    write_run(root / "a", RunConfig.make("parity", "mollified", label=NASTY), rows=10, clock=False, levels=False)
    failed = write_run(root / "b", RunConfig.make("parity", "plain", label="_" + NASTY), rows=10, clock=False, state="failed")  # fmt: skip
    (failed / "failure.txt").write_text(
        "first line\n" + "x\n" * 30 + "</pre><script>document.title='got you'</script>\n"
    )
    (failed / "environment.json").write_text('{"torch": "<img src=x onerror=alert(1)>", "command": "mollifier <b>"}')
    for seed in range(2):
        config = RunConfig.make("cifar10", "mollified-residual", seed, "quick")
        write_run(root / "cifar" / f"seed-{seed}", config, rows=1200, blocks=54)
    (root / "broken").mkdir()
    (root / "broken" / "config.json").write_text("{<script>")
    return Written(root, report(root, root / "out"))


@pytest.fixture(scope="session")
def many(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Forty trials of a search with long settings, and a label of 300 letters without a space."""
    root = tmp_path_factory.mktemp("report") / "search"
    for number in range(40):
        changes = {"lr": 0.123456789 * (number + 1), "gain": 1.00123456789 + 0.01 * number, "k": 12.3456789 + number}
        config = RunConfig.make("parity", "mollified", 0, "quick", **changes)
        write_run(root / f"trial-{number:04d}", replace(config, trial=True), rows=8, levels=False)
    write_run(root / "long", RunConfig.make("parity", "mollified", 0, "quick", label="x" * 300), rows=8, levels=False)
    return Written(root, report(root))


@pytest.fixture(scope="session")
def one(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """One run that was evaluated twice."""
    root = tmp_path_factory.mktemp("report") / "one"
    write_run(root / "run", RunConfig.make("parity", "mollified", 0, "quick"), rows=1)
    return Written(root, report(root))


@pytest.fixture(scope="session")
def nine(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Three methods × three seeds, each evaluated more often than a plot is wide."""
    root = tmp_path_factory.mktemp("report") / "nine"
    for method in ("plain", "residual-bn", "mollified"):
        for seed in range(3):
            write_run(root / method / f"seed-{seed}", RunConfig.make("parity", method, seed, "quick"), rows=1000)
    return Written(root, report(root))


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """Headless Chromium that can resolve no name."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        missing = "no chromium and chromedriver in PATH; on Debian: apt-get install chromium chromium-driver"
        if os.environ.get("CI") or os.environ.get("MOLLIFIER_REQUIRE_BROWSER") == "1":
            pytest.fail(missing)
        pytest.skip(missing)
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    # the path of the driver is given: selenium must not look for one in the network
    chrome = webdriver.Chrome(options=options, service=Service(driver))
    yield chrome
    chrome.quit()
