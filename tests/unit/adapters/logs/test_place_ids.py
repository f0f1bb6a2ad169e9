"""Ids by place: a pure function of the log's bytes, regardless of cuts, framing, packing and names."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from photon.adapters.contract import Framing
from photon.adapters.logs.follower import Follower
from photon.adapters.logs.place_ids import CONTEXT_BYTES, place_id, place_ids
from photon.adapters.logs.slices import Reading, cut, read_slice, standing_logs
from photon.joiner.foreign_columns import records_of
from tests.unit.adapters.framings import Prefixed, prefixed

lines = st.lists(
    st.binary(min_size=1, max_size=200).map(lambda data: data.replace(b"\n", b" ")), min_size=1, max_size=60
)


def ids_of(blocks: list, begin: int = 0) -> list[bytes]:  # type: ignore[type-arg]
    return [each for b in blocks for each in place_ids(b.data, b.offset, b.before, *records_of(b))]


@given(lines, st.data())
def test_wherever_a_log_is_cut_into_blocks(records: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(record + b"\n" for record in records)
    offsets = [sum(len(each) + 1 for each in records[:at]) for at in range(len(records))]
    at = data.draw(st.integers(0, len(records) - 1))
    begin = offsets[at]
    of_all = place_ids(whole, 0, b"", records, offsets)
    front = whole[max(begin - CONTEXT_BYTES, 0) : begin]
    assert place_ids(whole[begin:], begin, front, records[at:], offsets[at:]) == of_all[at:]
    assert place_id(records[at], begin, lambda offset, length: whole[offset : offset + length]) == of_all[at]
    assert len(set(of_all)) == len(of_all), "equal lines stand at different places"


def test_logs_have_different_ids_from_their_first_difference_on() -> None:
    begin = [b"started", b"tick"]
    one, two = [*begin, b"a", b"tick"], [*begin, b"b", b"tick"]
    offsets = [0, 8, 13, 15]
    ids = [place_ids(b"".join(each + b"\n" for each in log), 0, b"", log, offsets) for log in (one, two)]
    assert [x == y for x, y in zip(*ids, strict=True)] == [True, True, False, False]


def test_without_what_stands_before_it_there_is_no_id() -> None:
    with pytest.raises(ValueError, match="needs the bytes before offset 100, but only 7 were given"):
        place_ids(b"x\n", 100, b"1234567", [b"x"], [100])


@pytest.mark.parametrize("kind", ["lines", "quoted", "zeek", "varint", "cri", "own"])
@pytest.mark.parametrize("packed", [False, True])
def test_followers_and_slices_agree_under_any_name(tmp_path: Path, kind: str, packed: bool) -> None:
    text = {
        "lines": b"".join(b"line %d\r\n" % n for n in range(2000)),
        "quoted": b"".join(b'%d,"two\nlines %d"\n' % (n, n) for n in range(2000)),
        "zeek": b"".join(b"#fields\ta\n" * (n % 700 == 0) + b"line %d\n" % n for n in range(2000)),
        "varint": b"".join(b"\x05%05d" % n for n in range(2000)),
        "cri": b"".join(
            b"2024-03-01T10:00:00Z stdout %b line %d\n" % (b"PF"[n % 2 : n % 2 + 1], n) for n in range(2000)
        ),
        "own": prefixed(b"record %d" % n for n in range(2000)),
    }[kind]
    framing, found = Prefixed() if kind == "own" else Framing(kind), []
    for name in ("a.log", "moved/b-2024.log"):
        path = tmp_path / name.replace("/", "-dir/")
        path.parent.mkdir(exist_ok=True)
        path = path.with_name(path.name + ".gz" * packed)
        path.write_bytes(gzip.compress(text) if packed else text)
        follower = Follower(path.parent, patterns=[path.name], has_header=False, framing=framing)
        follower.scan()
        blocks = []
        while some := follower.poll(1000, final=True):
            blocks += some
        follower.close()
        found.append(ids_of(blocks))
        reading = Reading(patterns=[path.name], framing=framing)
        (log,) = standing_logs(path.parent, reading, lambda problem: None)
        for size in (5000, 1 << 30):
            sliced = [block for part in cut(log, size) for block in read_slice(path.parent, part, reading)]
            found.append(ids_of(sliced))
    assert len(found[0]) in (1000, 2000)
    assert all(each == found[0] for each in found)
