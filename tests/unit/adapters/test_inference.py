"""Guessing the configuration of easy logs, and not guessing that of others."""

from __future__ import annotations

import gzip
import json
import os
import tomllib
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import ForeignHeader, LogFile
from photon.adapters.inference import Inferred, Sample, Told, Unclear, describe, infer, one_log, toml_of
from photon.adapters.inference.lines import pattern_of
from photon.adapters.inference.moments import odd_times
from photon.adapters.side import SideConfig, TimeConfig, time_reader
from photon.config.loader import convert

QUERIES: Sample = {
    "queries-1.log": [
        b'{"query_id":"10.0.0.1:7:158820604800000%d","time_us":158820604800000%d,"user":"u%d","page":1}'
        % (i, i, i % 3)
        for i in range(9)
    ]
}
CLICKS: Sample = {
    "clicks-1.log": [
        b'{"click_id":"10.0.0.2:9:158820604900000%d","query_id":"10.0.0.1:7:158820604800000%d","time_us":%d}'
        % (i, i // 2, 1_588_206_049_000_000 + i)
        for i in range(9)
    ]
}


def inferred(primary: Sample, foreign: Sample) -> Inferred:
    found = infer(primary, foreign)
    assert isinstance(found, Inferred), found
    # A guess is a configuration: it can be used, and written down.
    adapter = ConfiguredAdapter.from_sides(found.primary, found.foreign)
    ((_, tables),) = tomllib.loads(found.toml)["join"].items()
    assert ConfiguredAdapter(tables).rule() == adapter.rule()
    return found


def unclear(primary: Sample, foreign: Sample) -> str:
    found = infer(primary, foreign)
    assert isinstance(found, Unclear), found
    assert "\n" not in found.problem + found.todo
    sides = next(iter(convert(tomllib.loads(found.example), "example").join.values()))
    assert sides.primary is not None
    assert sides.foreign is not None
    return found.problem


def test_queries_and_clicks() -> None:
    found = inferred(QUERIES, CLICKS)
    assert found.primary == SideConfig(format="jsonl", key="query_id")
    assert found.foreign == SideConfig(
        format="jsonl", key="query_id", id="click_id", time=TimeConfig(field="time_us", unit="us")
    )
    assert any("100% of the sampled foreign values" in line for line in found.explanation)


def test_resent_and_malformed_lines_do_not_disturb() -> None:
    clicks = list(CLICKS["clicks-1.log"])
    noisy = [*clicks, clicks[0], clicks[3], b"", b"{", b"\xff\xfe"]
    assert inferred(QUERIES, {"clicks-1.log": noisy}).foreign == inferred(QUERIES, CLICKS).foreign


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1588206048.592985", "1588206049"], TimeConfig(field="ts", unit="s")),
        (["1588206048592", "1588206049000"], TimeConfig(field="ts", unit="ms")),
        (["1588206048592985123"], TimeConfig(field="ts", unit="ns")),
        (['"2018-02-26 19:58:54"'], TimeConfig(field="ts", format="iso8601")),
        (['"2018-02-26T19:58:54.5Z"'], TimeConfig(field="ts", format="iso8601")),
        (['"10/Oct/2000:13:55:36 -0700"'], TimeConfig(field="ts", format="%d/%b/%Y:%H:%M:%S %z")),
    ],
)
def test_units_and_formats_of_times(values: list[str], expected: TimeConfig) -> None:
    foreign = {"f.log": [f'{{"query_id":"{i}","ts":{value}}}'.encode() for i, value in enumerate(values)]}
    primary = {"p.log": [b'{"query_id":"%d"}' % i for i in range(5)]}
    assert inferred(primary, foreign).foreign.time == expected


@pytest.mark.parametrize(
    ("foreign", "problem"),
    [
        ([], "hold no records yet"),
        ([b"10.0.0.1 - - GET /", b"x"], "are plain text without a common layout that has a time"),
        ([b"34200.1,1,k", b"34200.2,1,l"], "may be chance"),
        ([b"k,l", b"m,n"], "hold CSV with ',' and 2 columns, and it is unclear whether the first line"),
        ([b'{"query_id":"1","ts":34200.5}'], "ts may be the event time, but have no known unit"),
        ([b'{"query_id":"1","a_at":"2018-02-26","b_at":"2018-02-27"}'], "the event time may be a_at, b_at"),
        ([b'{"query":"1","ts":1588206048}'], "may be chance"),
        ([b'{"user":"u1","ts":1588206048}'], "no foreign field has a value in common with a field that is unique"),
        ([b'{"query_id":"1","twin_id":"1","ts":1588206048}'], "the key may be 'query_id' or 'twin_id'"),
        ([b'{"word":"z","ts":1588206048}'], "no foreign field has a value in common with a field that is unique"),
        ([b'{"id":"1","ts":1588206048}'], "may be chance"),
    ],
)
def test_what_is_not_guessed(foreign: list[bytes], problem: str) -> None:
    record = b'{"id":%d,"query_id":"%d","twin_id":"%d","word":"w%d","user":"u%d"}'
    assert problem in unclear({"p.log": [record % (i, i, i, i, i % 2) for i in range(5)]}, {"f.log": foreign})


