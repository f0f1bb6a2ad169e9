"""The page of a nightly verification."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser

from photon.spark.classes import Class
from photon.spark.verify.advice import GOOD, MEANING, PROBLEMS, TO_DO
from photon.spark.verify.causes import Cause, CauseKind, CommandLine
from photon.spark.verify.figures import (
    ClassCount,
    CoverageRow,
    ExampleFinding,
    Figures,
    InputTotal,
    LedgerDifference,
    LedgerLine,
    bars,
)
from photon.spark.verify.page import page
from photon.spark.verify.verdict import verdict_of

HOUR = 494_784
EVIL = '<script>alert("x")</script>'


def figures(counts: list[ClassCount], **more: object) -> Figures:
    made_at = "2026-11-21T03:00:00Z"
    return Figures("clicks", HOUR, HOUR + 24, ["east", "west"], made_at, made_at, counts, **more)  # type: ignore[arg-type]


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)
        if tag not in ("meta", "br", "line"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def checked(text: str) -> _Tags:
    tags = _Tags()
    tags.feed(text)
    tags.close()
    assert not tags.open
    assert not re.search(r"https?://|src=|@import|url\(", text), "it needs no network"
    return tags


def test_every_class_has_a_meaning_and_every_problem_something_to_do() -> None:
    assert set(MEANING) == set(Class)
    assert set(TO_DO) == set(PROBLEMS)
    assert set(PROBLEMS) | set(GOOD) == set(Class)


def test_a_good_day() -> None:
    text = page(figures([ClassCount(HOUR + 3, "east", Class.CORRECT, 12_345)]))
    assert "Every event exactly once" in text
    assert "12,345" in text
    assert '"verdict right"' in text
    assert checked(text).seen.count("svg") == 1


def test_commands_to_copy() -> None:
    """With the paths of this run, and none if everything is right."""
    commands = CommandLine("/etc/photon.toml", "/reports/a day", "2026-11-20T00", "2026-11-21T00", "clicks", "/work")
    lost, late = ClassCount(HOUR, "east", Class.LOST_CLEARED, 2), ClassCount(HOUR, "east", Class.PRIMARY_EXISTS, 1)
    report = "--config /etc/photon.toml --report '/reports/a day'"
    again = ("photon spark verify --config /etc/photon.toml --from 2026-11-20T00 --to 2026-11-21T00 "
             "--report '/reports/a day' --join clicks --work /work")  # fmt: skip
    accept = (
        "photon spark acknowledge '/reports/a day' --work /work --event EVENT --class CLASS --who NAME --why TEXT"
    )
    assert _commands(figures([lost, late], commands=commands)) == [
        "photon spark problems '/reports/a day'",
        f"photon spark recover {report} --dry-run", f"photon spark recover {report} --yes",
        f"photon spark recover {report} --also-unmatched --dry-run", accept, again,
    ]  # fmt: skip
    assert _commands(figures([late], acknowledged={Class.PRIMARY_EXISTS: 1}, commands=commands)) == []
    unjudged = figures([], unjudged=["east: 0 events"], commands=commands)
    assert _commands(unjudged) == ["photon status --config /etc/photon.toml", again]
    assert _commands(figures([ClassCount(HOUR, "east", Class.CORRECT, 2)], commands=commands)) == []


def _commands(shown: Figures) -> list[str]:
    text = page(shown)
    checked(text)
    return [unescape(each) for each in re.findall('<code class="run">(.*?)</code>', text)]


def test_nothing_there() -> None:
    text = page(figures([]))
    assert "0 events in the logs, nothing to judge" in text
    assert "exactly once" not in text


def test_what_is_not_judged_is_said_first() -> None:
    counts = [ClassCount(HOUR, "east", Class.CORRECT, 5), ClassCount(HOUR, "west", Class.PENDING, 5)]
    files = {"foreign": 1, "primary": 1, "output": 0}
    rows = [CoverageRow("east", 5, 9000, 5, 0, files), CoverageRow("west", 5, None, 0, 5, files)]
    shown = figures(counts, coverage=rows, unjudged=["5 of 10 events are pending"], unlooked=[EVIL])
    text = page(shown)
    checked(text)
    assert "<h1>Not judged: 5 of 10 events are pending</h1>" in text
    assert '"verdict not-judged"' in text
    assert "9,000" in text
    assert "not read: &lt;script" in text
    shown.unjudged = []
    assert shown.headline() == "5 events exactly once, 5 pending"
    counts.append(ClassCount(HOUR, "east", Class.TORN, 1))
    shown.unjudged = ["5 of 10 events are pending"]
    assert (shown.verdict(), shown.headline()) == ("problems", "1 problem"), "problems win"


def test_problems_stand_first_and_what_logs_say_is_escaped() -> None:
    example = ExampleFinding(Class.DUPLICATED, EVIL, None, EVIL, EVIL, EVIL, EVIL)
    counts = [
        ClassCount(HOUR, "east", Class.CORRECT, 10**6),
        ClassCount(HOUR, "east", Class.DUPLICATED, 1),
        ClassCount(None, None, Class.TORN, 2),
        ClassCount(HOUR + 1, "west", Class.PENDING, 4),
    ]
    inputs, ledger = [InputTotal("foreign", EVIL, 3, 5 << 20, None, 1 << 20)], [LedgerLine(HOUR, EVIL, {"read": 7})]
    more: dict[str, object] = {"inputs": inputs, "ledger": ledger, "reused": ["2026-11-20"], "notes": [EVIL]}
    text = page(figures(counts, examples=[example] * 9, **more))
    checked(text)
    assert "3 problems" in text
    assert "<script" not in text
    assert text.count("&lt;script&gt;") >= 9
    assert text.index("torn</td>") < text.index("correct</td>")
    assert "99.9997 %" in text
    assert "5.0 MiB" in text


def test_a_difference_of_the_ledger_that_nothing_explains_is_a_problem() -> None:
    shown = figures(
        [ClassCount(HOUR, "east", Class.CORRECT, 7)],
        ledger=[LedgerLine(HOUR, "east", {"read": 9})],
        differences=[
            LedgerDifference(HOUR, "east", "read", 9, 7, {"not read yet": 1}, 1),
            LedgerDifference(HOUR, "west", "joined", 8, 7, {"pending": 1}, 0),
        ],
    )
    assert shown.problems() == 1
    text = page(shown)
    checked(text)
    assert "1 problem<" in text
    assert "not read yet: 1" in text


def test_bars_are_hours_or_days() -> None:
    counts = [
        ClassCount(HOUR, "east", Class.CORRECT, 1),
        ClassCount(HOUR + 30, "east", Class.TORN, 2),
        ClassCount(None, "", Class.TORN, 1),
    ]
    width, made = bars(counts, HOUR, HOUR + 48, 96)
    assert (width, len(made)) == (1, 48)
    assert made[30][Class.TORN] == 2
    width, made = bars(counts, HOUR, HOUR + 24 * 365, 96)
    assert width == 24 * 4
    assert sum(column.total() for column in made) == 3


def test_acknowledged_findings_are_counted_apart() -> None:
    counts = [ClassCount(HOUR, "east", Class.CORRECT, 7), ClassCount(HOUR, "east", Class.DUPLICATED, 3)]
    some = figures(counts, acknowledged={Class.DUPLICATED: 2})
    assert some.problems() == 1
    told = verdict_of(some, "", 0)
    assert (told.exit, told.counts["duplicated"], told.acknowledged) == (3, 3, {"duplicated": 2})
    assert "1 new problem, 2 acknowledged<" in page(some)
    assert "(2 acknowledged)" in page(some)
    all_ = figures(counts, acknowledged={Class.DUPLICATED: 3})
    assert (verdict_of(all_, "", 0).exit, verdict_of(all_, "", 0).verdict) == (0, "right")
    assert "No new problem, 3 acknowledged" in page(all_)
    assert "Every event exactly once" not in page(all_)


def test_causes_stand_before_findings_with_their_commands() -> None:
    gone = Cause(kind=CauseKind.FILE_GONE, datacentre="west", what="joined/w.jsonl.gz", events=761,
                 say=f"file {EVIL} is gone: 761 events", command="photon spark recover --dry-run")  # fmt: skip
    copy = Cause(kind=CauseKind.FILE_UNNAMED, datacentre="west", what="x", events=0, say="unnamed", command="mv x y",
                 alone=True)  # fmt: skip
    shown = figures([ClassCount(HOUR, "west", Class.LOST_CLEARED, 761)], causes=[gone, copy])
    assert shown.problems() == 762, "a copy has no findings of its own"
    text = page(shown)
    checked(text)
    assert EVIL not in text
    assert (
        text.index("<h2>Causes") < text.index('<code class="run">photon spark recover') < text.index("<h2>Findings")
    )
    right = figures([ClassCount(HOUR, "west", Class.CORRECT, 5)], causes=[copy])
    assert (right.problems(), "Every event exactly once" in page(right)) == (1, False)
