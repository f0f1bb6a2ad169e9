"""Keys, ids and times that are a part of a field: alike one by one and in columns, in every format."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import AdapterError, BadRecord, ForeignHeader, Joined, LogFile
from photon.adapters.formats.part_rules import KeyPart
from photon.adapters.shape import shape_from_table
from photon.adapters.shaping import Shaper
from tests.unit.refusals import one_line

FILE = LogFile("a.log")
CLICK = {"field": "url", "pattern": "[?&]gclid=([^&#]+)"}
OWN = {"field": "url", "pattern": "^/[0-9]+"}
TIME = {"field": "url", "pattern": "at=([0-9]+)", "unit": "s"}

FORMATS: list[tuple[dict[str, Any], LogFile, bytes]] = [
    ({"format": "jsonl"}, FILE, b'{"url":"%b","n":1}'),
    ({"format": "csv"}, LogFile("a.csv", b"n,url"), b"1,%b"),
    ({"format": "csv", "columns": ["n", "url"]}, FILE, b'1,"%b"'),
    ({"format": "tsv"}, LogFile("a.tsv", b"n\turl"), b"1\t%b"),
    ({"format": "logfmt"}, FILE, b'n=1 url="%b"'),
    ({"format": "regex", "pattern": r"GET (?P<url>\S+) (?P<status>\S+)"}, FILE, b"GET %b 200"),
    ({"format": "zeek"}, LogFile("a.log", b"#separator \\x09\n#fields\tn\turl"), b"1\t%b"),
    ({"format": "zeek-json"}, FILE, b'{"n":1,"url":"%b"}'),
    ({"format": "jsonl", "framing": "cri"}, FILE, b'2024-03-01T10:00:00Z stdout {"url":"%b"}'),
]


def adapter(key: Any, **side: Any) -> ConfiguredAdapter:
    side = side or {"format": "jsonl"}
    foreign = {**side, "key": key, "id": OWN, "time": TIME}
    return ConfiguredAdapter({"primary": {**side, "key": key}, "foreign": foreign, "where": "join.x"})


@pytest.mark.parametrize(("side", "file", "line"), FORMATS)
def test_every_format_finds_key_id_and_time_in_one_field(side: dict[str, Any], file: LogFile, line: bytes) -> None:
    it = adapter(CLICK, **side)
    good, bad = line % b"/7?at=5&gclid=Ab&x", line % b"/7?at=5"
    header = ForeignHeader(b"Ab", 5 * 10**9, b"/7")
    assert it.primary_key(good, file) == b"Ab"
    assert it.foreign_header(good, file) == header
    for key_or_none in (it.primary_keys_of, lambda records, at: it.primary_keys(b"\n".join([*records, b""]), at)):
        assert key_or_none([good, bad, good], file) == [b"Ab", None, b"Ab"]
    headers = it.header_columns([good, bad, line % b"x?at=5&gclid=Ab", line % b"/7?gclid=Ab"], file)
    assert headers.rows()[0] == header
    assert [headers.others[row].reason for row in (1, 2, 3)] == [
        "key field 'url' is '/7?at=5', in which the part that is named is not found",
        "id field 'url' is 'x?at=5&gclid=Ab', in which the part that is named is not found",
        "time field 'url' = '/7?gclid=Ab' has no match of its pattern",
    ]


TRACE = b"4bf92f3577b34da6a3ce929d0e0e4736"
PARTS = [
    ("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", b"4bf92f3577b34da6a3ce929d0e0e4736"),
    (
        "traceparent",
        b"cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-later",
        b"4bf92f3577b34da6a3ce929d0e0e4736",
    ),
    ("traceparent", b"00-00000000000000000000000000000000-00f067aa0ba902b7-01", None),
    ("traceparent", b"4bf92f3577b34da6a3ce929d0e0e4736", None),
    ("x-amzn-trace-id", b"Root=1-5833-23a8", b"1-5833-23a8"),
    ("x-amzn-trace-id", b"Self=1-67-12;Root=1-5833-23a8;Sampled=1", b"1-5833-23a8"),
    ("x-amzn-trace-id", b"Self=1-67-12", None),
    ("?q", b"https://a.example/s?x=1&q=two+words%2F%C3%A9#q=3", "two words/é".encode()),
    ("?q", b"GET /s?q=1&q=2 HTTP/1.1", b"1"),
    ("?q", b"q=1&x=2", b"1"),
    ("?q", b"https://a.example/?xq=1#?q=2", None),
    ("?q", b"/s?q=&x=1", None),
    ("?q.x", b"/s?qax=1&q.x=2", b"2"),
    (".a.b", b' {"a":{"b":12345678901234567890123}}', b"12345678901234567890123"),
    (".a.b", b'{"a":{"b":"x"}}', b"x"),
    (".a.b", b'{"a":"{\\"b\\":7}"}', b"7"),
    (".a.b", b'{"a":{"b":1.5}}', None),
    (".a", b"[1]", None),
]


@pytest.mark.parametrize(("part", "text", "found"), PARTS)
def test_named_parts(part: str, text: bytes, found: bytes | None) -> None:
    find = KeyPart(field="f", part=part).normaliser()
    if found is None:
        with pytest.raises(BadRecord, match=r"^key field 'f'"):
            find(text)
    else:
        assert find(text) == found


UUIDS = ["0F8FAD5B-D9CB-469F-A165-70867728950E", "{0f8fad5b-d9cb-469f-a165-70867728950e}",
         "urn:uuid:0f8fad5b-d9cb-469f-a165-70867728950e", "0f8fad5bd9cb469fa16570867728950e",
         "(0F8FAD5B-D9CB-469F-A165-70867728950E)"]  # fmt: skip


def test_uuids_are_equal_by_their_digits() -> None:
    it = adapter({"field": "u", "as": "uuid"})
    records = [orjson.dumps({"u": each}) for each in UUIDS]
    assert set(it.primary_keys_of(records, FILE)) == {b"0f8fad5b-d9cb-469f-a165-70867728950e"}
    with pytest.raises(BadRecord, match="key field 'u' is '0f8f', not a UUID"):
        it.primary_key(b'{"u":"0f8f"}', FILE)


def test_a_part_is_found_before_it_is_normalised() -> None:
    key = {"field": "u", "pattern": "id=([^;]*)", "trim": True, "as": "number"}
    assert adapter(key).primary_keys_of([b'{"u":"id= 007.0 ;"}', b'{"u":"id=x"}'], FILE) == [b"7", None]


def test_an_absent_mark_may_be_all_that_is_left() -> None:
    it = adapter({"field": "u", "pattern": "id=(.*)", "trim": True}, format="jsonl", absent="-")
    assert it.primary_keys_of([b'{"u":"id= - "}', b'{"u":"id="}', b'{"u":"id=x"}'], FILE) == [None, None, b"x"]
    with pytest.raises(BadRecord, match="is absent"):
        it.primary_key(b'{"u":"id=-"}', FILE)


@given(st.text(), st.dictionaries(st.sampled_from(["id", "x.y"]), st.text() | st.integers() | st.none()))
def test_a_path_goes_through_json_in_text(before: str, request: dict[str, Any]) -> None:
    it = adapter("log.request.id")
    whole = json.dumps({"before": before, "log": {"request": request}}).encode()
    text = json.dumps({"before": before, "log": json.dumps({"request": request}) + "\n"}).encode()
    twice = json.dumps({"log": json.dumps({"request": json.dumps(request)})}).encode()
    found = it.primary_keys_of([whole, text, twice], FILE)
    assert found == it.primary_keys(b"\n".join([whole, text, twice, b""]), FILE)
    assert found[0] == found[1] == found[2]
    assert (found[0] is None) == (request.get("id") in (None, ""))


def test_text_on_a_path_that_is_no_json_is_a_missing_field() -> None:
    it = adapter("log.id")
    for text in ("plain", "{", '{"id":1', "[1]", '"id"', "{} {}"):
        with pytest.raises(BadRecord, match=r"key field 'log\.id' is missing"):
            it.primary_key(orjson.dumps({"log": text}), FILE)
    assert it.primary_key(b'{"log":"{\\"id\\":123456789012345678901234}"}', FILE) == b"123456789012345678901234"


def test_a_shape_goes_through_json_in_text_and_hides_what_is_there() -> None:
    shape = shape_from_table(
        {
            "filter": [{"field": "foreign.log.level", "equals": "debug"}],
            "redact": {"foreign.log.user.mail": "mask"},
            "derive": [{"name": "foreign.id", "from": "foreign.log.user.id"}],
        },
        "join.x.shape",
    )
    foreign = orjson.dumps({"log": '{"level":"info","user":{"id":7,"mail":"ann@example.com"}}\n', "k": 1})
    found = Shaper(shape, "join.x.shape").shaped(Joined(foreign, b"{}"))
    assert isinstance(found, Joined)
    made = orjson.loads(found.foreign or b"")
    assert (made["id"], made["k"]) == (7, 1)
    assert orjson.loads(made["log"]) == {"level": "info", "user": {"id": 7, "mail": "****.com"}}


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ({"field": "u", "pattern": "("}, "pattern '('"),
        ({"field": "u", "pattern": "a", "part": "?q"}, "write one of the two"),
        (
            {"field": "u", "part": "q"},
            "write ?NAME (of a URL's query), .PATH (of JSON), traceparent or x-amzn-trace-id",
        ),
        ({"field": "u", "part": "?"}, "write ?NAME"),
        ({"field": "u", "as": "uuid", "case": "fold"}, "compared as a uuid"),
        ([{"field": "u", "part": "?a"}, {"field": "u", "part": "?a"}], "stands there twice"),
    ],
)
def test_what_cannot_be_a_part_is_refused(key: Any, said: str) -> None:
    with one_line(AdapterError, said):
        adapter(key)


def test_two_parts_of_one_field_are_a_key() -> None:
    it = adapter([{"field": "u", "part": "?a"}, {"field": "u", "part": "?b"}])
    assert it.primary_key(b'{"u":"/?b=2&a=1"}', FILE) == b"1|2"


def test_parts_are_in_the_rule() -> None:
    keys: list[Any] = ["u", {"field": "u"}, {"field": "u", "part": "?a"}, {"field": "u", "pattern": "a"}]
    rules = [adapter(key).rule() for key in keys]
    assert rules[0] == rules[1]
    assert len(set(rules)) == 3
