"""`mollifier report --serve`: it answers this machine alone, reads alone, and follows a run that goes on."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from mollifier_lab.cli import main
from mollifier_lab.errors import LabError
from mollifier_lab.report.server import Server
from mollifier_lab.runs import RunFolder
from mollifier_lab.settings import RunConfig
from tests.lab.report.folders import write_run


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    write_run(tmp_path / "runs" / "plain" / "seed-0", RunConfig.make("parity", "plain"), rows=6, state="running")
    with Server(tmp_path / "runs", port=0) as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.02,))
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def ask(server: Server, path: str = "/", method: str = "GET", **headers: str) -> tuple[HTTPResponse, str]:
    connection = HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_page_and_its_news_and_nothing_else(server: Server) -> None:
    before = files(server.folder)
    answer, text = ask(server)
    assert answer.status == 200
    assert answer.headers["Cache-Control"] == "no-store"
    assert "<h2>parity</h2>" in text
    assert "connect-src 'self'" in text
    assert json.loads(ask(server, "/state")[1])["stamp"] in text
    assert ask(server, method="HEAD")[1] == ""
    for path in ("/plain/seed-0/config.json", "/../../etc/passwd", "/report.html"):
        assert ask(server, path)[0].status == 404
    for method in ("POST", "PUT", "DELETE"):
        assert ask(server, method=method)[0].status == 501
    assert files(server.folder) == before


def test_only_this_machine_is_answered(server: Server) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert server.private
    assert ask(server, Host="evil.example")[0].status == 403
    assert ask(server, Host="localhost:80")[0].status == 200


def test_the_stamp_changes_with_the_files_and_the_page_with_it(server: Server) -> None:
    stamp, first = server.stamp(), ask(server)[1]
    assert server.stamp() == stamp
    assert ask(server)[1] == first
    write_run(server.folder / "mollified" / "seed-0", RunConfig.make("parity", "mollified"), rows=4)
    assert server.stamp() != stamp
    assert "mollified" in ask(server)[1]


def test_before_the_first_run_it_waits(tmp_path: Path) -> None:
    with Server(tmp_path, port=0) as server:
        assert "No run to show yet" in server.page()
        assert 'http-equiv="refresh"' in server.page()
        write_run(tmp_path / "run", RunConfig.make("parity", "plain"), rows=4)
        assert "<h2>parity</h2>" in server.page()


def test_a_port_that_is_taken_gives_way_to_the_next(server: Server, tmp_path: Path) -> None:
    with Server(tmp_path, port=server.server_address[1]) as other:
        assert other.server_address[1] > server.server_address[1]
    with pytest.raises(LabError, match="no such folder"):
        Server(tmp_path / "nowhere", port=0)


@pytest.mark.parametrize(
    ("flags", "reason"),
    [("--out page", "--serve writes nothing"), ("--port 70000", "from 0 to 65535"), ("--host 203.0.113.7", "cannot listen at")],
)  # fmt: skip
def test_what_does_not_go_together_is_said(
    flags: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path), "--serve", *flags.split()]) == 2
    assert reason in capsys.readouterr().err


def test_the_page_follows_a_run_that_goes_on(browser: Chrome, tmp_path: Path) -> None:
    lab = [sys.executable, "-m", "mollifier_lab"]
    tiny = {"bits": 6, "width": 8, "depth": 2, "samples": 64, "batch": 16, "updates": 10_000_000, "evaluate-every": 50}
    flags = [word for name, value in tiny.items() for word in (f"--{name}", str(value))]
    run = tmp_path / "run"
    trainer = subprocess.Popen([*lab, "train", "parity", "--out", str(run), "--quiet", "--no-tensorboard", "--threads", "1", *flags])  # fmt: skip
    serving = subprocess.Popen([*lab, "report", str(tmp_path), "--serve", "--port", "0"], stdout=subprocess.PIPE, text=True)  # fmt: skip
    try:
        assert serving.stdout is not None
        address = next(word for word in serving.stdout.readline().split() if word.startswith("http://127.0.0.1:"))
        while trainer.poll() is None and len(RunFolder(run).rows()) < 3:
            time.sleep(0.05)
        browser.get(address)
        wait = WebDriverWait(browser, 60)
        browser.execute_script("document.querySelector('[data-value=linear]').click()")
        browser.execute_script("document.querySelector('[data-metric=lr]').click()")
        browser.execute_script("document.getElementById('curve-0-0').plot.zoom = [10, 60]")
        first = last_update(browser)
        wait.until(lambda page: last_update(page) > first)
        assert int(browser.find_element(By.ID, "live").get_attribute("data-count") or 0) >= 1
        assert browser.find_element(By.ID, "live").text.startswith("Live: as of ")
        # what was chosen is still chosen
        pressed = [each.text for each in browser.find_elements(By.CSS_SELECTOR, ".controls [aria-pressed=true]")]
        assert pressed == ["updates", "linear"]
        assert browser.find_element(By.CSS_SELECTOR, "[data-metric=lr]").get_attribute("aria-pressed") == "true"
        assert browser.execute_script("return document.getElementById('curve-0-0').plot.x.domain") == [10, 60]
        assert "unfinished" in browser.find_element(By.CSS_SELECTOR, "section.task .lead").text
        serving.send_signal(signal.SIGINT)
        assert serving.wait(60) == 0
        wait.until(lambda page: "does not answer" in page.find_element(By.ID, "live").text)
    finally:
        browser.get("about:blank")
        browser.get_log("browser")  # that the server did not answer any more
        for process in (trainer, serving):
            process.kill()
            process.communicate()
    assert not list(tmp_path.rglob("report.html"))


def last_update(page: Chrome) -> Any:
    return page.execute_script(
        "return JSON.parse(document.getElementById('data-0').textContent).variants[0].updates.at(-1)"
    )
