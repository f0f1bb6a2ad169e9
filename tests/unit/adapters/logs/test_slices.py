"""Slices of an unchanging log own each record once, wherever they are cut, as the follower reads them."""

from __future__ import annotations

import gzip
import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.adapters.contract import Framing
from photon.adapters.logs.api import Block
from photon.adapters.logs.follower import Follower
from photon.adapters.logs.problems import Problem, ProblemKind
from photon.adapters.logs.slices import LogUnreadable, Reading, Slice, cut, read_slice, standing_logs
from photon.adapters.logs.unended_lines import RestRule

LINES = st.lists(st.binary(max_size=60).map(lambda b: b.replace(b"\n", b"\0")), min_size=1, max_size=30)


def rows(blocks: list[Block]) -> list[tuple[int, bytes]]:
    """(offset, record), and the oversized ones with their heads."""
    out = []
    for block in blocks:
        at = block.offset
        for line in block.data.split(b"\n")[:-1]:
            out.append((at, line))
            at += len(line) + 1
        out += [(long.offset, long.head) for long in block.oversized]
    return out


def followed(directory: Path, reading: Reading) -> list[tuple[int, bytes]]:
    follower = Follower(
        directory, has_header=reading.has_header, framing=reading.framing, max_record=reading.max_record,
        rest=reading.rest,
    )  # fmt: skip
    blocks: list[Block] = []
    for _ in range(3):
        follower.scan()
        while more := follower.poll(1 << 20, final=True):
            blocks += more
    follower.close()
    return sorted(rows(blocks))


def sliced(directory: Path, reading: Reading, step: int) -> list[tuple[int, bytes]]:
    reports: list[Problem] = []
    logs = standing_logs(directory, reading, reports.append)
    assert reports == []
    blocks = [b for log in logs for part in cut(log, step) for b in read_slice(directory, part, reading)]
    return rows(blocks)


@settings(deadline=None, max_examples=60)
@given(LINES, st.booleans(), st.booleans(), st.integers(1, 300))
def test_each_record_is_in_one_slice(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], ended: bool, rests: bool, step: int
) -> None:
    directory = tmp_path_factory.mktemp("logs")
    data = b"first\n" + b"\n".join(lines) + (b"\n" if ended else b"")
    (directory / "a.log").write_bytes(data)
    reading = Reading(max_record=40, rest=None if rests else RestRule(3600, time.time_ns))
    assert sliced(directory, reading, step) == followed(directory, reading)


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
@pytest.mark.parametrize("kind", ["lines", "quoted", "zeek"])
def test_headers_and_framings_are_the_followers(tmp_path: Path, name: str, kind: str) -> None:
    lines = [b"#fields\tx\ty" if kind == "zeek" else b"x,y"]
    lines += [b'%d,"some\ntext %d"' % (n, n) if kind == "quoted" else b"%d,text %d" % (n, n) for n in range(5000)]
    data = b"\n".join(lines) + b"\n"
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    reading = Reading(has_header=kind != "zeek", framing=Framing(kind))
    got = sliced(tmp_path, reading, 10_000)
    assert got == followed(tmp_path, reading)
    assert len(got) == 5000


def test_the_header_that_is_in_force_where_a_slice_begins_is_found_if_nobody_names_it(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"#fields\tx\n1\n#fields\ty\n2\n3\n")
    reading = Reading(framing=Framing("zeek"))
    [log] = standing_logs(tmp_path, reading, print)
    [block] = read_slice(tmp_path, Slice(log, 24, None), reading)
    assert (block.data, block.file.header) == (b"3\n", b"#fields\ty")


def test_a_record_whose_last_part_is_not_written_yet_waits(tmp_path: Path) -> None:
    head = b"2024-03-01T10:00:00Z stdout "
    (tmp_path / "0.log").write_bytes(head + b"F one\n" + head + b"P half\n")
    reading = Reading(framing=Framing("cri"))
    assert [row[-1] for row in sliced(tmp_path, reading, 10)] == [head + b"one"]


@pytest.mark.parametrize(
    ("names", "age_s", "counts"),
    [
        (["a.log"], 59, False),
        (["a.log"], 61, True),
        (["a.log.1", "a.log"], 0, True),
        (["a.log.gz"], 0, True),
    ],
)
@pytest.mark.parametrize("data", [b"one", b"one\ntwo"])
def test_a_last_line_counts_as_for_the_follower(
    tmp_path: Path, names: list[str], age_s: int, counts: bool, data: bytes
) -> None:
    now_s = 1_790_000_000
    for number, name in enumerate(names):
        text = data if number == 0 else b"other\n"
        (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
        os.utime(tmp_path / name, (now_s, now_s + number))
    reading = Reading(rest=RestRule(60, lambda: (now_s + age_s) * 10**9))
    got = sliced(tmp_path, reading, 10)
    assert sorted(got) == followed(tmp_path, reading)
    assert ((data.rfind(b"\n") + 1, data.split(b"\n")[-1]) in got) is counts


def test_a_log_under_two_names_counts_once(tmp_path: Path) -> None:
    data = b"one\ntwo\n"
    (tmp_path / "a.log.1").write_bytes(data)
    (tmp_path / "a.log.1.gz").write_bytes(gzip.compress(data))
    (tmp_path / "a.log").write_bytes(data)
    reports: list[Problem] = []
    logs = standing_logs(tmp_path, Reading(), reports.append)
    assert [log.path for log in logs] == ["a.log"]
    assert [(each.kind, each.path) for each in reports] == [(ProblemKind.COPY, "a.log.1")]


def test_a_damaged_log_is_read_up_to_there(tmp_path: Path) -> None:
    data = b"".join(b"%d some text\n" % n for n in range(50_000))
    packed = gzip.compress(data)
    (tmp_path / "a.log.gz").write_bytes(packed[: len(packed) // 2])
    (log,) = standing_logs(tmp_path, Reading(), lambda problem: None)
    blocks: list[Block] = []
    with pytest.raises(LogUnreadable, match="is incomplete") as caught:
        blocks.extend(read_slice(tmp_path, cut(log, 1)[0], Reading()))  # keeps what came before
    assert caught.value.offset == blocks[-1].end
    assert len(rows(blocks)) > 10_000
    assert not caught.value.is_whole


@pytest.mark.parametrize("at", [-8, -6, -1])
def test_a_wrong_checksum_loses_no_record(tmp_path: Path, at: int) -> None:
    data = b"".join(b"%d some text\n" % n for n in range(50_000))
    packed = bytearray(gzip.compress(data))
    packed[at] ^= 1
    (tmp_path / "a.log.gz").write_bytes(packed)
    (log,) = standing_logs(tmp_path, Reading(), lambda problem: None)
    blocks: list[Block] = []
    with pytest.raises(LogUnreadable) as caught:
        blocks.extend(read_slice(tmp_path, cut(log, 1)[0], Reading()))
    assert (len(rows(blocks)), caught.value.is_whole, caught.value.offset) == (50_000, True, len(data))
    (tmp_path / "a.log.gz").write_bytes(bytes(packed) + gzip.compress(b"one more\n"))
    (log,) = standing_logs(tmp_path, Reading(), lambda problem: None)
    with pytest.raises(LogUnreadable) as caught:
        list(read_slice(tmp_path, cut(log, 1)[0], Reading()))
    assert not caught.value.is_whole, "nobody reads the member that follows"