def test_an_id_is_only_taken_when_it_is_named_as_the_events_own() -> None:
    primary = {"p.csv": [b"order_id,customer", *[b"o%d,c%d" % (i, i % 3) for i in range(9)]]}
    rows = [b"o%d,s%d,2018-02-2%d" % (i // 2, 7**i, i) for i in range(9)]
    found = inferred(primary, {"deals.csv": [b"order_id,seller_id,won_at", *rows]})
    assert found.foreign.id is None
    assert (
        "No event id found: every line counts as its own event, so a repeated line is joined twice (0 repeated lines "
        "in the sample). If seller_id identifies an event, give --id seller_id"
    ) in found.explanation
    found = inferred(primary, {"deals.csv": [b"order_id,deal_id,won_at", *rows]})
    assert found.foreign.id == "deal_id"
    found = inferred(primary, {"x.csv": [b"order_id,event_id,won_at", *rows, b"o1,s1,2018-02-21"]})
    assert found.foreign.id is None  # not unique


@pytest.mark.parametrize("odd", ["\x7f", "\x00\x1f", "\x85", "\u2028", 'a"b', r"\d'", "\\\x7f"])
def test_what_toml_refuses_is_escaped(odd: str) -> None:
    side = SideConfig(format="csv", key=odd, columns=("a", odd), time=TimeConfig(field=odd, unit="s"))
    (tables,) = tomllib.loads(toml_of(side, side))["join"].values()
    assert tables["primary"] == tables["foreign"] == {
        "format": "csv", "key": odd, "columns": ["a", odd], "time": {"field": odd, "unit": "s"},
    }  # fmt: skip


def test_delimiters() -> None:
    primary = {"p.tsv": [b"order_id\tx", b"o1\t1", b"o2\t1"]}
    foreign = {"f.csv": [b'order_id;"at"', b"o1;2018-02-20", b'"o2";2018-02-20']}
    found = inferred(primary, foreign)
    assert (found.primary.format, found.foreign.format, found.foreign.delimiter) == ("tsv", "csv", ";")


def test_keys_that_do_not_meet_are_not_told_by_their_name_alone() -> None:
    primary = {"p.log": [b'{"order_id":"a%d","w":"w%d"}' % (i, i) for i in range(5)]}
    foreign = {"f.log": [b'{"order_id":"b%d","w":"v%d","ts":1588206048}' % (i, i) for i in range(5)]}
    assert "no foreign field has a value in common" in unclear(primary, foreign)
    found = infer(primary, foreign)
    assert isinstance(found, Unclear)
    assert tomllib.loads(found.example)["join"]["join"]["primary"] == {"format": "jsonl", "key": "order_id"}


def sample_of(folder: Path, records: int = 200) -> Sample:
    paths = sorted(folder.iterdir())
    each = max(2, records // len(paths))
    sample = {}
    for path in paths:
        with gzip.open(path) as file:
            sample[path.name] = [line.rstrip(b"\r\n") for _, line in zip(range(each), file, strict=False)]
    return sample


def data_set(name: str) -> Path:
    root = os.environ.get("PHOTON_TEST_DATA")
    if not root:
        pytest.skip("PHOTON_TEST_DATA is not set")
    return Path(root) / name


def test_zeek_of_real_logs() -> None:
    root = data_set("net_zeek_apt29")
    found = inferred(sample_of(root / "primary"), sample_of(root / "foreign"))
    assert found.primary == SideConfig(format="jsonl", key="uid")
    assert found.foreign == SideConfig(format="jsonl", key="uid", time=TimeConfig(field="ts", unit="s"))


def test_olist() -> None:
    root = data_set("ads_olist_funnel")
    foreign = sample_of(root / "foreign")
    found = inferred(sample_of(root / "primary", 10_000), foreign)
    assert found.primary == SideConfig(format="csv", key="mql_id")
    time = TimeConfig(field="won_date", format="iso8601")
    assert found.foreign == SideConfig(format="csv", key="mql_id", time=time)
    adapter = ConfiguredAdapter.from_sides(found.primary, found.foreign)
    ((name, (header, *records)),) = foreign.items()
    assert all(
        isinstance(each, ForeignHeader) for each in adapter.header_columns(records, LogFile(name, header)).rows()
    )


def test_lobster_says_no_day_and_is_not_guessed() -> None:
    root = data_set("ob_lobster_aapl")
    primary, foreign = sample_of(root / "primary", 10_000), sample_of(root / "foreign")
    assert "c1 counts the seconds of an unknown day" in unclear(primary, foreign)
    found = infer(primary, foreign)
    assert isinstance(found, Unclear)
    ((_, sides),) = tomllib.loads(found.example)["join"].items()
    assert (sides["primary"]["key"], sides["foreign"]["key"]) == ("c3", "c3")
    assert sides["primary"]["columns"] == [f"c{n}" for n in range(1, 7)]


def test_logfmt() -> None:
    primary = {"q.log": [b'level=info query=q%d msg="asked by u%d"' % (i, i % 3) for i in range(9)]}
    clicks = [b"ts=2024-03-01T10:00:0%dZ click_id=c%d query=q%d debug" % (i, 7**i, i // 2) for i in range(9)]
    found = inferred(primary, {"click.log": clicks})
    assert found.primary == SideConfig(format="logfmt", key="query")
    time = TimeConfig(field="ts", format="iso8601")
    assert found.foreign == SideConfig(format="logfmt", key="query", id="click_id", time=time)


def test_the_example_for_lines_of_any_shape_reads_the_lines_beside_it() -> None:
    lines = {"a.log": [b"Mar  1 host%d kernel: something happened a=%d" % (i, i) for i in range(9)]}
    found = infer(lines, lines)
    assert isinstance(found, Unclear)
    assert "without a common layout" in found.problem
    request, error = (line.partition("# ")[2].encode() for line in found.example.splitlines() if line[:1] == "[")
    adapter = ConfiguredAdapter(tomllib.loads(found.example)["join"]["errors"])
    assert adapter.primary_key(request, LogFile("a")) == b"7f3a"
    assert adapter.foreign_header(error, LogFile("a")) == ForeignHeader(b"7f3a", 1_795_161_600_456_000_000, b"E42")


def test_zeek_with_its_headers() -> None:
    header = [b"#separator \\x09", b"#set_separator\t,", b"#unset_field\t-", b"#path\tconn"]
    conn = [*header, b"#fields\tts\tuid\tservice", b"#types\ttime\tstring\tstring"]
    conn += [b"158820519%d.899709\tC%d\tdns" % (i, i) for i in range(9)]
    dns = [*header, b"#fields\tts\tuid\tquery", b"#types\ttime\tstring\tstring"]
    dns += [b"158820519%d.899709\tC%d\t-" % (i, i // 2) for i in range(5)]
    dns += [*header, b"#fields\tuid\tts\tquery", *(b"C%d\t158820519%d.8\tx" % (i, i) for i in range(5, 9))]
    found = inferred({"conn.log": conn}, {"dns.log": dns})
    assert found.primary == SideConfig(format="zeek", key="uid")
    assert found.foreign == SideConfig(format="zeek", key="uid", time=TimeConfig(field="ts", format="zeek"))


ACCESS = [
    b'10.0.0.%d - - [20/Nov/2026:09:00:%02d +0000] "GET /%s HTTP/1.1" 200 %d "-" "curl/8" rid=%032x'
    % (i % 3, i, b"abc"[: i % 4], i, 7**i << 40)
    for i in range(30)
]
APP = [
    b'2026-11-20 09:00:%02d,456 ERROR [w-%d] req=%032x msg="it %d" - failed%s' % (i, i % 2, 7**i << 40, i, b" x" * i)
    for i in range(30)
]


def test_lines_of_one_shape() -> None:
    found = inferred({"access.log": ACCESS}, {"app.log": APP})
    assert (found.primary.format, found.primary.key) == ("regex", "rid")
    assert (found.foreign.format, found.foreign.key) == ("regex", "req")
    assert found.foreign.time == TimeConfig(field="time", format="iso8601")
    adapter = ConfiguredAdapter.from_sides(found.primary, found.foreign)
    payload = adapter.primary_payload(ACCESS[5], LogFile("a"))
    assert payload is not None
    assert orjson.loads(payload) | {"rid": ""} == {
        "client": "10.0.0.2", "ident": "-", "user": "-", "time": "20/Nov/2026:09:00:05 +0000",
        "request": "GET /a HTTP/1.1", "status": "200", "bytes": "5", "referrer": "-", "agent": "curl/8", "rid": "",
    }  # fmt: skip
    event = adapter.foreign_payload(APP[3], LogFile("a"))
    assert event is not None
    assert orjson.loads(event) | {"req": ""} == {
        "time": "2026-11-20 09:00:03,456", "f2": "ERROR", "f3": "w-1", "req": "", "msg": "it 3",
        "rest": "- failed x x x",
    }  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "GET /{i} done",  # no time
        "{i} apples",
        "2026-11-20 09:00:00 a-b={i} a.b={i}",  # two names that are one as groups
    ],
)
def test_lines_that_no_pattern_is_made_for(line: str) -> None:
    assert pattern_of([line.format(i=i).encode() for i in range(20)]) is None


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"event": {"id": "%d"}}, "event.id"),
        ({"meta": {"event_id": "%d"}}, "meta.event_id"),
        ({"user": {"id": "%d"}}, None),
        ({"order": {"uuid": "%d"}}, None),
        ({"payload": {"b_id": "%d"}}, None),
        ({"payload": {"payment_id": "%d"}}, "payload.payment_id"),
        ({"payload": {"id": "%d"}}, "payload.id"),
    ],
)
def test_a_nested_id_is_the_events_own_only_where_it_says_so(event: dict[str, object], expected: str | None) -> None:
    lines = [orjson.dumps({"ref": f"{7**i << 40:032x}", "ts": 1588206048 + i, **event}) for i in range(30)]
    foreign = [line.replace(b"%d", b"e%x" % 5**i) for i, line in enumerate(lines)]
    primary = [b'{"request":"%032x"}' % (7**i << 40) for i in range(30)]
    found = inferred({"a.log": primary}, {"payments/b.log": foreign})
    assert (found.primary.key, found.foreign.key, found.foreign.id) == ("request", "ref", expected)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"ts": 1588206048000, "created": {"ts": 1}}, "ts"),
        ({"a": {"b": {"c": {"time": "2026-11-20T09:00:00+01:00"}}}}, "a.b.c.time"),
        ({"x": {"paidAt": 1588206048000}}, "x.paidAt"),
        ({"ts": 1588206048, "time": "2020-04-30T00:20:48Z"}, "ts"),  # both say the same
        ({"ts": 1588206048, "birth_date": "1980-01-01"}, "ts"),
        ({"birth_date": "1980-01-01"}, None),
        ({"size": 1588206048}, None),
        ({"a": {"ts": 1588206048}, "b": {"ts": 1588206049}}, None),
    ],
)
def test_event_times_of_any_depth(fields: dict[str, object], expected: str | None) -> None:
    foreign = [orjson.dumps({"query_id": str(i), **fields}) for i in range(2)]
    found = infer({"p.log": [b'{"query_id":"%d"}' % i for i in range(5)]}, {"f.log": foreign})
    assert (found.foreign.time.field if isinstance(found, Inferred) and found.foreign.time else None) == expected


