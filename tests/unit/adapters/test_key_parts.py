"""Keys of several fields and normalised ones: equal values give one key, different ones never do."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import AdapterError, BadRecord, ForeignHeader, LogFile
from photon.adapters.formats.part_rules import KeyPart, number
from tests.unit.adapters.messages import descriptor_set, event_class
from tests.unit.refusals import one_line

FILE = LogFile("a.log")
TIME = {"field": "t", "unit": "ms"}
TWO = ["shop", "order"]


def adapter(key: Any, other: Any = None, **side: Any) -> ConfiguredAdapter:
    side = side or {"format": "jsonl"}
    tables = {"primary": {**side, "key": key}, "foreign": {**side, "key": other or key, "id": "c", "time": TIME}}
    return ConfiguredAdapter({**tables, "where": "join.x"})


FORMATS: list[tuple[dict[str, Any], LogFile, bytes]] = [
    ({"format": "jsonl"}, FILE, b'{"c":"c%d","t":%d,"shop":"%b","order":"%b"}'),
    ({"format": "jsonl"}, FILE, b'{"order_":1,"c":"c%d","t":"%d","a":{"b":2}, "shop" : "%b", "order" : "%b"}'),
    ({"format": "csv"}, LogFile("a.csv", b"c,t,shop,order"), b"c%d,%d,%b,%b"),
    ({"format": "csv", "columns": ["c", "t", "shop", "order"]}, FILE, b'"c%d",%d,"%b",%b'),
    ({"format": "tsv"}, LogFile("a.tsv", b"c\tt\tshop\torder"), b"c%d\t%d\t%b\t%b"),
    ({"format": "logfmt"}, FILE, b"c=c%d t=%d shop=%b order=%b"),
    (
        {"format": "regex", "pattern": r"(?P<c>\S+) (?P<t>\S+) (?P<shop>\S+) (?P<order>\S+)"},
        FILE,
        b"c%d %d %b %b",
    ),
    ({"format": "zeek"}, LogFile("a.log", b"#separator \\x09\n#fields\tc\tt\tshop\torder"), b"c%d\t%d\t%b\t%b"),
]
VALUES = [(b"a", b"bc"), (b"ab", b"c"), (b"7", b"1"), (b"x|y", b"z"), (b"x", b"y|z"), (b"x~1y", b"z"), (b"~", b"|")]


@pytest.mark.parametrize(("side", "file", "line"), FORMATS)
def test_every_format_reads_all_parts_one_by_one_and_in_columns(
    side: dict[str, Any], file: LogFile, line: bytes
) -> None:
    it = adapter(TWO, **side)
    plain = [line % (n, n, *both) for n, both in enumerate(VALUES[:3])]
    assert [it.primary_key(record, file) for record in plain] == [b"a|bc", b"ab|c", b"7|1"]
    records = [line % (n, n, *both) for n, both in enumerate(VALUES)]
    keys = [it.primary_key(record, file) for record in records]
    assert keys[3:] == [b"x~1y|z", b"x|y~1z", b"x~01y|z", b"~0|~1"]
    for some in (plain, records):
        block = b"".join(record + b"\n" for record in some)
        assert it.primary_keys(block, file) == keys[: len(some)]
        assert it.primary_keys_of(some, file) == keys[: len(some)]
        columns = it.header_columns(some, file)
        assert [list(columns.keys), list(columns.times), columns.others] == [
            keys[: len(some)], [n * 10**6 for n in range(len(some))], {},
        ]  # fmt: skip
        assert it.header_columns(some, file).rows() == [it.foreign_header(record, file) for record in some]
    located = it.located_primary_keys(b"".join(record + b"\n" for record in records), file)
    assert located is None or located[0] == keys


def test_a_record_without_one_of_the_parts_says_which() -> None:
    it = adapter(TWO)
    good, bad, worse = b'{"shop":1,"order":"7","c":"1","t":5}', b'{"shop":1,"c":"1","t":5}', b"{"
    assert it.primary_key(good, FILE) == b"1|7"
    with pytest.raises(BadRecord, match="key field 'order' is missing"):
        it.primary_key(bad, FILE)
    assert it.primary_keys(b"\n".join([good, bad, worse, b""]), FILE) == [b"1|7", None, None]
    headers = it.header_columns([good, bad, worse, good], FILE)
    assert (headers.keys[0], headers.keys[3]) == (b"1|7", b"1|7")
    assert {row: other.reason for row, other in headers.others.items()} == {
        1: "key field 'order' is missing",
        2: it.header_columns([worse], FILE).others[0].reason,
    }
    assert it.header_columns([bad], FILE).rows() == [BadRecord("key field 'order' is missing")]


@given(st.lists(st.tuples(*[st.text("ab|~", min_size=1)] * 2), min_size=2, max_size=2, unique=True))
@example([("a", "bc"), ("ab", "c")])
@example([("a|", "b"), ("a", "|b")])
@example([("a~1", "b"), ("a|", "b")])
def test_no_two_lists_of_parts_have_one_key(both: list[tuple[str, str]]) -> None:
    it = adapter(TWO)
    records = [orjson.dumps({"shop": shop, "order": order}) for shop, order in both]
    one, other = it.primary_keys_of(records, FILE)
    assert one is not None
    assert one != other
    assert tuple(part.replace("~1", "|").replace("~0", "~") for part in one.decode().split("|")) == both[0]


NUMBERS = {
    "7": ["7", "007", "+7", "7.0", "7.", "70e-1", "0.7E1", "7e0"],
    "0": ["0", "-0", "0.00", "0e9", "00"],
    "-0.5": ["-0.5", "-.5", "-5e-1", "-00.50"],
    "1200": ["1200", "1.2e3", "1200.000"],
    "0.0012": [".0012", "12e-4"],
    "12345678901234567890123": ["12345678901234567890123", "012345678901234567890123.0"],
}


@pytest.mark.parametrize(("one", "spelt"), NUMBERS.items())
def test_numbers_are_compared_by_value(one: str, spelt: list[str]) -> None:
    it = adapter({"field": "n", "as": "number"})
    for text in spelt:
        assert number("n", text.encode()) == one.encode()
        assert it.primary_keys(b'{"n":"%b"}\n' % text.encode(), FILE) == [one.encode()]
    as_json = [
        text for text in spelt if text[0] not in "+." and text[:2] not in ("-.", "00", "01") and text[-1] != "."
    ]
    for text in as_json:
        if text.lstrip("-").startswith("00"):
            continue
        try:
            orjson.loads(text)
        except orjson.JSONDecodeError:
            continue
        assert it.primary_key(b'{"n":%b}' % text.encode(), FILE) == one.encode()


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30, places=9))
def test_a_numbers_spelling_keeps_its_value(value: Any) -> None:
    spelt = number("n", str(value).encode())
    assert type(value)(spelt.decode()) == value
    assert number("n", spelt) == spelt


@pytest.mark.parametrize(
    "text", ["", "abc", "1,5", "0x7", "1e", ".", "-", "1 2", " 7", "NaN", "Infinity", "1e500", "٧"]
)
def test_what_is_no_number_is_rejected_with_what_it_is(text: str) -> None:
    it = adapter([{"field": "shop", "as": "number"}, "order"])
    record = orjson.dumps({"shop": text, "order": "1", "c": "c", "t": 1})
    (header,) = it.header_columns([record], FILE).rows()
    assert isinstance(header, BadRecord)
    assert header.reason.startswith("key field 'shop' is ")
    assert "\n" not in header.reason
    assert it.primary_keys(record + b"\n", FILE) == [None]


def test_without_a_rule_spellings_differ_as_they_always_did() -> None:
    it = adapter("n")
    texts = [b'{"n":7}', b'{"n":"7"}', b'{"n":"007"}', b'{"n":"1.0"}', b'{"n":" 7"}']
    assert it.primary_keys_of(texts, FILE) == [b"7", b"7", b"007", b"1.0", b" 7"]
    with pytest.raises(BadRecord, match="is a number, not text or an integer"):
        it.primary_key(b'{"n":7.0}', FILE)
    two = adapter(["n", "m"])
    assert two.primary_key(b'{"n":"007","m":"A "}', FILE) == b"007|A "


def test_case_and_white_space_on_request() -> None:
    it = adapter([{"field": "shop", "as": "number", "trim": True}, {"field": "email", "case": "fold", "trim": True}])
    records = [
        {"shop": " 07 ", "email": "Ann@Example.COM"},
        {"shop": 7, "email": " ann@example.com\t"},
        {"shop": 7.0, "email": "\u00a0ANN@example.com"},
    ]
    assert set(it.primary_keys_of([orjson.dumps(each) for each in records], FILE)) == {b"7|ann@example.com"}
    assert KeyPart(field="x", case="fold").normaliser()("STRASSE Straße".encode()) == b"strasse strasse"
    with pytest.raises(BadRecord, match="key field 'email' is empty"):
        it.primary_key(b'{"shop":1,"email":"  "}', FILE)
    with pytest.raises(BadRecord, match="key field 'email' is not UTF-8"):
        it.primary_key(b'{"shop":1,"email":"\xff"}', FILE)


def test_one_field_is_what_it_always_was() -> None:
    plain = adapter("shop")
    for same in (["shop"], {"field": "shop"}, [{"field": "shop"}]):
        assert adapter(same).rule() == plain.rule()
        assert type(adapter(same)._primary) is type(plain._primary)
    rules = [
        plain.rule(),
        adapter(TWO).rule(),
        adapter(TWO[::-1]).rule(),
        adapter({"field": "shop", "as": "number"}).rule(),
        adapter({"field": "shop", "trim": True}).rule(),
        adapter([{"field": "shop", "case": "fold"}, "order"]).rule(),
    ]
    assert len(set(rules)) == len(rules)


def test_one_rule_on_one_side_meets_plain_text_on_the_other() -> None:
    it = adapter("n", {"field": "n", "as": "number"})
    assert it.primary_key(b'{"n":7}', FILE) == it.foreign_header(b'{"n":"007","c":"1","t":1}', FILE).key


@pytest.mark.parametrize(
    ("primary", "foreign", "said"),
    [
        (TWO, "shop", "key has 2 fields in primary and 1 in foreign; write as many on both sides"),
        (["shop", "shop"], TWO, "'shop' stands there twice"),
        ([], TWO, "name the field that holds"),
        (["shop", ""], TWO, "name the field that holds"),
        (list("abcdefghi"), TWO, "a key has at most 8 fields"),
        ([{"field": "shop", "as": "text"}], "shop", "join.x.primary.key[0].as"),
        ([{"field": "shop", "fold": True}], "shop", "unknown field `fold`"),
        ({"field": "shop", "as": "number", "case": "fold"}, "shop", "compared as a number"),
        ([1, 2], TWO, "expected `str | object`, got `int`"),
    ],
)
def test_what_is_wrong_with_a_key_is_one_line(primary: Any, foreign: Any, said: str) -> None:
    with one_line(AdapterError, said):
        adapter(primary, foreign)


def test_a_part_that_is_no_column_is_refused() -> None:
    with pytest.raises(AdapterError, match="no column has this name, known are shop, c, t"):
        adapter(TWO, format="csv", columns=["shop", "c", "t"])


def test_protobuf_reads_all_parts_and_its_rule_knows_where_they_stand(tmp_path: Path) -> None:
    (tmp_path / "event.pb").write_bytes(descriptor_set())
    side: dict[str, Any] = {"format": "protobuf", "descriptor": "event.pb", "message": "test.Event"}
    foreign = {**side, "id": "text", "time": {"field": "number", "unit": "s"}}

    def made(*key: str) -> ConfiguredAdapter:
        tables = {"primary": {**side, "key": list(key)}, "foreign": {**foreign, "key": list(key)}}
        return ConfiguredAdapter({**tables, "where": "join.x", "base": str(tmp_path)})

    message = event_class(descriptor_set())(key={"name": "a|b"}, text="t1", number=7)
    record = base64.b64encode(message.SerializeToString())
    it = made("key.name", "number")
    assert it.primary_key(record, FILE) == b"a~1b|7"
    assert it.foreign_header(record, FILE) == ForeignHeader(b"a~1b|7", 7 * 10**9, b"t1")
    assert it.primary_keys(record + b"\n", FILE) == [b"a~1b|7"]
    assert len({made("key.name", "number").rule(), made("number", "key.name").rule(), made("number").rule()}) == 3
