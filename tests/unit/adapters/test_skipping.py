"""Records that are no events of a side: skipped alike one by one and in columns, in every format, and not counted."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from photon.adapters.conditions import Condition, value_test
from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import Adapter, BadRecord, LogFile, Skipped
from photon.adapters.formats.json_values import MISSING
from photon.adapters.testkit import Samples, check_adapter
from photon.adapters.testkit.samples import Sample
from photon.adapters.testkit.trial import try_file
from photon.eventstore.block_keys import block_keys
from tests.unit.adapters.messages import descriptor_set, event_class

FILE = LogFile("a.log")
TIME = {"field": "t", "unit": "ms"}
FLOW = [{"field": "kind", "differs": "flow"}]

KINDS = [b"flow", b"alert", b"flow", b"7", b"tls"]


def adapter(skip: Any, **side: Any) -> ConfiguredAdapter:
    side = {"key": "k", "skip": skip, **(side or {"format": "jsonl"})}
    return ConfiguredAdapter({"primary": side, "foreign": {"id": "c", "time": TIME, **side}, "where": "join.x"})


def answers(it: Adapter, records: list[bytes], file: LogFile = FILE) -> list[bytes | None]:
    """The keys of primary records, after checks that all forms agree, and that foreign records give the same."""
    block = b"".join(record + b"\n" for record in records)
    keys: list[bytes | None] = []
    for record in records:
        try:
            keys.append(it.primary_key(record, file))
        except Skipped:
            keys.append(b"")
        except BadRecord:
            keys.append(None)
    assert it.primary_keys_of(records, file) == keys
    assert it.primary_keys(block, file) == keys
    headers = it.header_columns(records, file)
    for row, (key, record) in enumerate(zip(keys, records, strict=True)):
        if key:
            assert (row in headers.others, headers.keys[row]) == (False, key)
            assert it.foreign_header(record, file) == headers.rows()[row]
        else:
            assert isinstance(headers.others[row], Skipped) == (key == b"")
            with pytest.raises(Skipped if key == b"" else BadRecord):
                it.foreign_header(record, file)
    return keys


def test_a_line_of_the_block_is_located_as_without_skip() -> None:
    records = [b'{"kind":"%b","k":"k"}' % kind for kind in KINDS]
    block = b"\r\n".join([*records, b""])
    it, plain = adapter(FLOW), adapter([])
    found, other = it.located_primary_keys(block, FILE), plain.located_primary_keys(block, FILE)
    assert found is not None
    assert other is not None
    assert found[1].tolist() == other[1].tolist()
    assert found[0] == [b"k", b"", b"k", b"", b""]


def test_protobuf_is_skipped_by_its_json(tmp_path: Path) -> None:
    (tmp_path / "e.pb").write_bytes(descriptor_set())
    skip = [{"field": "text", "equals": "ping"}]
    side = {"format": "protobuf", "descriptor": "e.pb", "message": "test.Event", "key": "key.name", "skip": skip}
    time = {"field": "at", "format": "timestamp"}
    it = ConfiguredAdapter({"primary": side, "foreign": {**side, "time": time}, "base": str(tmp_path)})
    event = event_class(descriptor_set())
    messages = [event(key={"name": "q1"}, text="ping"), event(key={"name": "q2"}, text="click"), event(text="ping")]
    records = [base64.b64encode(each.SerializeToString()) for each in messages]
    assert it.primary_keys_of(records, FILE) == [b"", b"q2", b""]
    assert it.rule()


def test_a_record_without_the_key_is_skipped_and_not_bad() -> None:
    it = adapter(FLOW)
    records = [b'{"kind":"stats"}', b'{"kind":"flow","k":"a","c":"c","t":1}', b'{"kind":"flow"}', b"no json"]
    assert answers(it, records) == [b"", b"a", None, None]
    found = block_keys(it, b"\n".join([*records, b""]), FILE)
    assert (list(found.keys), found.bad, found.starts.tolist()) == ([b"a"], 2, [17])
    all_good = block_keys(it, records[0] + b"\n" + records[1] + b"\n", FILE)
    assert (list(all_good.keys), all_good.bad) == ([b"a"], 0)


def test_a_subclass_skips_too_and_its_empty_key_is_still_bad() -> None:
    class Own(ConfiguredAdapter):
        def primary_key(self, record: bytes, file: LogFile) -> bytes:
            return b"" if record == b"empty" else super().primary_key(record, file)

    it = Own(adapter(FLOW).options)
    found = block_keys(it, b'{"kind":"stats"}\n{"kind":"flow","k":"a"}\nempty\n', FILE)
    assert (list(found.keys), found.bad) == ([b"a"], 1)


SCALARS = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.sampled_from(["a", "1", "-1", "", "é"])
)
TESTS: list[dict[str, Any]] = [
    {"equals": "a"}, {"equals": 1}, {"equals": ["1", None]}, {"differs": "1"}, {"differs": [1, "a"]},
    {"matches": "[0-9]"}, {"below": 1}, {"above": -1.5}, {"missing": True}, {"missing": False}, {"equals": True},
]  # fmt: skip


@pytest.mark.parametrize("test", TESTS)
@given(values=st.lists(SCALARS | st.just(MISSING), min_size=1, max_size=6))
def test_columns_say_what_the_value_says(test: dict[str, Any], values: list[object]) -> None:
    records = [
        orjson.dumps({"k": "k", "c": "c", "t": 1} | ({} if value is MISSING else {"f": value})) for value in values
    ]
    holds = value_test(Condition(field="f", **test), "x")
    assert answers(adapter([{"field": "f", **test}]), records) == [b"" if holds(each) else b"k" for each in values]


def test_another_skip_is_another_rule() -> None:
    rules = {adapter(skip).rule() for skip in ([], FLOW, [{"field": "kind", "equals": "flow"}])}
    assert len(rules) == 3


def test_a_rare_kind_is_found_by_a_trial(tmp_path: Path) -> None:
    lines = [b'{"k":"k","c":"c","t":1,"kind":"%b"}\n' % kind for kind in [b"tls"] * 300 + [b"flow", b"tls"] * 3]
    (tmp_path / "a.log").write_bytes(b"".join(lines))
    trial = try_file(adapter(FLOW), "primary", tmp_path / "a.log", 2)
    assert [each.line for each in trial.read] == [301, 303]
    assert ([each.line for each in trial.samples], trial.skipped, trial.rejected) == ([301, 303], 301, [])


def test_the_testkit_knows_skipped_primaries() -> None:
    kinds = [b'{"c":"c%d","t":%d,"kind":"%b","k":"k%d"}' % (n, n, kind, n) for n, kind in enumerate([b"flow"] * 3)]
    samples = [Sample(record, FILE, n) for n, record in enumerate(kinds)]
    check_adapter(adapter(FLOW), Samples(samples, samples))
