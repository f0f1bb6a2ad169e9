"""The page of real processes: `photon status --web` and `photon serve status` as `photon up` runs it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from photon.supervision.ports import free_ports
from tests.integration.commands import photon, until
from tests.integration.verified_site import Site
from tests.pages.chromium import Chromium
from tests.pages.test_states import DESK, PHONE, fits

EVENTS, MISSING = 400, 3
WAIT_S = 120.0


@pytest.fixture(scope="module")
def site(chromium: Chromium, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, str]]:
    """A running pipeline, and its page's address. After the browser: without one nothing is started."""
    site = Site(tmp_path_factory.mktemp("page"), owned_alarm=300)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    site.file.write_text(
        site.file.read_text().replace('state = "state"\n', f'state = "state"\napart.status = "{address}"\n', 1)
    )
    site.write(EVENTS, missing=MISSING)
    try:
        site.up()
        yield site, f"http://{address}/"
    finally:
        photon("down", site.file)


def test_the_page_of_real_processes(chromium: Chromium, site: tuple[Site, str], pictures: Path) -> None:
    _, url = site
    with chromium.tab(*DESK) as tab:
        tab.go(url)
        for words in ("all is well", "every event that was read has its verdict", "joiner east-1", "release"):
            tab.until(f"document.body?.innerText.includes({words!r})", words, WAIT_S)
        tab.until(
            f"document.querySelector('#flow').textContent.includes('{EVENTS} ids')", "all is registered", WAIT_S
        )
        tab.until(
            f"[...document.querySelectorAll('#ledger td')].some(c => c.textContent === '{EVENTS - MISSING}')",
            "the ledger",
        )
        tab.until("document.querySelectorAll('#bars rect').length > 0", "the bars")
        tab.js("document.querySelector('#event-id').value = 'c000007'")
        tab.js("document.querySelector('#explain button').click()")
        tab.until(
            "document.querySelector('#explained')?.innerText.includes('joined: joined in east')", "its story", WAIT_S
        )
        tab.picture(pictures / "real.png")
        tab.resize(*PHONE)
        fits(tab)
        tab.picture(pictures / "real-phone.png")
        assert [each for each in tab.complaints if "ERR_CONNECTION" not in each] == []
        assert [each for each in tab.requests if not each.startswith((url, "data:,"))] == []


def test_status_web_serves_the_page_from_here(chromium: Chromium, site: tuple[Site, str]) -> None:
    deployment, _ = site
    command = [sys.executable, "-m", "photon", "status", "--web", "--config", str(deployment.file), "-o", "json"]
    begun = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            assert told["datacentre"] == "east"
            with chromium.tab(*DESK) as tab:
                tab.go(told["url"])
                tab.until("document.body?.innerText.includes('5 of 5 processes answer')", "it asks them all", WAIT_S)
                print(f"shown {time.monotonic() - begun:.2f} s after the command")
        finally:
            process.terminate()
            assert process.wait(60) == 0
            assert process.stderr is not None
            assert process.stderr.read() == ""
    until(lambda: not _answers(told["url"]), WAIT_S, "it is gone")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False
