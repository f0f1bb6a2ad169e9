"""Redacted fields stay out of the logs of events that were not joined, including the reasons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import Adapter, LogFile
from photon.adapters.envelope import Envelope
from photon.adapters.shaping import shaped_adapter
from photon.adapters.shown_records import shown, shown_record
from tests.lines import event_of, undone_lines

SECRET = "ada@example.org"
REDACT = {"foreign.mail": "drop", "foreign.user.card": "mask", "primary.name": "drop"}
JSONL = {
    "foreign": {"format": "jsonl", "key": "q", "id": "id", "time": {"field": "t", "unit": "s"}},
    "primary": {"format": "jsonl", "key": "q"},
}
CSV = {
    "foreign": {"format": "csv", "key": "q", "id": "id", "time": {"field": "t", "unit": "s"}},
    "primary": {"format": "csv", "key": "q"},
}
FILE = LogFile("a.log", b"id,q,t,mail")


def redacting(options: dict[str, Any] = JSONL, redact: dict[str, str] = REDACT) -> Adapter:
    return shaped_adapter(ConfiguredAdapter(options), {"redact": redact}, "shape", Path())


RECORD = orjson.dumps(
    {"id": "c1", "q": "q1", "t": 1, "mail": SECRET, "user": {"card": "4111111111111234"}, "n": 12345678901234567890}
)


def test_an_event_that_is_not_joined_shows_its_record_without_what_is_redacted() -> None:
    envelope = Envelope(adapter=redacting())
    lines = undone_lines(envelope, [event_of(record=RECORD)], ["no primary event has this key"], token=1, at_ns=0)
    line = orjson.loads(lines[0])
    assert orjson.loads(line["record"]) == {
        "id": "c1", "q": "q1", "t": 1, "user": {"card": "****1234"}, "n": 12345678901234567890,
    }  # fmt: skip
    assert (line["event_id"], line["source"]) == ("c1", {"file": "a/clicks.log", "offset": 42})


def test_without_a_redaction_of_the_foreign_side_a_record_stands_as_it_is() -> None:
    for adapter in (None, redacting(redact={"primary.name": "drop"}), redacting(redact={})):
        lines = undone_lines(Envelope(adapter=adapter), [event_of(record=RECORD)], ["why"], token=1, at_ns=0)
        assert orjson.loads(lines[0])["record"].encode() == RECORD


@pytest.mark.parametrize("record", [RECORD[:-1], b'["ada@example.org"]', b"\xff" + RECORD, b"ada@example.org"])
def test_of_a_record_that_cannot_be_taken_apart_place_and_reason_are_left(record: bytes) -> None:
    line = Envelope(adapter=redacting()).unreadable(record, FILE, 9, f"is no number: '{SECRET}'", at_ns=0)
    assert orjson.loads(line) == {
        "reason": "is no number: '****'",
        "record": None,
        "source": {"file": "a.log", "offset": 9},
        "decided_at": "1970-01-01T00:00:00.000000Z",
    }


def test_a_format_that_is_no_json_shows_its_fields() -> None:
    adapter = redacting(CSV)
    assert shown_record(adapter, b"c1,q1,soon,ada@example.org", FILE) == b'{"id":"c1","q":"q1","t":"soon"}'
    assert shown_record(adapter, b"c1,q1,1,x,ada@example.org", FILE) is None


def test_a_reason_keeps_what_it_quotes_of_what_is_left() -> None:
    reason = f"time field 't' = \"soon\" is no date, nor is '{SECRET}' (it's 'nothing' that stands there)"
    ((_, said),) = shown(redacting(CSV), [(b"c1,q1,soon,ada@example.org", FILE, reason)])
    assert said == "time field 't' = \"soon\" is no date, nor is '****' (it's 'nothing' that stands there)"


def test_a_quotation_is_known_through_its_escapes_and_where_it_was_cut() -> None:
    record = b"c1,q1,1,a\\b\xc3\xa4"
    for text in ("a\\b\xe4".encode("unicode_escape").decode(), "a…", repr("a\\b")[1:-1]):
        ((_, said),) = shown(redacting(CSV), [(record, FILE, f"the adapter raised ValueError: '{text}' (a.py:3)")])
        assert said == "the adapter raised ValueError: '****' (a.py:3)"


def test_every_field_that_a_path_may_mean_is_redacted() -> None:
    record = b'{"a.b.c":"S","a":{"b.c":"S","b":{"c":"S","d":1}},"a.b":{"c":"S"},"d":2}'
    found = shown_record(redacting(redact={"foreign.a.b.c": "drop"}), record, FILE)
    assert found == b'{"a":{"b":{"d":1}},"a.b":{},"d":2}'


@pytest.mark.parametrize("how", ["raise ValueError(record)", "while True: pass", "return 7"])
def test_an_adapter_that_fails_shows_nothing(how: str) -> None:
    space: dict[str, Any] = {"ConfiguredAdapter": ConfiguredAdapter}
    exec(f"class Fails(ConfiguredAdapter):\n  def shown_record(self, record, file):\n    {how}\n", space)
    adapter = space["Fails"](JSONL)
    adapter.time_limit_s = 0.1
    rows = [(RECORD, FILE, "why"), (b"{}", FILE, "why")]
    assert shown(adapter, rows) == [(None, "why"), (None, "why")]


@pytest.mark.parametrize(
    ("reason", "left"),
    [
        ("the adapter raised ValueError: card 4111111111111234 is no number (/a/b.py:12)",
         "the adapter raised ValueError: card **** is no number (/a/b.py:12)"),
        (f"cannot send to<{SECRET}>", "cannot send to<****>"),
        ("q1 at 1 has no user", "q1 at 1 has no user"),
    ],
)  # fmt: skip
def test_a_reason_tells_no_value_that_is_redacted(reason: str, left: str) -> None:
    ((_, said),) = shown(redacting(), [(RECORD, FILE, reason)])
    assert said == left
