"""Keys that differ in their writing, are a part of a field, or take two fields: proposed with the words to say."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import ForeignHeader, LogFile
from photon.adapters.inference import Inferred, Sample, Unclear, infer
from photon.adapters.inference.keys import Keys
from photon.adapters.inference.rows import read_side

ROWS = 60
UUID = "{:08x}-5f3a-4b1c-8d2e-{:012x}"
TRACE = "{:032x}"


def check(tables: dict[str, Any], primary: Sample, foreign: Sample) -> None:
    """Checks that the configuration joins every foreign record with one primary record."""
    it = ConfiguredAdapter(tables)
    keys: list[set[bytes]] = []
    for side, sample in (("primary", primary), ("foreign", foreign)):
        ((name, records),) = sample.items()
        header = bool(getattr(it, f"{side}_has_header"))
        file, rest = LogFile(name, records[0] if header else b""), list(records[header:])
        if side == "primary":
            own = [key for key in it.primary_keys_of(rest, file) if key]
            assert len(set(own)) == len(own) == len(rest)
        else:
            own = [each.key for each in it.header_columns(rest, file).rows() if isinstance(each, ForeignHeader)]
            assert len(own) == len(rest)
        keys.append(set(own))
    assert keys[1] <= keys[0]


def proposed(primary: Sample, foreign: Sample) -> Unclear:
    found = infer(primary, foreign)
    assert isinstance(found, Unclear), found
    assert "\n" not in found.problem + found.todo
    (tables,) = tomllib.loads(found.example)["join"].values()
    check(tables, primary, foreign)
    return found


def logs(one: Callable[[int], object], other: Callable[[int], object]) -> tuple[Sample, Sample]:
    primary = [orjson.dumps({"order": one(n), "c": n % 7}) for n in range(ROWS)]
    at = "2024-03-01T10:00:%02dZ"
    foreign = [orjson.dumps({"event_id": f"e{n}", "order": other(n), "at": at % n}) for n in range(ROWS)]
    return {"orders.log": primary}, {"pays.log": foreign}


@pytest.mark.parametrize(
    ("one", "other", "key"),
    [
        (lambda n: f"GA{n * 7919:06d}", lambda n: f"GA{n * 7919:06d}   ", '{ field = "order", trim = true }'),
        (lambda n: str(10248 + n * 37), lambda n: f"{10248 + n * 37}.0", '{ field = "order", as = "number" }'),
        (lambda n: 10248 + n * 37, lambda n: float(10248 + n * 37), '{ field = "order", as = "number" }'),
        (lambda n: str(10248 + n * 37), lambda n: f"{10248 + n * 37:010d}", '{ field = "order", as = "number" }'),
        (lambda n: f"{n * 7919:08x}-ab", lambda n: f"{n * 7919:08X}-AB", '{ field = "order", case = "fold" }'),
        (
            lambda n: f" {n * 104729:08x}-ab",
            lambda n: f"{n * 104729:08X}-AB ",
            '{ field = "order", trim = true, case = "fold" }',
        ),
        (
            lambda n: UUID.format(n * 104729, n),
            lambda n: "{" + UUID.format(n * 104729, n).upper() + "}",
            '{ field = "order", as = "uuid" }',
        ),
    ],
)  # fmt: skip
def test_another_writing_is_proposed_and_not_taken(
    one: Callable[[int], object], other: Callable[[int], object], key: str
) -> None:
    found = proposed(*logs(one, other))
    assert found.words[:2] == ("--key", key)
    assert "'order' could be the key if" in found.problem


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (
            lambda n: f"Cj0K{n * 104729:08x}_wcB",
            lambda n: f"https://a.example/p/{n}?utm=g&gclid=Cj0K{n * 104729:08x}_wcB#top",
            'key = \'order\' of the primary records, { field = "order", part = "?gclid" } of the foreign ones',
        ),
        (
            lambda n: f"00-{TRACE.format(n * 104729 + 1)}-00f067aa0ba902b7-01",
            lambda n: TRACE.format(n * 104729 + 1),
            'key = { field = "order", part = "traceparent" } of the primary records, \'order\' of the foreign ones',
        ),
        (
            lambda n: f"1-{n * 104729:08x}-23a8c76965ef",
            lambda n: f"Self=1-1-2;Root=1-{n * 104729:08x}-23a8c76965ef",
            'key = \'order\' of the primary records, { field = "order", part = "x-amzn-trace-id" } of the foreign',
        ),
    ],
)
def test_a_part_of_a_field_is_found(one: Callable[[int], object], other: Callable[[int], object], said: str) -> None:
    sides = logs(one, other)
    found = infer(*sides)
    assert isinstance(found, Inferred), found
    assert said in found.explanation[1]
    (tables,) = tomllib.loads(found.toml)["join"].values()
    check(tables, *sides)


def test_the_id_in_a_trace_header_is_evidence_like_a_name() -> None:
    """Dense ids, as those made within seconds in a test, are taken from a header, and not without one."""
    header = logs(lambda n: f"Root=1-{0x65E18C7F + n:08x}-00", lambda n: f"1-{0x65E18C7F + n:08x}-00")
    found = infer(*header)
    assert isinstance(found, Inferred), found
    assert 'part = "x-amzn-trace-id"' in found.explanation[1]
    plain = infer(*logs(lambda n: f"R=1-{0x65E18C7F + n:08x}-00", lambda n: f"1-{0x65E18C7F + n:08x}-00"))
    assert isinstance(plain, Unclear)
    few = infer(*logs(lambda n: f"Root=1-{0x65E18C7F + n:08x}-00", lambda n: f"1-{0x65E18C7F + 2 * n:08x}-00"))
    assert isinstance(few, Unclear), "only half of the values are there"


def test_two_fields_together_are_proposed() -> None:
    places = [(n, line) for n in range(ROWS) for line in (1, 2, 3)]
    lines = [b"order,line,sku", *(b"SO%07d,%d,S%d" % (n * 7919, line, n % 17) for n, line in places)]
    returns = [b"return_id,order_no,line,returned_at"]
    returns += [b"R%04d,SO%07d,%d,2024-03-01T10:00:%02dZ" % (n, n * 7919, 1 + n % 3, n) for n in range(ROWS)]
    found = proposed({"lines.csv": lines}, {"returns.csv": returns})
    assert found.words[:8] == (
        "--primary-key", "order", "--primary-key", "line", "--foreign-key", "order_no", "--foreign-key", "line",
    )  # fmt: skip
    assert "60 of 60 foreign pairs of values" in found.problem


@pytest.mark.parametrize("other", [lambda n: f"X{n * 31:05d}", lambda n: f"{n * 77 + 5}.5", lambda n: " "])
def test_nothing_is_proposed_without_evidence(other: Callable[[int], object]) -> None:
    found = infer(*logs(lambda n: f"GA{n * 7919:06d}", other))
    assert isinstance(found, Unclear)
    assert "could be" not in found.problem


def test_a_side_is_rewritten_only_if_that_changes_something() -> None:
    side = read_side(logs(lambda n: f"a{n}", lambda n: n)[0])
    assert not isinstance(side, str)
    assert side.rewritten({"case": "fold"}) is None
    assert side.rewritten({"as": "uuid"}) is None
    upper = read_side(logs(lambda n: f"A{n}", lambda n: n)[0])
    assert not isinstance(upper, str)
    folded = upper.rewritten({"case": "fold"})
    assert folded is not None
    assert folded.values("order")[:2] == ["a0", "a1"]
    assert upper.values("order")[:2] == ["A0", "A1"]


def test_a_key_in_json_in_text_is_found() -> None:
    def line(n: int, inner: dict[str, Any]) -> bytes:
        return orjson.dumps({"log": orjson.dumps(inner).decode() + "\n", "stream": "stdout"})

    primary = [line(n, {"request_id": f"{n * 104729:08x}aa", "path": "/"}) for n in range(ROWS)]
    at = "2024-03-01T10:00:%02dZ"
    foreign = [line(n, {"request_id": f"{n * 104729:08x}aa", "at": at % n, "level": "error"}) for n in range(ROWS)]
    found = infer({"web.log": primary}, {"app.log": foreign})
    assert not isinstance(found, Unclear), found
    assert (found.primary.key, found.foreign.key) == ("log.request_id", "log.request_id")
    assert found.foreign.field_time is not None
    assert found.foreign.field_time.field == "log.at"


def test_pairs_of_fields_are_shown_with_the_same_names_first() -> None:
    sides = [read_side(each) for each in logs(lambda n: n, lambda n: n % 7)]
    primary, foreign = sides
    assert not isinstance(primary, str)
    assert not isinstance(foreign, str)
    found = Keys(primary, foreign, whole=True).pairs(1.0)
    assert [(each.primary, each.foreign) for each in found] == [("order", "order"), ("c", "order")]
