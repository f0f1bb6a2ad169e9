"""What the page does: says that it is old, is used by keyboard, has names for those who do not see it, explains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.pages import states
from tests.pages.canned import Canned
from tests.pages.chromium import Chromium
from tests.pages.test_states import DESK, PHONE, fits, shown, sound

STORY = {
    "photon_explain": 1, "event_id": "c1", "verdict": "joined", "summary": "joined in east by east-1",
    "event_time": "2027-01-15T08:00:00Z", "key": "q1", "complete": False,
    "steps": [
        {"step": "read", "at": "2027-01-15T08:00:01.5Z", "datacentre": "east", "who": "dispatcher east",
         "what": "read at byte 4711", "file": "clicks/a.log", "offset": 4711},
        {"step": "registered", "at": None, "datacentre": "east", "who": "east-1", "what": "under token 12:7",
         "file": None, "offset": None, "shard": 3},
    ],
    "contradictions": ["the id is written twice"], "searched": [],
    "missing": [{"where": "west", "why": "joiner west-1: nobody listens there"}],
}  # fmt: skip


def test_old_numbers_are_said_to_be_old(chromium: Chromium, canned: Canned, pictures: Path) -> None:
    canned.status = states.busy()
    with chromium.tab(*DESK) as tab:
        shown(tab, canned)
        assert not tab.js("document.body.classList.contains('old')")
        canned.status["age_s"] = 400.0  # the server answers, but gathers no more
        tab.until("!document.querySelector('#old').hidden", "it is said")
        assert "Old numbers, from 7 min ago." in tab.text()
        assert "has not asked the processes lately" in tab.text()
        assert "all is well" not in tab.text()
        canned.status["age_s"] = 0.1
        tab.until("document.querySelector('#old').hidden", "it is new again")
        sound(tab, canned)


def test_a_server_that_is_away_is_said(chromium: Chromium, canned: Canned, pictures: Path) -> None:
    canned.status = states.busy()
    with chromium.tab(*PHONE) as tab:
        shown(tab, canned)
        canned.stop()
        tab.until("document.body.classList.contains('old')", "it is said")
        assert "The status server does not answer" in tab.text()
        assert "8,412/s" in str(tab.js("document.querySelector('#flow').textContent"))  # what was known stays
        fits(tab)
        tab.picture(pictures / "away.png")
        canned.again()
        tab.until("!document.body.classList.contains('old')", "it is back")
        assert "all is well" in tab.text()


def test_an_error_of_the_server_is_said(chromium: Chromium, canned: Canned) -> None:
    with chromium.tab(*DESK) as tab:
        tab.go(canned.url)
        tab.until("document.querySelector('#old')?.hidden === false", "it is said")
        assert "answers with an error (500)" in tab.text()
        assert "no status yet" in tab.text()


def test_a_fresh_page_says_whom_it_asks_and_shows_the_first_answer_at_once(
    chromium: Chromium, canned: Canned, pictures: Path
) -> None:
    canned.code = 503
    canned.status = {"datacentre": "east", "version": "1.0.0", "starting": ["dispatcher east", "registry r1"]}
    with chromium.tab(*DESK) as tab:
        tab.go(canned.url)
        tab.until("document.querySelector('#starting')?.hidden === false", "it says so")
        assert "asking 2 processes for the first time" in tab.text()
        assert "registry r1" in tab.text()
        tab.picture(pictures / "starting.png")
        canned.status, canned.code = states.empty(), 200
        tab.js("window.begun = performance.now()")
        tab.until("document.body.dataset.shown !== undefined", "the first answer is shown")
        assert tab.js("performance.now() - window.begun") < 5000  # a quarter of a second on a quiet machine
        assert tab.js("document.querySelector('#starting').hidden")


def test_it_can_be_used_by_keyboard(chromium: Chromium, canned: Canned, pictures: Path) -> None:
    canned.status = states.busy()
    canned.explained = 200, STORY
    with chromium.tab(*PHONE) as tab:
        shown(tab, canned)
        reached = []
        for _ in range(80):
            tab.press("Tab")
            reached.append(tab.focused())
            if reached[-1].startswith("body"):
                break
        assert reached[0] == "a Skip to the data"
        for wanted in (
            "input event-id",
            "button Explain",
            "button Day",
            "summary The same as a table",
            "a status.json",
        ):
            assert wanted in reached, (wanted, reached)
        assert any(each.startswith("button 10.12.0.3:") for each in reached)
        assert any(each.startswith("div ") for each in reached)  # what scrolls
        tab.js("document.querySelector('#event-id').focus()")
        assert tab.js("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        tab.write(" c1 ")
        tab.press("Enter")
        tab.until("document.querySelectorAll('#explained .steps li').length === 2", "the story is shown")
        tab.js("document.querySelector('[data-span=day]').focus()")
        tab.press(" ")
        tab.until("document.querySelector('#charts').textContent.includes('24 h ago')", "the day is shown")
        assert tab.js("document.querySelector('[data-span=day]').ariaPressed") == "true"
        tab.js("document.querySelector('#as-table summary').focus()")
        tab.press("Enter")
        tab.until("document.querySelectorAll('#points tbody tr').length > 20", "the table is shown")
        fits(tab)
        tab.picture(pictures / "explained.png")
        sound(tab, canned)


def test_the_focus_stays_where_it_is_when_new_numbers_come(chromium: Chromium, canned: Canned) -> None:
    canned.status = states.busy()
    with chromium.tab(*DESK) as tab:
        shown(tab, canned)
        tab.js("[...document.querySelectorAll('#oldest button')][4].focus()")
        canned.status["at_s"] += 2
        canned.status["oldest"].insert(0, states.pending(30))
        tab.until(f"document.body.dataset.shown === '{canned.status['at_s']:.0f}'", "new numbers")
        assert tab.focused() == "button " + states.pending(4)["event_id"]


def test_an_event_is_explained(chromium: Chromium, canned: Canned, pictures: Path) -> None:
    canned.status = states.busy()
    with chromium.tab(*DESK) as tab:
        shown(tab, canned)

        def ask(id_: str) -> None:
            tab.js(f"document.querySelector('#event-id').value = '{id_}'")
            tab.js("document.querySelector('#explain button').click()")
            tab.until(f"document.querySelector('#explained code')?.textContent === '{id_}'", "the answer")

        canned.explained = 200, STORY
        ask("c1")
        said = tab.js("document.querySelector('#explained').innerText")
        wanted = ["joined: joined in east by east-1", "read at byte 4711", "east, dispatcher east"]
        wanted += [
            "clicks/a.log @ 4711",
            "shard 3",
            "registered: under token 12:7",
            "This should not be",
            "west: joiner west-1: nobody listens there",
        ]
        assert [words for words in wanted if words not in said] == []
        tab.picture(pictures / "explained-desk.png")
        sound(tab, canned)
        assert any(url.endswith("explain.json?id=c1") for url in tab.requests)
        answers: list[tuple[int, Any, str]] = [
            (404, None, "This server cannot explain events"),
            (503, "too many are being explained", "The search failed (503). too many are being explained"),
            (400, {"error": "an id is at most 1,024 bytes"}, "an id is at most 1,024 bytes"),
        ]
        for code, body, words in answers:
            canned.explained = code, body
            ask(f"c{code}")
            assert words in tab.js("document.querySelector('#explained').innerText")
        canned.stop()
        ask("c2")
        assert "does not answer" in tab.js("document.querySelector('#explained').innerText")


def test_everything_has_a_name(chromium: Chromium, canned: Canned) -> None:
    canned.status = states.resharding()
    with chromium.tab(*DESK) as tab:
        shown(tab, canned)
        names = tab.names()
        wanted = (
            "button",
            "link",
            "image",
            "img",
            "searchbox",
            "textbox",
            "table",
            "navigation",
            "region",
            "progressindicator",
        )
        assert [each for each in names if each[0] in wanted and not each[1]] == []
        roles = {role for role, _ in names}
        assert {"main", "navigation", "search", "status", "table", "columnheader", "heading"} <= roles
        assert ("searchbox", "Event id") in names
        flow = next(name for role, name in names if role in ("image", "img") and name.startswith("data flow: "))
        for words in ("read 8,412/s lag 400 ms", "look look-ups hits 99.1 %", "datacentre west at work"):
            assert words in flow
        assert any(name.startswith("Line to join over time, now p50 (line) ") for _, name in names)
        assert "3 of 4 shards are prepared" in [name for role, name in names if role.lower().startswith("progress")]
        assert tab.js("document.documentElement.lang") == "en"
        assert tab.js("new Set([...document.querySelectorAll('[id]')].map(e => e.id)).size") == tab.js(
            "document.querySelectorAll('[id]').length"
        )