def test_what_is_told_is_not_looked_for() -> None:
    names = [sha256(b"%d" % i).hexdigest().encode() for i in range(30)]
    primary = {"p.log": [b'{"order_id":"%s","twin_id":"%s"}' % (name, name) for name in names]}
    rows = [
        b'{"order_id":"%s","twin_id":"%s","n_id":%d,"a_at":%d,"b_at":%d,"mixed_at":"x%d"}'
        % (name, name, i, 1_760_000_000 + i, 1_770_000_000 - i, i)
        for i, name in enumerate(names)
    ]
    foreign = {"f.log": rows}
    found = infer(primary, foreign)
    assert isinstance(found, Unclear)
    assert "'order_id' or 'twin_id'" in found.problem
    assert "the foreign logs have several times: the event time may be a_at, b_at" in found.problem
    told = Told(primary_key="twin_id", foreign_key="order_id", id="n_id", time="b_at")
    found = infer(primary, foreign, told=told)
    assert isinstance(found, Inferred), found
    assert (found.primary.key, found.foreign.key, found.foreign.id) == ("twin_id", "order_id", "n_id")
    assert found.foreign.time == TimeConfig(field="b_at", unit="s")
    time = TimeConfig(field="mixed_at", format="x%S", zone="Europe/Berlin")
    found = infer(primary, foreign, told=Told(primary_key="twin_id", foreign_key="twin_id", time=time))
    assert isinstance(found, Inferred), found
    assert found.foreign.time == time
    found = infer(primary, foreign, told=Told(primary_key="twin_id", id="n_id", time="mixed_at"))
    assert isinstance(found, Unclear)
    assert "the foreign logs have values of unknown unit or format in 'mixed_at'" in found.problem
    assert 'id = "n_id"' in found.example
    assert 'key = "twin_id"' in found.example


