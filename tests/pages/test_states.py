"""What the page shows of each state of a deployment: on a desk, on a phone, in the dark, without colour."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.pages import states
from tests.pages.canned import Canned
from tests.pages.chromium import Chromium, Tab

DESK, PHONE, TABLET = (1200, 900), (360, 740), (820, 1000)
STATES: dict[str, tuple[Callable[[], dict[str, Any]], list[str]]] = {
    "empty": (states.empty, ["all is well", "10 of 10 processes answer", "nothing has been read yet", "0 logs",
                             "every event that was read has its verdict", "no numbers yet"]),
    "first_seconds": (states.first_seconds, ["12/s", "9.0/s", "1 log", "of the last 500 ms"]),
    "busy": (states.busy, ["all is well", "8,412/s", "4,102/s", "hits 99.1 %", "312 events pending (oldest 12 min",
                           "10.12.0.3:4711:1799900003000123", "its primary event has not been found yet", "west",
                           "4,051/s elsewhere", "81 ms", "catching up"]),
    "catching_up": (states.catching_up, ["lag 3 days", "3.0 TiB", "hits 21.0 %", "clicks/9.log.gz"]),
    "other_away": (states.other_away, ["attention: 2 alarms", "its work is done here", "▲ 2 ",
                                       "3 of 5 replicas"]),
    "alarms": (states.alarms, ["attention: 3 alarms", "see photon status ledger", "▲ 1 ", "no leader",
                               "published without a copy", "2 of 3 processes answer, but a store",
                               "4,021 cells wait, the oldest for", "without a leader"]),
    "resharding": (states.resharding, ["Resharding to config 2: preparing", "3 of 4 shards are prepared",
                                       "new: 5, 6, 7"]),
    "many_logs": (states.many_logs, ["5,000 logs", "attention: 100 alarms", "+57"]),
}  # fmt: skip


def looked(name: str) -> str:
    """A look at the page from inside: an expression whose value is a list of complaints."""
    return (Path(__file__).parent / "looks" / name).read_text()


def shown(tab: Tab, canned: Canned) -> None:
    tab.go(canned.url)
    tab.until("document.body?.dataset.shown !== undefined", "the page shows the status")


def sound(tab: Tab, canned: Canned) -> None:
    """Nothing went wrong, nothing outside was asked."""
    assert tab.complaints == []
    outside = [url for url in tab.requests if not url.startswith((canned.url, "data:,"))]
    assert outside == []


def fits(tab: Tab) -> None:
    """No horizontal scroll of the page; wide tables scroll by themselves."""
    too_wide = tab.js(
        "[...document.querySelectorAll('body *')].filter(e => !e.closest('.wide, svg, .skip') && "
        "e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName + '#' + e.id + ' ' + "
        "Math.round(e.getBoundingClientRect().right))"
    )
    assert too_wide == []
    assert tab.js("document.documentElement.scrollWidth <= innerWidth")


def in_svg(tab: Tab) -> None:
    """No text of a picture is cut off by its edge or runs into another one."""
    assert tab.js(looked("cut_off.js")) == []


@pytest.mark.parametrize("name", STATES)
def test_a_state_is_shown(chromium: Chromium, canned: Canned, pictures: Path, name: str) -> None:
    state, words = STATES[name]
    canned.status = state()
    with chromium.tab(*DESK) as tab:
        shown(tab, canned)
        everything = tab.text() + str(
            tab.js("[...document.querySelectorAll('svg text')].map(t => t.textContent).join(' ')")
        )
        for word in words:
            assert word in everything, (word, everything)
        for size in (DESK, TABLET, PHONE):
            tab.resize(*size)
            tab.until(f"innerWidth === {size[0]}", "the new size")
            tab.js("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
            fits(tab)
            in_svg(tab)
            tab.picture(pictures / f"{name}-{size[0]}.png")
        sound(tab, canned)


def test_in_the_dark_and_without_colour(chromium: Chromium, canned: Canned, pictures: Path) -> None:
    canned.status = states.alarms()
    with chromium.tab(*DESK, prefers_color_scheme="dark", prefers_reduced_motion="reduce") as tab:
        shown(tab, canned)
        assert tab.js("getComputedStyle(document.body).backgroundColor") == "rgb(20, 22, 26)"
        assert tab.js("[...document.querySelectorAll('.drop')].every(d => getComputedStyle(d).display === 'none')")
        tab.picture(pictures / "dark.png")
        assert contrasts(tab) == []
        sound(tab, canned)
    with chromium.tab(*DESK) as tab:
        shown(tab, canned)
        tab.picture(pictures / "grey.png", grey=True)
        assert contrasts(tab) == []


def contrasts(tab: Tab) -> list[str]:
    """Texts whose contrast with what is behind them is below 4.5 (WCAG AA)."""
    found: list[str] = tab.js(looked("contrasts.js"))
    return found


def test_names_from_outside_are_text(chromium: Chromium, canned: Canned, pictures: Path) -> None:
    canned.status = states.hostile()
    evil = states.HOSTILE
    step = {"at_s": 1e300, "where": evil, "what": evil, "more": {evil: evil}}
    canned.explained = 200, {"id": evil, "verdict": evil, evil: [evil], "steps": [step, evil, None, 7]}
    with chromium.tab(*PHONE) as tab:
        shown(tab, canned)
        tab.js("document.querySelector('#oldest button').click()")
        tab.until("document.querySelectorAll('#explained li').length >= 4", "the explanation is shown")
        assert tab.js("window.hacked") is None
        assert tab.js("document.querySelectorAll('img, body script, iframe').length") == 0
        assert "<img src=x onerror=" in tab.js("document.querySelector('#alarms').textContent")
        assert "<img src=x onerror=" in tab.js("document.querySelector('#explained').textContent")
        assert not tab.js("/[\\u202e\\u0000]/.test(document.querySelector('main').textContent)")
        fits(tab)
        tab.picture(pictures / "hostile.png")
        sound(tab, canned)
        # And if the page's code were wrong: nothing that came in as text can become code.
        tab.js("document.body.insertAdjacentElement('beforeend', document.createElement('p')).id = 'p'")
        attempt = f"p.innerHTML = {evil!r}; return 'taken'"
        assert tab.js(f"(() => {{ try {{ {attempt} }} catch (e) {{ return e.name }} }})()") == "TypeError"
        assert tab.js("(() => { try { return eval('1') } catch (e) { return e.name } })()") == "EvalError"
        tab.js(
            "document.body.append(Object.assign(document.createElement('img'), {src: 'http://127.0.0.1:1/x.png'}))"
        )
        tab.until("true", "a look")
        assert tab.js("window.hacked") is None
        assert any("Content Security Policy" in complaint for complaint in tab.complaints)
