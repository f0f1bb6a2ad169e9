"""The configuration of a join described by a few words."""

from __future__ import annotations

import json
import tomllib
import traceback
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from photon.adapters.inference import describe
from photon.config.errors import UsageError
from photon.library.written_config import config_file, said_words, settings_of
from photon.local_join.given import Given
from photon.local_join.words import Refused, config_text, described, words_of

NOTHING: dict[str, Any] = dict.fromkeys(["config", "key", "primary_key", "foreign_key", "id", "time", "format"])
names = st.text(st.characters(codec="utf-8"), max_size=5)
scalars = st.booleans() | st.integers(-(1 << 62), 1 << 62) | st.floats(allow_nan=False) | names
tables = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3))


@given(st.dictionaries(names, tables, max_size=4))
def test_toml_says_what_it_was_given(table: dict[str, Any]) -> None:
    assert tomllib.loads(config_text(table)) == {"join": {"join": table}}


def written(tmp_path: Path, **words: Any) -> Any:
    """The join's table for these logs."""
    for side, record in (("orders", {"shop": 1, "order": "o1"}), ("payments", {"order": "o1", "at": 1_760_000_000})):
        (tmp_path / side).mkdir(exist_ok=True)
        lines = [json.dumps(record | {"n": n}) + "\n" for n in range(20)]
        (tmp_path / side / "a.log").write_text("".join(lines))
    return table_of((tmp_path / "orders", tmp_path / "payments"), **words)


def table_of(logs: tuple[Path, Path], **words: Any) -> Any:
    told = said_words(**{**NOTHING, **words}, more={})
    toml, _ = described(told, Given(logs[0]), Given(logs[1]))
    assert words_of_options(told.options()) == told
    return tomllib.loads(toml)["join"]["join"]


def words_of_options(options: list[str]) -> Any:
    """As the command line reads them."""
    found: dict[str, Any] = {}
    for name, value in zip(options[::2], options[1::2], strict=True):
        name = name[2:].replace("-", "_")
        if name in ("id", "time", "unit"):
            found[name] = value
        else:
            found.setdefault(name, []).append(value)
    return words_of(**found)


def test_what_is_said_stands_there_and_the_rest_is_found(tmp_path: Path) -> None:
    found = {"primary": {"key": "order", "format": "jsonl"},
             "foreign": {"key": "order", "format": "jsonl", "time": {"field": "at", "unit": "s"}}}  # fmt: skip
    assert written(tmp_path, key="order") == written(tmp_path, key="order", time="at") == found
    assert settings_of({"unmatched_after": "1h"}) == ['join.join.unmatched_after="1h"']
    both = written(tmp_path, primary_key=["shop", "order"], foreign_key="order", id="n")
    assert (both["primary"]["key"], both["foreign"]["id"]) == (["shop", "order"], "n")
    told = {"key": "k", "time": {"field": "t", "unit": "ms"}, "format": {"primary": "csv", "foreign": "logfmt"}}
    assert written(tmp_path, **told) == {
        "primary": {"format": "csv", "key": "k"},
        "foreign": {"format": "logfmt", "key": "k", "time": {"field": "t", "unit": "ms"}},
    }
    adapter = tomllib.loads(config_file({"adapter": "mine.py:Mine"}))["join"]["join"]["adapter"]
    assert adapter == f"{Path('mine.py').absolute()}:Mine"


def shop(tmp_path: Path) -> tuple[Path, Path]:
    """Orders as CSV with semicolons, payments with two times and an id of their own."""
    (tmp_path / "orders").mkdir()
    (tmp_path / "payments").mkdir()
    orders = ["order_id;who\n", *(f"ord-{n * 7919:012x};w{n % 3}\n" for n in range(40))]
    (tmp_path / "orders" / "a.csv").write_text("".join(orders))
    with (tmp_path / "payments" / "payments.log").open("w") as payments:
        for n in range(40):
            paid = {"payment_id": f"p{n * 7919:08x}", "order_id": f"ord-{n * 7919:012x}"}
            at = {"created_at": 1_760_000_000 + n, "settled_at": 1_760_000_900 - n}
            payments.write(json.dumps(paid | at) + "\n")
    return tmp_path / "orders", tmp_path / "payments"


