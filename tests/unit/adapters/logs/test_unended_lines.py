"""A last line without its end, torn at every byte, in each format: it waits while it may still be continued."""

from __future__ import annotations

import gzip
import os
from binascii import b2a_base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from photon.adapters.contract import LINES, Framing
from photon.adapters.formats.json_objects import JsonObjects
from photon.adapters.formats.text_lines import TextLines
from photon.adapters.logs.api import Block, LogPosition
from photon.adapters.logs.follower import Follower
from photon.adapters.logs.problems import Problem, ProblemKind
from photon.adapters.logs.unended_lines import RestRule, Writing, waits
from photon.config.clock import NS_PER_S
from tests.unit.adapters.messages import delimited

NOW_NS = 1_760_000_000 * NS_PER_S
REST = RestRule(60.0, lambda: NOW_NS)


@dataclass(frozen=True)
class Kind:
    """Records as written, after a header; each is handed out as the line of the same number."""

    written: Sequence[bytes]
    framing: Framing = LINES
    header: bytes = b""
    made: Sequence[bytes] = ()

    @property
    def lines(self) -> Sequence[bytes]:
        return self.made or [each[:-1].replace(b"\n", b"\xfe") + b"\n" for each in self.written]


KINDS = {
    "csv": Kind([b"c1,q1,1760000000,a\n", b"c2,q1,1760000001,b\n", b"c31,q11,1760000002,long\r\n"]),
    "csv with header": Kind([b"c1,q1,1\n", b"c2,q1,2\n", b"c31,q11,1760000002\n"], header=b"id,key,time\n"),
    "csv over lines": Kind(
        [b'c1,"a\nb",1\n', b"c2,plain,2\n", b'c3,"first ""line""\nsecond, line",3\n'], Framing("quoted")
    ),
    "tsv": Kind([b"c1\tq1\t1\n", b"c2\tq1\t2\n", b"c31\tq11\t1760000002\n"]),
    "logfmt": Kind([b"ts=1 id=c1 uid=q1\n", b"ts=2 id=c2 uid=q1\n", b'ts=3 id=c31 uid=q11 text="a b"\n']),
    "json lines": Kind([b'{"id":"c1"}\n', b'{"id":"c2"}\n', b'{"id":"c31","n":12}\n']),
    "regex": Kind([b"1.2.3.4 GET /a c1\n", b"1.2.3.4 GET /b c2\n", b"1.2.3.4 GET /long c31\n"]),
    "zeek": Kind([b"1\tq1\n", b"2\tq1\n", b"17\tq11\n"], Framing("zeek"), b"#fields\ta\tb\n"),
    "cri": Kind(
        [
            b"2024-03-01T10:00:00Z stdout F one\n",
            b"2024-03-01T10:00:01Z stdout P two \n2024-03-01T10:00:02Z stdout F parts\n",
            b"2024-03-01T10:00:03Z stdout P th\n2024-03-01T10:00:04Z stdout P:a re\n"
            b"2024-03-01T10:00:05Z stdout F:a e\n",
        ],
        Framing("cri"),
        made=[
            b"2024-03-01T10:00:00Z stdout one\n",
            b"2024-03-01T10:00:01Z stdout two parts\n",
            b"2024-03-01T10:00:03Z stdout three\n",
        ],
    ),
    "utf-16": Kind(
        [each.encode("utf-16-le") for each in ("\ufeffc1 größe\n", "c2 \u0a0a\n", "c31 \U0001f600\n")],
        TextLines(encoding="utf-16"),
        made=["c1 größe\n".encode(), "c2 \u0a0a\n".encode(), "c31 \U0001f600\n".encode()],
    ),
    "cp1252": Kind(
        [b"c1 gr\xf6\xdfe\n", b"c2\n", b"c31 \x80 \x81\r\n"],
        TextLines(encoding="cp1252"),
        made=["c1 größe\n".encode(), b"c2\n", "c31 €".encode() + b" \x81\r\n"],
    ),
    "json objects": Kind(
        [b'{"a": 1}', b'{"b":"}"}', b'{"c":[{"d":2}]}'],
        JsonObjects(),
        made=[b'{"a": 1}\n', b'{"b":"}"}\n', b'{"c":[{"d":2}]}\n'],
    ),
    "protobuf": Kind(
        [delimited([each]) for each in (b"abc", b"def", b"ghijkl" * 30)],
        Framing("varint"),
        made=[b2a_base64(each) for each in (b"abc", b"def", b"ghijkl" * 30)],
    ),
}


