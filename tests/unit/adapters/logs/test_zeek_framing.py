"""Zeek's header lines in the middle of logs: each record under the header in force, also after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import ForeignHeader, Framing
from photon.adapters.logs import framings as framed_module
from photon.adapters.logs.api import LogPosition
from photon.adapters.logs.framing import Piece
from photon.adapters.logs.zeek_framing import HeaderScan, after_lines, split_headers
from tests.unit.adapters.logs import tails
from tests.unit.adapters.logs.tails import append

ONE = (
    b"#separator \\x09\n#set_separator\t,\n#path\tx\n#open\t2020-04-30-00-00-00\n"
    b"#fields\tts\tuid\n#types\ttime\tstring\n"
)
TWO = b"#close\t2020-04-30\n#separator \\x09\n#open\t2020-04-30-01-00-00\n#fields\tuid\tts\n#types\tstring\ttime\n"
ADAPTER = ConfiguredAdapter(
    {"primary": {"format": "zeek", "key": "uid"}, "foreign": {"format": "zeek", "key": "uid", "id": "uid"}}
)


class Tail(tails.Tail):
    def __init__(self, directory: Path, positions: list[LogPosition] | None = None) -> None:
        super().__init__(directory, positions or (), step=1, framing=Framing("zeek"))

    def records(self, *, final: bool = False) -> list[tuple[bytes, int]]:
        """(id, seconds) of each new one."""
        found = []
        for block in self.new(final=final):
            for header in ADAPTER.header_columns(block.data.split(b"\n")[:-1], block.file).rows():
                assert isinstance(header, ForeignHeader), header
                found.append((header.key, header.event_time_ns // 10**9))
        return found


def test_headers_in_the_middle_hold_from_there_on(tmp_path: Path) -> None:
    path = tmp_path / "conn.log"
    path.write_bytes(ONE)
    tail = Tail(tmp_path)
    assert tail.records() == []
    append(path, b"1.5\ta\n2.5\tb\n" + ONE + b"3.5\tc\n")
    assert tail.records() == [(b"a", 1), (b"b", 2), (b"c", 3)]
    assert len({block.file.header for block in tail.blocks}) == 1  # opened again with the same columns
    append(path, TWO + b"d\t4.5\ne\t5.5\n")
    assert tail.records() == [(b"d", 4), (b"e", 5)]
    data = path.read_bytes()
    for block in tail.blocks:
        assert data[block.offset : block.offset + len(block.data)] == block.data
        assert b"#" not in block.data
    assert not tail.problems
    resumed = Tail(tmp_path, tail.follower.positions())
    append(path, b"f\t6.5\n")
    assert resumed.records() == [(b"f", 6)] == tail.records()
    tail.close()
    resumed.close()


def test_reading_on_at_any_place_finds_the_header_in_force(tmp_path: Path) -> None:
    path = tmp_path / "conn.log"
    data = ONE + b"1.5\ta\n" + TWO + b"b\t2.5\n" + ONE + b"3.5\tc\n"
    path.write_bytes(data)
    tail = Tail(tmp_path)
    expected = tail.records()
    assert expected == [(b"a", 1), (b"b", 2), (b"c", 3)]
    identity = tail.follower.positions()[0].identity
    lines = [at + 1 for at in range(len(data)) if data[at : at + 1] == b"\n"]
    for at in lines[:-1]:
        resumed = Tail(tmp_path, [LogPosition(identity, "conn.log", at)])
        left = resumed.records()
        assert left == expected[len(expected) - len(left) :], at
        resumed.close()
    tail.close()


def test_what_was_handed_out_says_where_to_read_on(tmp_path: Path) -> None:
    """A reader keeps a block's end and header: continuing there gives exactly the remaining records."""
    path = tmp_path / "conn.log"
    path.write_bytes(ONE + b"1.5\ta\n2.5\tb\n" + TWO + b"c\t3.5\n" + ONE + b"4.5\td\n")
    tail = Tail(tmp_path)
    expected = tail.records()
    seen = 0
    for block in tail.blocks:
        seen += block.data.count(b"\n")
        resumed = Tail(tmp_path, [LogPosition(block.identity, "conn.log", block.end, block.file.header)])
        assert resumed.records() == expected[seen:]
        resumed.close()
    tail.close()


def test_byte_order_mark_crlf_and_truncation(tmp_path: Path) -> None:
    path = tmp_path / "conn.log"
    windows = b"\xef\xbb\xbf" + ONE.replace(b"\n", b"\r\n")
    path.write_bytes(windows + b"1.5\ta\r\n2.5\tb\r\n")
    tail = Tail(tmp_path)

    def ids() -> list[bytes]:
        tail.follower.scan()
        return [
            key
            for block in tail.follower.poll(1 << 20)
            for key in ADAPTER.primary_keys(block.data, block.file)
            if key is not None
        ]

    assert ids() == [b"a", b"b"]
    path.write_bytes(TWO + b"c\t1.5\n")
    tail.follower.scan()
    assert ids() == [b"c"]
    tail.close()


LINES = st.sampled_from(
    [
        *(b"#separator \\x09\n", b"#fields\ta\tb\n", b"#fields\tc\n", b"#types\tx\n", b"#close\t1\n", b"#\n"),
        *(b"1\t2\n", b"\n", b"x#y\n"),
    ]
)


@given(st.lists(LINES, max_size=20), st.lists(st.integers(1, 15), min_size=1, max_size=40))
@settings(deadline=None, max_examples=400)
def test_pieces_and_scans_agree_however_they_are_cut(lines: list[bytes], steps: list[int]) -> None:
    data = b"".join(lines)
    header = b""
    expected = []
    at = 0
    for line in lines:
        if line.startswith(b"#"):
            header = after_lines(header, line)
        else:
            expected.append((at, line, header))
        at += len(line)
    found = []
    header = b""
    at = 0
    cuts = [sum(map(len, lines[:i])) for i in range(len(lines) + 1)]
    for begin, end in zip(cuts[:-1:3], [*cuts[3::3], len(data)], strict=False):
        headed, header = split_headers(Piece(begin, data[begin:end], end), header)
        for each, held in headed:
            found += [(line, held) for line in each.data.splitlines(keepends=True)]
    assert found == [(line, held) for _, line, held in expected]
    for stop, _, held in expected:
        scan = HeaderScan()
        step = iter(steps * len(data))
        while scan.at < stop:
            scan.feed(data[scan.at : min(scan.at + next(step), stop)])
        assert scan.header == held


def test_scanning_is_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framed_module, "SCAN_BYTES", 7)
    test_reading_on_at_any_place_finds_the_header_in_force(tmp_path)