def test_what_is_told_holds_while_the_key_is_found(tmp_path: Path) -> None:
    logs = shop(tmp_path)

    def found(**words: Any) -> Any:
        return table_of(logs, **words)

    both = {
        "primary": {"format": "csv", "delimiter": ";", "key": "order_id"},
        "foreign": {"format": "jsonl", "key": "order_id", "id": "payment_id",
                    "time": {"field": "created_at", "unit": "s"}},
    }  # fmt: skip
    assert found(time="created_at") == both
    assert found(time={"field": "created_at", "unit": "s"}) == both
    assert found(time="created_at", id="order_id")["foreign"]["id"] == "order_id"
    for words in ({"primary_key": "order_id"}, {"foreign_key": "order_id"}, {"format": {"primary": "csv"}}):
        assert found(time="created_at", **words) == both
    other = found(time="created_at", format={"primary": "tsv"})
    assert other["primary"] == {"format": "tsv", "key": "order_id"}
    for key in ("order_id", None):
        with pytest.raises(UsageError) as wrong:
            found(key=key, id="payment_id")
        said = str(wrong.value)
        assert said.startswith("the foreign logs have several times: the event time may be created_at, settled_at;")
    assert tomllib.loads(wrong.value.example)["join"]["join"]["foreign"]["id"] == "payment_id"
    assert wrong.value.example.strip() in "".join(traceback.format_exception(wrong.value))
    for words, problem in (
        ({"time": "paid"}, "^the foreign logs have no field 'paid' for the event time; they have payment_id, "),
        ({"time": {"field": "created_at", "unti": "s"}}, "^time: .*unti"),
        ({"time": "created_at", "primary_key": ["order_id", "who"]}, "^the key is order_id, who on one side; give "),
    ):
        with pytest.raises(UsageError, match=problem):
            found(**words)


def test_the_event_id_is_found_beside_a_time_that_is_told(tmp_path: Path) -> None:
    time = {"field": "created_at", "unit": "s"}
    logs = shop(tmp_path)
    for formats in (None, {"primary": "csv", "foreign": "jsonl"}):
        foreign = table_of(logs, key="order_id", time=time, format=formats)["foreign"]
        assert foreign == {"key": "order_id", "format": "jsonl", "id": "payment_id", "time": time}


def test_contradictions_are_one_line(tmp_path: Path) -> None:
    for words, said in (
        ({"config": {}, "key": "k"}, "config and key both describe"),
        ({"key": "k", "foreign_key": "k"}, "key is for both sides"),
        ({"key": "order", "time": "n"}, "unknown unit or format in 'n'"),
        (
            {"key": "order", "time": "x"},
            "the foreign logs have no field 'x' for the event time; they have order, at",
        ),
    ):
        with pytest.raises(UsageError, match=said):
            written(tmp_path, **words)


def test_a_side_is_described_by_its_records() -> None:
    lines = {"clicks.csv": [b"click_id;who;at", *(b"c%d;w;2026-01-01T00:00:%02dZ" % (7**n, n) for n in range(20))]}
    table = {
        "key": "who", "format": "csv", "delimiter": ";", "id": "click_id",
        "time": {"field": "at", "format": "iso8601"},
    }  # fmt: skip
    assert describe(lines, {"key": "who"}, foreign=True) == (
        table,
        (
            "event time = 'at' (iso8601, UTC where no zone is given)",
            "event id = 'click_id': unique, and named as the event's own",
        ),
    )
    assert describe(lines, {"key": "who"}, foreign=False) == (
        {"key": "who", "format": "csv", "delimiter": ";"},
        (),
    )
    assert "without a common layout" in str(describe({"a": [b"?"]}, {"key": "k"}, foreign=True))
    assert "give time a unit" in str(describe({"a": [b"?"]}, {"key": "k", "format": "regex"}, foreign=True))
    zeek = {"key": "k", "format": "zeek"}
    assert describe({"a": []}, zeek, foreign=True) == (zeek, ())


