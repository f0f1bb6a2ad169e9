"""The story of one event is told from any available evidence, and its gaps are named."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from photon.cli import explain
from photon.cli.tables import show
from photon.fleet.explain.evidence import Evidence, InLog, Record, Searched, Waiting, decode, encode
from photon.fleet.explain.question import question_of
from photon.fleet.explain.story import Heard, Story, tell
from photon.idregistry.api import Answer, Kind, token_of
from photon.idregistry.core.scans import Traced

QUESTION = question_of("click-1")
TOKEN = token_of(3, 9)
OWNED = Traced(Answer.PRESENT, 2, False, TOKEN, Kind.JOINED, 0, "east-1", "east", None, "r1", 40)
ABSENT = Traced(Answer.ABSENT, 2)


def record(**changes: Any) -> Record:
    said: dict[str, Any] = {
        "kind": "joined", "slot": "east-1", "file": "joined/east-1-000001.jsonl", "offset": 70, "length": 30,
        "durable": True, "cleared": False, "event_id": b"click-1", "key": b"q1", "event_time_ns": 10**18,
        "source_file": "c.log", "source_offset": 5, "primary_file": "q.log", "primary_offset": 6,
        "at": "2026-11-22T00:00:00.000000Z", "token": f"{TOKEN:016x}",
    }  # fmt: skip
    return Record(**{**said, **changes})


def waiting(**changes: Any) -> Waiting:
    said: dict[str, Any] = {
        "where": "retry store", "state": "waits for its next try", "event_id": b"click-1", "key": b"q1",
        "event_time_ns": 10**18, "source_file": "c.log", "source_offset": 5, "first_read_ns": 2 * 10**18,
        "attempts": 3, "last": "its primary event was not there yet", "row": 8,
    }  # fmt: skip
    return Waiting(**{**said, **changes})


def told(*evidence: Evidence, traced: Traced | None = None, registry: str = "", missing: str = "") -> Story:
    names = ["east", "west"]
    heard = [
        Heard(name, each, (missing,) if missing and name == "west" else ())
        for name, each in zip(names, evidence, strict=False)
    ]
    return tell(QUESTION, heard, traced, registry)


def test_joined() -> None:
    story = told(Evidence(records=[record()]), Evidence(), traced=OWNED)
    assert (story.verdict, story.complete, story.contradictions) == ("joined", True, [])
    assert [step.step for step in story.steps] == ["read", "registered", "written", "primary"]
    said = story.as_json()
    assert said["steps"][0] | {"file": "c.log", "offset": 5, "datacentre": "east"} == said["steps"][0]
    registered, written, primary = said["steps"][1:]
    assert (registered["slot"], registered["incarnation"], registered["batch"]) == ("east-1", 3, 9)
    assert (registered["shard"], registered["cleared"]) == (2, False)
    assert (written["file"], written["offset"]) == ("joined/east-1-000001.jsonl", 70)
    assert (written["durable"], written["cleared"], written["incarnation"]) == (True, False, 3)
    assert (primary["file"], primary["offset"]) == ("q.log", 6)
    assert (said["event_id"], said["key"], said["event_time"]) == ("click-1", "q1", "2001-09-09T01:46:40.000000Z")


@pytest.mark.parametrize("kind", ["unmatched", "filtered", "rejected"])
def test_not_joined_says_why(kind: str) -> None:
    story = told(Evidence(records=[record(kind=kind, primary_file=None, primary_offset=None, reason="so it was")]))
    assert story.verdict == kind
    assert "so it was" in story.summary


def test_a_late_claim_of_one_is_no_verdict_where_the_other_has_joined() -> None:
    late = record(kind="late", slot="dispatcher", token=None, cleared=None, reason="too old")
    assert told(Evidence(records=[late]), traced=ABSENT).verdict == "late"
    both = told(Evidence(records=[late]), Evidence(records=[record()]), traced=OWNED)
    assert both.verdict == "joined"
    assert {step.datacentre for step in both.steps if step.step == "written"} == {"east", "west"}
    assert not both.contradictions


def test_pending_with_tries_and_reason() -> None:
    story = told(Evidence(waiting=[waiting(next_try_ns=2 * 10**18 + 10**9)]), traced=ABSENT)
    assert story.verdict == "pending"
    assert "3 tries" in story.summary
    assert "primary event was not there" in story.summary
    step = next(step for step in story.as_json()["steps"] if step["step"] == "waiting")
    assert (step["attempts"], step["where"], step["next_try"]) == (3, "retry store", "2033-05-18T03:33:21.000000Z")
    assert step["reason"] == "its primary event was not there yet"


def test_a_joiner_that_waits_for_the_registry() -> None:
    open_record = record(file="", offset=0, cleared=None, durable=True)
    story = told(Evidence(registering=[open_record]), Evidence(waiting=[waiting()]), traced=ABSENT)
    assert story.verdict == "pending"
    assert "east-1 of east writes it as joined" in story.summary
    step = next(step for step in story.as_json()["steps"] if step["step"] == "registering")
    assert (step["durable"], step["token"]) == (True, f"{TOKEN:016x}")
    assert not story.contradictions


def test_what_a_slot_that_is_down_has_in_its_redo_log() -> None:
    logged = record(file="", offset=0, cleared=None, redo=True)
    for traced, verdict, summary, step in (
        (OWNED, "joined", "in the redo log of east-1, whose joiner is down", "written first"),
        (ABSENT, "pending", "in the slot's redo log, whose joiner is down", "in the redo log"),
        (dataclasses.replace(OWNED, token=TOKEN + 1), "joined", "not in the outputs", "dropped then"),
    ):
        story = told(Evidence(registering=[logged]), traced=traced)
        assert (story.verdict, summary in story.summary) == (verdict, True), story.summary
        (said,) = [each for each in story.steps if each.step == "registering"]
        assert step in said.what
        assert said.facts["redo"]


def test_what_was_written_and_is_still_in_the_redo_log_is_told_as_written() -> None:
    story = told(Evidence(records=[record()], registering=[record(file="", redo=True)]), traced=OWNED)
    assert "registering" not in [each.step for each in story.steps]


def test_what_is_in_memory_and_in_the_retry_store_is_told_once() -> None:
    memory = waiting(where="memory", state="is on its way to a joiner", attempts=4)
    story = told(Evidence(waiting=[waiting(), memory]))
    assert [step.facts["where"] for step in story.steps if step.step == "waiting"] == ["memory"]


def test_registered_and_not_found() -> None:
    story = told(Evidence(), Evidence(), traced=OWNED, missing="joiner east-1: does not answer")
    assert story.verdict == "joined"
    assert "not in the outputs" in story.summary
    assert not story.complete
    assert story.missing == [{"where": "west", "why": "joiner east-1: does not answer"}]


@pytest.mark.parametrize(
    ("one", "traced", "verdict"),
    [
        (InLog(file="c.log", offset=50, read_to=50), ABSENT, "unread"),
        (InLog(file="c.log", offset=49, read_to=50), ABSENT, "read"),
        (InLog(file="c.log", offset=49, read_to=None), ABSENT, "unread"),
        (InLog(file="c.log", offset=49, read_to=50), Traced(Answer.BELOW_BOUNDARY, 2), "expired"),
        (InLog(file="c.log", offset=49, read_to=50, reason="no id"), None, "rejected"),
    ],
)
def test_from_the_logs_alone(one: InLog, traced: Traced | None, verdict: str) -> None:
    story = told(Evidence(in_logs=[one]), traced=traced)
    assert story.verdict == verdict
    assert (story.steps[0].step, story.steps[0].file, story.steps[0].offset) == ("logged", "c.log", one.offset)


def test_nobody_knows_it() -> None:
    searched = [Searched(what="output of east-1", files=3, bytes=99)]
    story = told(Evidence(searched=searched), traced=ABSENT)
    assert (story.verdict, story.complete) == ("unknown", True)
    assert story.searched == [{"datacentre": "east", "what": "output of east-1", "files": 3, "bytes": 99}]
    gap = told(Evidence(searched=[Searched(what="output of east-1", why="no time")]), registry="it is silent")
    assert "not everything could be searched" in gap.summary
    assert {each["where"] for each in gap.missing} == {"east", "registry"}


def test_reopened() -> None:
    given_up = Traced(Answer.REOPENED, 2, False, TOKEN, Kind.JOINED, 1, "east-1", "east")
    assert told(Evidence(), traced=given_up).verdict == "reopened"


def test_what_should_not_be_is_said() -> None:
    twice = told(Evidence(records=[record()]), Evidence(records=[record(slot="west-1", token=f"{TOKEN + 1:016x}")]))
    assert "written 2 times" in twice.contradictions[0]
    assert "does not know its id" in told(Evidence(records=[record()]), traced=ABSENT).contradictions[0]
    assert not told(Evidence(records=[record(durable=False)]), traced=ABSENT).contradictions
    other = told(Evidence(records=[record(token=f"{TOKEN + 1:016x}")]), traced=OWNED)
    assert "has token" in other.contradictions[0]


def test_stories_as_they_are_shown(golden: Callable[[str, str], None], capsys: pytest.CaptureFixture[str]) -> None:
    late = record(kind="late", slot="dispatcher", token=None, cleared=None, reason="too old")
    stories = {
        "joined": told(Evidence(records=[record()]), Evidence(), traced=OWNED),
        "late in one datacentre, joined in the other": told(Evidence(records=[late]), Evidence(records=[record()])),
        "pending": told(Evidence(waiting=[waiting(next_try_ns=2 * 10**18 + 10**9)]), traced=ABSENT),
        "registered, in the redo log of a slot that is down": told(
            Evidence(registering=[record(file="", offset=0, cleared=None, redo=True)]), traced=OWNED
        ),
        "in the log alone": told(Evidence(in_logs=[InLog(file="c.log", offset=50, read_to=50)]), traced=ABSENT),
        "unknown, and west does not answer": told(
            Evidence(searched=[Searched(what="output of east-1", files=3, bytes=99)]), Evidence(), traced=ABSENT,
            missing="joiner west-1: does not answer",
        ),
        "twice": told(Evidence(records=[record()]), Evidence(records=[record(slot="west-1", token="1")])),
    }  # fmt: skip
    for name, story in stories.items():
        print(f"--- {name}")
        show(*explain.shown(story.as_json()))
    golden("stories.txt", capsys.readouterr().out)


def test_evidence_travels() -> None:
    evidence = Evidence(
        records=[record()], waiting=[waiting(event_id=b"\xff\0")], in_logs=[InLog(file="c", offset=1, read_to=None)],
        searched=[Searched(what="x")], traced=OWNED, registry_problem="p",
    )  # fmt: skip
    assert decode(encode(evidence)) == evidence
    with pytest.raises(ValueError, match="records"):
        decode(b'{"records":7}')
