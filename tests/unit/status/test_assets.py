"""The page's files: all there, under a strict policy, and without any external content."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from photon.cli.main import main
from photon.config.clock import SystemClock
from photon.config.loader import load
from photon.status.process import CONTENT_POLICY, StatusService, read_assets

EXAMPLE = Path(__file__).parents[3] / "config" / "examples" / "two_datacentres.toml"
LINES_MAX = 500


def test_the_page_and_all_that_it_names_is_served_under_a_strict_policy() -> None:
    assets = read_assets()
    page = assets["/"].body.decode()
    named = set(re.findall(r'(?:src|href)="(page/[^"]+)"', page))
    for path, answer in assets.items():
        assert ("Content-Security-Policy", CONTENT_POLICY) in answer.headers
        if path.endswith(".js"):
            named |= {f"page/{name}" for name in re.findall(r'from "\./([^"]+)"', answer.body.decode())}
        assert answer.body.count(b"\n") <= LINES_MAX
    assert {f"/{name}" for name in named} == assets.keys() - {"/"}
    for word in ("unsafe", "*", "http"):
        assert word not in CONTENT_POLICY


def test_nothing_comes_from_outside_and_no_text_becomes_markup() -> None:
    for path, answer in read_assets().items():
        text = answer.body.decode()
        outside = [url for url in re.findall(r"https?://[^\s\"'`]+", text) if url != "http://www.w3.org/2000/svg"]
        assert outside == [], path
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "style=", "onclick="):
            assert word not in text, (path, word)


@pytest.mark.parametrize("path", ["/page/", "/page/index.html", "/page/../process.py", "/page/none.js", "/page"])
def test_nothing_else_is_served(path: str) -> None:
    assert path not in read_assets()


def test_before_the_first_gathering_it_is_said_who_is_asked() -> None:
    service = StatusService(load(EXAMPLE, environment={}), "west", None, SystemClock())
    answer = service.answer("/status.json")
    assert answer.status == 503
    assert b'"starting":["dispatcher west","joiner west-1",' in answer.body


@pytest.mark.parametrize(
    "arguments",
    [
        ["--web"],
        ["--web", "--url", "http://127.0.0.1:1"],
        ["--web", "--watch", "--config", str(EXAMPLE)],
        ["--listen", "127.0.0.1:0", "--config", str(EXAMPLE)],
        ["--web", "--config", str(EXAMPLE)],  # of which datacentre?
    ],
)
def test_web_is_refused_where_it_makes_no_sense(arguments: list[str]) -> None:
    told = CliRunner().invoke(main, ["status", *arguments])
    assert told.exit_code == 2, told.output