class Site:
    def __init__(self, directory: Path, its: Kind, name: str = "a.log") -> None:
        self.path, self.its = directory / name, its
        self.problems: list[Problem] = []

    def put(self, data: bytes, age_s: float = 1.0) -> None:
        self.path.write_bytes(data)
        self.aged(self.path, age_s)

    @staticmethod
    def aged(path: Path, age_s: float) -> None:
        written_ns = NOW_NS - int(age_s * NS_PER_S)
        os.utime(path, ns=(written_ns, written_ns))

    def run(
        self, positions: Sequence[LogPosition] = (), rest: RestRule | None = REST
    ) -> tuple[bytes, list[LogPosition]]:
        """Like a run with --once: everything read to the end, and where the next one begins."""
        self.problems.clear()
        follower = Follower(
            self.path.parent,
            has_header=bool(self.its.header) and self.its.framing == LINES,
            framing=self.its.framing,
            positions=positions,
            report=self.problems.append,
            rest=rest,
        )
        follower.scan()
        read = b"".join(block.data for block in _blocks(follower, final=False))
        follower.scan()
        read += b"".join(block.data for block in _blocks(follower, final=True))
        assert follower.caught_up()
        found = follower.positions()
        follower.close()
        return read, found


def _blocks(follower: Follower, *, final: bool) -> Iterator[Block]:
    while blocks := follower.poll(1 << 20, final=final):
        yield from blocks


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("before", [0, 2])
def test_torn_at_every_byte_it_waits_and_the_next_run_reads_it_whole(tmp_path: Path, name: str, before: int) -> None:
    its = KINDS[name]
    site = Site(tmp_path, its)
    last, begin = its.written[before], its.header + b"".join(its.written[:before])
    handed_out = b"".join(its.lines[:before])
    for cut in range(1, len(last)):
        site.put(begin + last[:cut])
        read, positions = site.run()
        assert read == handed_out, cut
        (told,) = site.problems
        assert told.kind is ProblemKind.UNENDED
        at = len(handed_out) if its.framing.forward else len(begin)
        assert f"at offset {at}, has no line end, and the file was written to 1.0 s ago" in told.message
        site.put(begin + last)
        more, _ = site.run(positions)
        assert (read + more, site.problems) == (handed_out + its.lines[before], []), cut


@pytest.mark.parametrize("name", [name for name in KINDS if name != "protobuf"])
def test_of_a_file_at_rest_it_is_whole(tmp_path: Path, name: str) -> None:
    its = KINDS[name]
    data, lines = its.header + b"".join(its.written).rstrip(b"\r\n"), b"".join(its.lines).replace(b"\r", b"")
    site = Site(tmp_path, its)
    site.put(data, age_s=60.0)
    assert site.run()[0] == lines
    site.put(data)
    assert site.run(rest=None)[0] == site.run(rest=RestRule(0.0, lambda: NOW_NS))[0] == lines
    assert site.problems == []
    site.path.unlink()
    compressed = Site(tmp_path, its, "a.log.gz")
    compressed.put(gzip.compress(data))
    assert compressed.run()[0] == lines


def test_half_a_message_of_a_file_at_rest_is_damage(tmp_path: Path) -> None:
    its = KINDS["protobuf"]
    for before in (0, 2):
        site = Site(tmp_path, its)
        site.put(b"".join(its.written[: before + 1])[:-1], age_s=61.0)
        assert site.run()[0] == b"".join(its.lines[:before])
        assert [problem.kind for problem in site.problems] == [ProblemKind.DAMAGED]


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (Writing(False, NOW_NS - 60 * NS_PER_S), ""),
        (Writing(True, NOW_NS), ""),
        (Writing(False, NOW_NS, NOW_NS + 1), ""),
        (Writing(False, NOW_NS, NOW_NS), "written to 0.0 s ago"),
        (Writing(False, NOW_NS + 90 * NS_PER_S), "written to 90.0 s ahead of this machine's clock"),
        (Writing(False, NOW_NS - 59 * NS_PER_S), "or 60 s after the last write (last_line_after)"),
    ],
)
def test_when_it_counts(seen: Writing, why: str) -> None:
    assert why in waits(REST, seen)
    assert bool(waits(REST, seen)) == bool(why)
    assert waits(None, seen) == ""