def described(sample: Sample, told: Mapping[str, object], *, foreign: bool = True) -> dict[str, object]:
    found = describe(sample, told, foreign=foreign)
    assert not isinstance(found, str), found
    return found[0]


@pytest.mark.parametrize(
    "told",
    [{}, {"time": "at"}, {"time": {"field": "at", "unit": "ms"}}, {"format": "jsonl", "time": {"field": "at"}}],
)
def test_the_event_id_is_found_whether_or_not_the_time_is_told(told: dict[str, object]) -> None:
    rows = [b'{"order":"o%d","click_id":"c%d","at":%d}' % (i // 2, 7**i, 1_760_000_000 + i) for i in range(20)]
    logs = {"clicks.log": [*rows, rows[3]]}
    assert described(logs, {"key": "order", **told})["id"] == "click_id"
    assert "id" not in described(logs, {"key": ["order", "click_id"], **told})
    assert "id" not in described(logs, {"key": "order", **told}, foreign=False)
    assert described(logs, {"key": "order", "id": "at", **told})["id"] == "at"


def test_no_event_id_is_found_where_records_are_read_otherwise() -> None:
    told = {"key": "order", "format": "csv", "time": {"field": "at", "unit": "s"}}
    rows = [b"order;click_id;at", *[b"o%d;c%d;%d" % (i // 2, 7**i, 1_760_000_000 + i) for i in range(20)]]
    assert described({"clicks.csv": rows}, told) == told
    assert described({"clicks.csv": [b"?"]}, told) == told
    with_it = {**told, "delimiter": ";"}
    assert described({"clicks.csv": rows}, with_it) == {**with_it, "id": "click_id"}


PRIMARY: Sample = {"requests/a.log": [b'{"request":"%032x"}' % (7**i << 40) for i in range(30)]}


def events(count: int = 30, **fields: str) -> list[bytes]:
    """Foreign records with a key, a time, and fields of ``{i}``, ``{x}`` (random hex) and ``{m}`` (``i`` by 3)."""
    return [
        orjson.dumps(
            {"ref": f"{7**i << 40:032x}", "ts": 1588206048 + i}
            | {
                name: value.format(i=i, x=sha256(b"%d" % i).hexdigest()[:12], m=i % 3)
                for name, value in fields.items()
            }
        )
        for i in range(count)
    ]


@pytest.mark.parametrize(
    ("fields", "taken", "said"),
    [
        ({"event_id": "{x}"}, "event_id", ""),
        ({"event_id": "e{i}"}, "event_id", ""),
        ({"event_id": "{i}"}, None, "'event_id' is a counter, and may restart"),
        ({"id": "{i}"}, None, "'id' is a counter, and may restart"),
        ({"payment_id": "p-{i}"}, None, "'payment_id' is a counter, and may restart"),
        ({"payment_id": "{x}"}, "payment_id", ""),
        (
            {"payment_id": "{x}", "status": "paid"},
            None,
            "'payment_id' may name a thing that changes, judging by 'status'",
        ),
        ({"payment_id": "{x}", "status": "200"}, "payment_id", ""),
        ({"payment_id": "{x}", "type": "made"}, None, "'payment_id' may name a thing that changes"),
        ({"payment_id": "{x}", "type": "t{m}"}, "payment_id", ""),
        ({"event_id": "{x}", "status": "paid"}, "event_id", ""),
        ({"id": "{x}", "version": "{m}"}, None, "'id' may name a thing that changes, judging by 'version'"),
        ({"event_id": "{x}", "payment_id": "p{x}"}, None, "'event_id' and 'payment_id' could each be the id"),
        ({"session_id": "{x}"}, None, "If session_id identifies an event, give --id session_id"),
    ],
)
def test_an_event_id_has_two_witnesses(fields: dict[str, str], taken: str | None, said: str) -> None:
    found = inferred(PRIMARY, {"payments/a.log": events(**fields)})
    assert found.foreign.id == taken
    line = next(line for line in found.explanation if "event id" in line)
    assert said in line
    if taken is None:
        assert line.startswith(
            "No event id found: every line counts as its own event, so a repeated line is joined twice"
        )


@pytest.mark.parametrize(
    "name",
    ["payments.jsonl", "payments/2026-11-20.jsonl", "payments-2026-11-20.jsonl", "payments/20261120T0900Z.log.1",
     "2026/11/payments.host1.log", "payment.log"],
)  # fmt: skip
def test_dates_in_names_of_files_change_nothing(name: str) -> None:
    lines = events(payment_id="{x}")
    found = inferred(PRIMARY, {name: [*lines, lines[3]]})
    assert found.foreign.id == "payment_id"
    found = inferred(PRIMARY, {name.replace("payment", "refund"): [*lines, *lines[:7]]})
    assert found.foreign.id is None
    assert any("joined twice (7 repeated lines in the sample)" in line for line in found.explanation)


def test_an_id_that_names_primary_events_is_none() -> None:
    """Each request fails once on the first day, and ``id`` is the request's."""
    names = [sha256(b"%d" % i).hexdigest()[:16] for i in range(30)]
    primary = {"requests.log": [b'{"request_id":"%s"}' % name.encode() for name in names]}
    rows = [{"id": name, "request_id": name, "ts": 1588206048 + i} for i, name in enumerate(names)]
    found = inferred(primary, {"errors.log": [orjson.dumps(row) for row in rows]})
    assert (found.foreign.key, found.foreign.id) == ("request_id", None)
    assert any("'id' names primary events" in line for line in found.explanation)


def test_one_name_that_holds_all_foreign_values_is_the_key_however_few() -> None:
    primary = {"q.log": [b'{"query_id":"q%d"}' % i for i in range(3)]}
    found = inferred(primary, {"c.log": [b'{"click_id":"c%d","query_id":"q%d"}' % (i, i) for i in range(3)]})
    assert (found.primary.key, found.foreign.key) == ("query_id", "query_id")
    others = [b'{"order_id":%d}' % i for i in (1, 2, 3)]
    assert "'order_id' may number the foreign records" in unclear(
        {"p.log": [b'{"id":%d}' % i for i in (1, 2, 3)]}, {"f.log": others}
    )


@pytest.mark.parametrize("decoy", ["email", "customer_id", "customer"])
def test_two_fields_that_lead_to_the_same_records_are_both_shown(decoy: str) -> None:
    """Unique on the first day: each customer ordered once."""
    orders = [sha256(b"%d" % i).hexdigest()[:16] for i in range(40)]
    people = [sha256(b"c%d" % i).hexdigest()[:16] for i in range(40)]
    rows = list(zip(orders, people, strict=True))
    foreign = {
        "pay.log": [orjson.dumps({"order": o, decoy: c, "ts": 1588206048 + i}) for i, (o, c) in enumerate(rows)]
    }
    problem = unclear({"created.log": [orjson.dumps({"id": o, decoy: c}) for o, c in rows]}, foreign)
    assert f"'{decoy}'" in problem
    assert "'id' with foreign 'order'" in problem
    # The name of the primary logs breaks the tie.
    found = inferred({"orders/a.log": [orjson.dumps({"id": o, decoy: c}) for o, c in rows]}, foreign)
    assert (found.primary.key, found.foreign.key) == ("id", "order")


def test_a_key_that_many_records_lack_is_named() -> None:
    names = [sha256(b"%d" % i).hexdigest()[:16] for i in range(40)]
    primary = {"access.log": [b'{"request_id":"%s"}' % name.encode() for name in names]}
    rows = [{"ts": 1588206048 + i, "n": i} | ({"request_id": name} if i % 2 else {}) for i, name in enumerate(names)]
    found = infer(primary, {"app.log": [orjson.dumps(row) for row in rows]})
    assert isinstance(found, Unclear)
    assert "'request_id' could be the key, but 'request_id' is missing in 50% of the foreign records" in found.problem
    assert found.words == ("--key", "request_id", "--time", "ts")
    join = tomllib.loads(found.example)["join"]["join"]
    assert join["shape"] == {"skip": [{"field": "foreign.request_id", "missing": True}]}


def test_fields_that_are_left_out_are_named_with_the_reason() -> None:
    times = [1_700_000_000_000 + 7919 * i * i for i in range(40)]
    foreign = {"f.log": [orjson.dumps({"started_at": at, "ts": 1_700_000_000 + i}) for i, at in enumerate(times)]}
    problem = unclear({"p.log": [orjson.dumps({"started_at": at}) for at in times]}, foreign)
    assert (
        "'started_at' could be the key, but 'started_at' looks like a time or a measurement in the foreign records"
        in problem
    )
    counted = {"f.log": [line.replace(b'"ts"', b'"n":%d,"ts"' % (i % 5)) for i, line in enumerate(foreign["f.log"])]}
    both = [orjson.dumps({"started_at": at, "n": i}) for i, at in enumerate(times)]
    assert "started_at" not in unclear({"p.log": both}, counted).partition("; ")[0], "others may still be the key"
    one = [orjson.dumps({"shop": "a1b2c3d4e5f6a7b8", "ts": 1_700_000_000 + i}) for i in range(40)]
    shops = [orjson.dumps({"shop": sha256(b"%d" % i).hexdigest()[:16]}) for i in range(40)]
    found = infer({"p.log": [*shops, b'{"shop":"a1b2c3d4e5f6a7b8"}']}, {"f.log": one})
    assert isinstance(found, Unclear), "one value says nothing"


def test_a_sorted_export_is_no_constant() -> None:
    names = [sha256(b"%d" % (i // 150)).hexdigest()[:16] for i in range(450)]
    primary = {"shops.log": [b'{"shop":"%s"}' % sha256(b"%d" % i).hexdigest()[:16].encode() for i in range(40)]}
    rows = [orjson.dumps({"shop": name, "ts": 1588206048 + i}) for i, name in enumerate(names)]
    assert inferred(primary, {"sales.log": rows}).foreign.key == "shop"


@pytest.mark.parametrize(
    "mark", ["NULL", "null", "N/A", "None", "nan", "\\N", "undefined", "-", "00000000-0000-0000-0000-000000000000"]
)
def test_marks_of_absent_values_are_no_keys_and_are_written(mark: str) -> None:
    keys = [mark if i % 10 == 3 else sha256(b"%d" % i).hexdigest()[:16] for i in range(60)]
    primary = {"p.log": [orjson.dumps({"rid": key}) for key in keys]}
    foreign = {"f.log": [orjson.dumps({"rid": key, "ts": 1588206048 + i}) for i, key in enumerate(keys)]}
    found = inferred(primary, foreign)
    assert found.primary.absent == found.foreign.absent == (mark,)
    assert tomllib.loads(found.toml)["join"]["join"]["foreign"]["absent"] == [mark]
    adapter = ConfiguredAdapter.from_sides(found.primary, found.foreign)
    (header, absent) = adapter.header_columns([foreign["f.log"][0], foreign["f.log"][3]], LogFile("f")).rows()
    assert isinstance(header, ForeignHeader)
    assert "key field 'rid' is absent" in str(absent)
    plain = ConfiguredAdapter.from_sides(
        SideConfig(format="jsonl", key="rid"),
        SideConfig(format="jsonl", key="rid", time=TimeConfig(field="ts", unit="s")),
    )
    assert plain.foreign_header(foreign["f.log"][3], LogFile("f")).key == mark.encode(), "only what is listed"


WRITTEN = (1_709_300_000, 1_709_300_000)  # 2024-03-01


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (lambda i: 621355968000000000 + (1_709_280_309 + i) * 10**7, ""),
        (lambda i: 1_709_280_309.25 + i - 978307200, 'from 2001 (Swift, Cocoa) they fit: origin = "2001-01-01"'),
        (lambda i: int(f"20240301{i % 24:02d}"), "years after its file was written"),
        (lambda i: int(f"240301{8 + i // 60:02d}{i % 60:02d}"), "years after its file was written"),
        (lambda i: 1_709_280_309 + i, ""),
        (lambda i: (1_400_000_000 + i) * 1000, ""),
    ],
)
def test_numbers_are_times_only_near_when_their_file_was_written(value: Callable[[int], float], said: str) -> None:
    rows = [orjson.dumps({"ref": f"{7**i << 40:032x}", "timestamp": value(i)}) for i in range(30)]
    found = infer(PRIMARY, {"f.log": rows}, written=(WRITTEN, WRITTEN))
    assert isinstance(found, Unclear) == bool(said)
    if isinstance(found, Unclear):
        assert said in found.problem
    unknown = infer(PRIMARY, {"f.log": rows})
    assert isinstance(unknown, Inferred), "nothing says when it was written"


def test_a_day_and_a_time_of_day_are_read_together() -> None:
    rows = [b"ref,date,time", *(b"%032x,2024-03-01,08:05:%02d" % (7**i << 40, i) for i in range(30))]
    found = inferred(PRIMARY, {"f.csv": rows})
    assert found.foreign.time == TimeConfig(fields=("date", "time"), format="iso8601")
    assert "event time = 'date' and 'time' (iso8601" in "\n".join(found.explanation)
    days = [b"ref,date,time", *(b"%032x,02/01/2024,08:05:%02d" % (7**i << 40, i) for i in range(30))]
    assert "'date' of the foreign logs is a day and 'time' a time of day, written month" in unclear(
        PRIMARY, {"f.csv": days}
    )
    assert isinstance(infer(PRIMARY, {"f.csv": rows}, told=Told(time="date")), Inferred)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2024-03-01t08:05:09z", TimeConfig(field="timestamp", format="iso8601")),
        ("20240301T080509Z", TimeConfig(field="timestamp", format="iso8601")),
        ("2024-03-01T09:05:09+01:00[Europe/Paris]", TimeConfig(field="timestamp", format="iso8601")),
        ("Fri Mar  1 08:05:09 2024", TimeConfig(field="timestamp", format="%a %b %e %H:%M:%S %Y")),
        ("133537539091234560", TimeConfig(field="timestamp", unit="filetime")),
        ("638448699091234560", TimeConfig(field="timestamp", unit="ticks")),
        ("Dec 31 23:59:59", 'timestamp has no year; name the year of each file\'s first line, or "name"'),
        ("@4000000065e18c7f075bca00", "timestamp looks like TAI64N"),
    ],
)
def test_forms_of_times(text: str, time: TimeConfig | str) -> None:
    rows = [orjson.dumps({"ref": f"{7**i << 40:032x}", "timestamp": text}) for i in range(30)]
    if isinstance(time, str):
        assert time in unclear(PRIMARY, {"f.log": rows})
    else:
        assert (
            inferred(
                PRIMARY,
                {"f.log": rows},
            ).foreign.time
            == time
        )


def test_a_year_is_proposed_but_never_guessed() -> None:
    rows = [orjson.dumps({"ref": f"{7**i << 40:032x}", "at": f"Mar  1 08:05:{i:02d}"}) for i in range(30)]
    found = infer(PRIMARY, {"f.log": rows}, written=(WRITTEN, WRITTEN))
    assert isinstance(found, Unclear)
    assert found.words[-1] == '{ field = "at", format = "%b %e %H:%M:%S", year = 2024 }'
    syslog = [b"Mar  %d 08:05:%02d web app[7]: ref=%032x done" % (1 + i // 20, i, 7**i << 40) for i in range(30)]
    found = infer(PRIMARY, {"f.log": syslog}, written=(WRITTEN, WRITTEN))
    assert isinstance(found, Unclear)
    assert found.words[-1] == '{ field = "time", format = "%b %e %H:%M:%S", year = 2024 }'


def test_a_form_of_times_that_is_named_is_proposed() -> None:
    rows = [orjson.dumps({"ref": f"{7**i << 40:032x}", "at": "@4000000065e18c7f075bca00"}) for i in range(30)]
    found = infer(PRIMARY, {"f.log": rows})
    assert isinstance(found, Unclear)
    assert tuple(found.words[-2:]) == ("--unit", "tai64n")


def test_records_without_a_time_are_joined() -> None:
    rows = [b'{"ref":"%032x","n":"%d"}' % (7**i << 40, i) for i in range(30)]
    found = inferred(PRIMARY, {"f.log": rows})
    assert found.foreign.time is None
    adapter = ConfiguredAdapter.from_sides(found.primary, found.foreign)
    assert not adapter.has_foreign_time
    assert adapter.foreign_header(rows[0], LogFile("f")).event_time_ns == 0
    # A field that may be a time is listed first.
    risen = [b'{"ref":"%032x","n":%d}' % (7**i << 40, 1588206048 + i * i) for i in range(30)]
    assert "n increases like a time, but is not named like one" in unclear(PRIMARY, {"f.log": risen})
    by_one = [b'{"ref":"%032x","n":%d}' % (7**i << 40, 1588206048 + i) for i in range(30)]
    assert "n increases like a time" in unclear(PRIMARY, {"f.log": by_one})
    created = {"f.log": [row.replace(b'"n"', b'"created"') for row in by_one]}
    assert inferred(PRIMARY, created).foreign.time == TimeConfig(field="created", unit="s")
    some = [row.replace(b'"n"', b'"at"') if i % 2 else row for i, row in enumerate(risen)]
    assert "at is missing in 50% of the records" in unclear(PRIMARY, {"f.log": some})


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([b"["], "hold one JSON array over several lines or in a very long one, none of them readable"),
        ([b"{}"], "hold no field with text or a number in it (the first record is '{}')"),
        ([b'{"a":[]}'], "hold no field with text or a number in it"),
        ([b'{"a":null,"b":true}'], "hold no field with text or a number in it"),
    ],
)
def test_what_was_seen_is_named(records: list[bytes], said: str) -> None:
    assert said in unclear({"p.log": records}, {"f.log": [b'{"a":"1"}']})
    assert said in unclear({"p.log": [b'{"a":"1"}']}, {"f.log": records})


def test_each_layout_of_json_is_recognised() -> None:
    rows = [{"a": f"{7**i:x}", "at": f"2024-03-01T10:00:{i:02d}Z"} for i in range(30)]
    lines = [orjson.dumps(each) for each in rows]
    text = b"[" + b",".join(lines) + b"]"
    for records, name in (
        ([text], None),
        ([b"[", *(line + b"," for line in lines[:-1]), lines[-1], b"]"], None),
        ([b"".join(lines)], None),
        (b"\n".join(orjson.dumps(each, option=orjson.OPT_INDENT_2) for each in rows).split(b"\n"), None),
        ([b'{"Records":' + text + b"}"], "Records"),
        (orjson.dumps({"Records": rows}, option=orjson.OPT_INDENT_2).split(b"\n"), "Records"),
        ([orjson.dumps({"R": rows[:20]}), orjson.dumps({"R": rows[20:]})], "R"),
    ):
        found = inferred({"p.log": [b'{"a":"%x"}' % 7**i for i in range(30)]}, {"f.json": records})
        assert (found.foreign.format, found.foreign.records, found.foreign.key) == ("json", name, "a")


PAYS = [f"p{i},GPA{i * 104729:08x},2024-03-01T10:00:{i:02d}Z,{i}" for i in range(40)]
ORDERS = {"o.csv": [b"order,customer", *(b"GPA%08x,C%d" % (i * 104729, i) for i in range(40))]}
HEADER = "pay,order,paid_at,cents"


@pytest.mark.parametrize(
    ("lines", "settings"),
    [
        ([HEADER, *PAYS], {}),
        ([HEADER, *(f"{each}," for each in PAYS)], {}),
        ([f"{HEADER},", *(f"{each}," for each in PAYS)], {}),
        ([f"{HEADER},cents", *(f"{each},0" for each in PAYS)], {}),
        (
            ["sep=;", HEADER.replace(",", ";"), *(e.replace(",", ";") for e in PAYS)],
            {"skip_lines": 1, "delimiter": ";"},
        ),
        (["Report of March", "", "in EUR, net", HEADER, *PAYS, "Total:,,,780"], {"skip_lines": 3}),
        (["# made by x", HEADER, *PAYS, "# end"], {"comment": "#"}),
        ([HEADER.replace(",", "::"), *(each.replace(",", "::") for each in PAYS)], {"delimiter": "::"}),
        ([HEADER.replace(",", "  "), *(each.replace(",", "   ") for each in PAYS)], {"format": "blanks"}),
        ([f"{HEADER},t", *(rf'{each},"a \"b\", c"' for each in PAYS)], {"escape": "\\"}),
        (
            ["#Version: 1.0", f"#Fields: {HEADER.replace(',', ' ')}", *(e.replace(",", "\t") for e in PAYS)],
            {"format": "w3c"},
        ),
    ],
)
def test_tables_are_recognised_with_what_is_above_and_below_them(lines: list[str], settings: dict[str, Any]) -> None:
    found = inferred(ORDERS, {"pays.csv": [each.encode() for each in lines]}).foreign
    assert found.key == "order"
    assert found.time == TimeConfig(field="paid_at", format="iso8601")
    for name in ("format", "skip_lines", "comment", "delimiter", "escape"):
        default = {"format": "csv", "skip_lines": 0}.get(name)
        assert getattr(found, name) == settings.get(name, default), name
    assert found.columns is None


def test_what_is_nearly_a_table_is_named_for_what_it_is() -> None:
    lines = [HEADER, *(f"{each},more" if i % 4 == 0 else each for i, each in enumerate(PAYS))]
    assert "hold CSV with ',' and 4 columns, but 24% of the lines have 5" in unclear(
        ORDERS, {"f.csv": [each.encode() for each in lines]}
    )


def test_lines_that_belong_together_are_recognised() -> None:
    logs = []
    for i in range(30):
        logs.append(b"2024-03-01 10:00:%02d ERROR request=%08x it failed" % (i, i * 104729))
        logs += [b"Traceback (most recent call last):", b"  at x"] if i % 3 == 0 else []
    found = inferred({"p.log": [b'{"id":"%08x"}' % (i * 104729) for i in range(30)]}, {"f.log": logs})
    assert (found.foreign.begins, found.foreign.key) == (r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:", "request")
    assert any("begins = " in line for line in found.explanation)


def test_typed_json_of_databases_is_read_by_its_members() -> None:
    primary = {"p": [b'{"Item":{"id":{"S":"%024x"}}}' % (i * 104729) for i in range(40)]}
    rows = [
        b'{"Item":{"order":{"S":"%024x"},"createdAt":{"N":"%d"}}}' % (i * 104729, 1709280000 + i) for i in range(40)
    ]
    found = inferred(primary, {"f": rows}).foreign
    assert (found.key, found.time) == ("Item.order.S", TimeConfig(field="Item.createdAt.N", unit="s"))


def test_encodings_and_colours_are_recognised_and_said() -> None:
    primary = {"p.log": [b'{"a":"%x"}' % 7**i for i in range(30)]}
    rows = [f'{{"a":"{7**i:x}","at":"2024-03-01T10:00:{i:02d}Z","who":"Müßig"}}' for i in range(30)]
    found = inferred(primary, {"f.log": [each.encode("utf-16") for each in rows]})
    assert (found.foreign.encoding, found.foreign.format) == ("utf-16", "jsonl")
    found = inferred(primary, {"f.log": [each.encode("cp1252") for each in rows]})
    assert found.foreign.encoding == "cp1252"
    assert any('encoding = "cp1252": the text is not UTF-8' in line for line in found.explanation)
    assert inferred(primary, {"f.log": [each.encode() for each in rows]}).foreign.encoding is None
    mixed = {"f.log": [rows[0].encode("utf-16")], "g.log": [rows[1].encode()]}
    assert "hold UTF-16 text in some files" in unclear(primary, mixed)
    logs = [b"\x1b[2m2024-03-01T10:00:%02dZ\x1b[0m \x1b[36ma=\x1b[0m%x n=%d" % (i, 7**i, i) for i in range(30)]
    found = inferred(primary, {"f.log": logs})
    assert (found.foreign.colours, found.foreign.key) == (True, "a")


def test_one_log_for_both_sides_is_refused_with_the_kinds_in_it() -> None:
    rows = [orjson.dumps({"flow_id": i, "event_type": ("tls", "flow", "alert")[i % 3]}) for i in range(30)]
    found = one_log({"eve.json": rows})
    assert found.problem == (
        "--primary and --foreign name the same logs, whose records are of several kinds (event_type: tls 10, flow "
        "10, alert 10), and it is unclear which of the records are primary"
    )
    tables = tomllib.loads(found.example)["join"]["join"]
    assert (tables["primary"]["key"], tables["foreign"]["key"]) == ("flow_id", "flow_id")
    assert tables["primary"]["skip"] == [{"field": "event_type", "differs": "tls"}]
    ConfiguredAdapter(tables)
    assert "name the same logs, and it is unclear which" in one_log({"a": [b"?"]}).problem


@pytest.mark.parametrize(
    ("seconds", "unit", "said"),
    [
        (1_709_280_309_000, "us", 'ts is read as unit = "us", and unit = "ms" would fit'),
        (1_709_280_309, "ms", 'ts is read as unit = "ms", and unit = "s" would fit'),
        (1_709_280_309_000_000_000, "ns", ""),
        (7, "s", "and no unit would fit: is this the right field?"),
    ],
)
def test_times_of_another_age_are_told_with_the_unit_that_would_fit(seconds: int, unit: str, said: str) -> None:
    time = TimeConfig(field="ts", unit=unit)
    read = time_reader(time, "")
    line = odd_times([read.from_int(seconds + i) for i in range(5)], time)
    assert line.endswith(said) if said else line == ""
    assert odd_times([10**18] * 3 + [0], time) == "", "a few do not count"


def test_protobuf_and_others_may_have_no_time() -> None:
    assert "is the event time correct?" in odd_times([1, 2, 3], None)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
CELL = st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=6)
LINES = st.one_of(
    st.lists(JSON.map(lambda value: json.dumps(value).encode()), max_size=8),
    st.lists(st.lists(CELL, min_size=1, max_size=4).map(lambda cells: ",".join(cells).encode()), max_size=8),
    st.lists(st.text(max_size=20).map(lambda text: text.replace("\n", " ").encode()), max_size=8),
    st.lists(st.binary(max_size=20).map(lambda data: data.replace(b"\n", b" ")), max_size=8),
)
FILES = st.dictionaries(st.sampled_from(["a.log", "b/c.csv"]), LINES, max_size=2)
WHEN = st.none() | st.just(WRITTEN)


@settings(max_examples=400, deadline=None)
@given(FILES, FILES, WHEN, st.booleans())
def test_whatever_is_in_the_logs_the_answer_is_a_configuration_or_one_line(
    primary: Sample, foreign: Sample, written: tuple[int, int] | None, whole: bool
) -> None:
    found = infer(primary, foreign, whole=whole, written=(written, written))
    assert "\n" not in one_log(primary).problem
    if isinstance(found, Inferred):
        ((_, tables),) = tomllib.loads(found.toml)["join"].items()
        ConfiguredAdapter(tables)
        return
    assert "\n" not in found.problem + found.todo
    assert found.problem
    convert(tomllib.loads(found.example), "example")


def test_a_refusal_has_the_options_that_say_it_or_none() -> None:
    names = [sha256(b"%d" % i).hexdigest()[:16] for i in range(40)]
    primary = {"p.log": [orjson.dumps({"q": name, "ts": 1_700_000_000 + i}) for i, name in enumerate(names)]}
    local = [orjson.dumps({"q": name, "at": f"2023-11-15 00:13:{20 + i % 40}"}) for i, name in enumerate(names)]
    found = infer(primary, {"f.log": local})
    assert isinstance(found, Unclear)
    zone = '{ field = "at", format = "iso8601", zone = "+02:00" }'
    assert found.words == ("--key", "q", "--time", zone)
    of_day = {"f.log": [orjson.dumps({"q": name, "at": 34200.5 + 3 * i}) for i, name in enumerate(names)]}
    found = infer(primary, of_day)
    assert isinstance(found, Unclear)
    assert (found.words, "pass it with --config" in found.todo) == ((), True), "nobody knows which day"
    several = {"f.log": [orjson.dumps({"q": n, "a_at": 1_700_000_000 + i, "b_at": i}) for i, n in enumerate(names)]}
    found = infer(primary, several, told=Told(id="b_at", time="b_at"))
    assert isinstance(found, Unclear)
    assert found.words[:4] == ("--key", "q", "--id", "b_at")
