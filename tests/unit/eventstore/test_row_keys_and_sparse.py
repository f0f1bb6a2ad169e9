"""Row keys order like ids; the sparse invariant holds for any order of ids."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.eventstore.sparse import PREFIX_BYTES, micros_of, parse_event_id, row_key, sparse_additions


@pytest.mark.parametrize(
    "key",
    [
        b"",
        b"plain",
        b"10.0.0.1:5",
        b"10.0.0.1:5:",
        b"10.0.0.1:5:-1",
        b"10.0.0.1:05:1",
        b"10.0.0.1:5:01",
        b"10.0.0.01:5:1",
        b"10.0.0.1:4294967296:1",
        b"10.0.0.1:5:9223372036854775808",
        b"10.0.0.1:5:99999999999999999999999",
        b"host:5:1",
        b"2001:DB8::1:5:1",
        b"\xff:5:1",
        "10.0.0.1:5:１".encode(),
    ],
)
def test_what_is_no_canonical_id(key: bytes) -> None:
    assert parse_event_id(key) is None


@pytest.mark.parametrize("ip", [b"10.0.0.1", b"2001:db8::1", b"::1"])
def test_row_keys_order_like_ids_within_a_process(ip: bytes) -> None:
    rows = []
    for micros in (0, 1, 255, 256, 2**40, 2**63 - 1):
        parsed = parse_event_id(b"%s:5:%d" % (ip, micros))
        assert parsed is not None
        rows.append(row_key(*parsed))
        assert micros_of(rows[-1]) == micros
        assert len(rows[-1]) == PREFIX_BYTES + 8
    assert rows == sorted(rows)
    other = parse_event_id(b"%s:6:1" % ip)
    assert other is not None
    assert not rows[0] <= row_key(*other) <= rows[-1]
    assert row_key(rows[0][:21], -5) == rows[0]


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 60)), max_size=40), st.integers(1, 20), st.integers(1, 50)
)
def test_each_is_exact_or_in_reach_of_the_one_before(
    events: list[tuple[int, int]], window_micros: int, window_bytes: int
) -> None:
    keys = [b"10.0.0.%d:1:%d" % event for event in events]
    offsets = [7 * i for i in range(len(keys))]
    half = len(keys) // 2
    states: dict = {}  # type: ignore[type-arg]
    windows = {"window_micros": window_micros, "window_bytes": window_bytes}
    first = sparse_additions(keys[:half], offsets[:half], states, lambda p: None, **windows)
    second = sparse_additions(keys[half:], offsets[half:], {}, states.get, **windows)  # as after a restart
    exact = {*first.exact, *(half + i for i in second.exact)}
    entries = first.entries + second.entries
    for i, key in enumerate(keys):
        if i in exact:
            continue
        parsed = parse_event_id(key)
        assert parsed is not None
        prefix, micros = parsed
        last = max((e for e in entries if e.prefix == prefix and e.micros <= micros), key=lambda e: e.micros)
        assert micros - last.micros <= window_micros
        assert last.offset <= offsets[i] < last.offset + window_bytes


def test_a_rising_process_costs_one_entry_a_window() -> None:
    keys = [b"10.0.0.1:1:%d" % (i * 100) for i in range(1000)]
    out = sparse_additions(keys, [i * 10 for i in range(1000)], {}, lambda p: None, window_micros=10_000)
    assert len(out.entries) == 10  # 101 records fit into W
    assert out.exact == []