def test_a_key_that_no_record_has_is_named_with_the_fields_there_are(tmp_path: Path) -> None:
    for words, said in (
        ({"key": "nowhere"}, "the primary logs have no field 'nowhere' for the key; they have shop, order, n"),
        ({"primary_key": "order", "foreign_key": "x"}, "the foreign logs have no field 'x' for the key; they have"),
        ({"foreign_key": "x"}, "the foreign logs have no field 'x' for the key; they have order, at, n"),
        ({"key": "order", "id": "y"}, "the foreign logs have no field 'y' for the event id; they have order, at, n"),
    ):
        with pytest.raises(UsageError, match=said):
            written(tmp_path, **words)


def test_what_is_unclear_can_be_said_by_options(tmp_path: Path) -> None:
    """The words of a refusal, given to the same logs, are a configuration."""
    (tmp_path / "orders").mkdir()
    (tmp_path / "payments").mkdir()
    (tmp_path / "orders" / "a.csv").write_text("id,item\n" + "".join(f"{n},i{n % 2}\n" for n in (1, 2, 3)))
    rows = "".join(f"{n},{n * 5},{1_760_000_000 + n},{1_760_000_900 - n}\n" for n in (1, 2, 3))
    (tmp_path / "payments" / "a.csv").write_text("order_id,amount,paid_at,seen_at\n" + rows)
    logs = Given(tmp_path / "orders"), Given(tmp_path / "payments")
    with pytest.raises(Refused, match="may number the foreign records") as refused:
        described(words_of(), *logs)
    options = list(refused.value.words)
    assert options == ["--primary-key", "id", "--foreign-key", "order_id", "--time", "paid_at"]
    toml, lines = described(words_of_options(options), *logs)
    table = tomllib.loads(toml)["join"]["join"]
    assert (table["primary"]["key"], table["foreign"]["key"]) == ("id", "order_id")
    assert table["foreign"]["time"] == {"field": "paid_at", "unit": "s"}
    assert any(line.startswith("No event id found") for line in lines)
    told = words_of(time="{ field = 'at', format = '%d.%m.%Y', zone = 'Europe/Berlin' }")
    assert told.time == {"field": "at", "format": "%d.%m.%Y", "zone": "Europe/Berlin"}


def test_a_key_may_be_said_as_a_table(tmp_path: Path) -> None:
    """The words that are proposed for keys in another writing, given to the same logs, are a configuration."""
    for side, rows in (("orders", "%d.0,1\n"), ("payments", "%08d,1\n")):
        (tmp_path / side).mkdir()
        (tmp_path / side / "a.csv").write_text("order,price\n" + "".join(rows % (10248 + n * 37) for n in range(60)))
    logs = Given(tmp_path / "orders"), Given(tmp_path / "payments")
    with pytest.raises(Refused, match="if its values are compared as numbers") as refused:
        described(words_of(), *logs)
    options = list(refused.value.words)
    assert options == ["--key", '{ field = "order", as = "number" }']
    words = words_of_options(options)
    assert words.options() == options
    table = tomllib.loads(described(words, *logs)[0])["join"]["join"]
    assert table["primary"]["key"] == table["foreign"]["key"] == {"field": "order", "as": "number"}
    with pytest.raises(UsageError, match="give the fields of the other, too"):
        described(words_of(primary_key=options[1:]), *logs)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"key": ["{ field ="]}, "--key .*is not a TOML table"),
        ({"time": "{ field ="}, "is not a TOML table"),
        ({"time": "{ feld = 'at' }"}, "time: .*feld"),
        ({"unit": "ms"}, "unit requires time"),
        ({"format": ["csv", "tsv"]}, "give one format"),
        ({"format": ["clicks=csv"]}, "clicks is not a side"),
        ({"key": ["a"], "primary_key": ["b"]}, "key is for both sides"),
    ],
)
def test_options_that_cannot_be_are_one_line(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        words_of(**options)
