"""Chunks read again: each record in exactly one of them, wherever the cuts are and however the file has changed."""

from __future__ import annotations

import gzip
import itertools
import random
from pathlib import Path

import pytest

from photon.adapters.logs.follower import Follower
from photon.adapters.logs.log_finder import find_logs
from photon.adapters.logs.place_ids import CONTEXT_BYTES
from photon.adapters.logs.reader import open_source
from photon.dispatcher.replay import reading
from photon.dispatcher.replay.coverage import MAX_NS, MIN_NS, Chunk
from photon.dispatcher.replay.reading import LogFiles, records_between
from photon.joiner.foreign_columns import records_of

LIMIT = 300


def lines_of(draw: random.Random) -> list[bytes]:
    ends = draw.choice((b"\n", b"\r\n"))
    lengths = [draw.choice((0, 1, 5, 80, LIMIT, LIMIT + 1, 2000)) for _ in range(draw.choice((1, 5, 60)))]
    return [bytes(draw.choices(b"abc ", k=length)) + ends for length in lengths]


@pytest.mark.parametrize("name", ["a.log", "a.log.gz"])
@pytest.mark.parametrize("seed", range(25))
def test_each_record_lies_in_one_chunk(tmp_path: Path, seed: int, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    print(f"seed {seed}")
    draw = random.Random(seed)
    monkeypatch.setattr(reading, "BLOCK_BYTES", draw.choice((16, 100, 5000)))
    monkeypatch.setattr(reading, "PROBE_BYTES", draw.choice((3, 50)))
    lines = lines_of(draw)
    data = b"".join(lines)
    if draw.random() < 0.3:
        data = data.removesuffix(b"\n")
    start = draw.choice((0, len(lines[0])))
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    expected, at = [], 0
    for line in lines:
        if at >= start and line.rstrip(b"\r\n"):
            expected.append((at, line.rstrip(b"\r\n")))
        at += len(line)
    cuts = sorted({0, len(data), *(draw.randrange(len(data) + 1) for _ in range(draw.choice((0, 2, 30))))})
    source = open_source(tmp_path / name)
    seen = []
    for begin, end in itertools.pairwise(cuts):
        for read in records_between(source, start, begin, end, LIMIT):
            assert read.data.endswith(b"\n")
            assert read.before == data[max(read.begin - CONTEXT_BYTES, 0) : read.begin]
            block = reading.Block("x", reading.LogFile(name), read.begin, read.data, 0)
            seen += [(o, r) for r, o in zip(*records_of(block), strict=True)]
    source.close()
    short = [(o, r) for o, r in expected if len(r) <= LIMIT]
    assert [each for each in seen if len(each[1]) <= LIMIT] == short
    assert all(each in expected for each in seen)


def whole(identity: str, end: int) -> Chunk:
    return Chunk(identity, 0, end, MIN_NS, MAX_NS)


async def test_a_log_is_found_under_the_name_it_has_by_now(tmp_path: Path) -> None:
    data = b"first line\nsecond line\n"
    (tmp_path / "a.log").write_bytes(data)
    follower = Follower(tmp_path, has_header=False)
    follower.scan()
    (block,) = follower.poll(1 << 20)
    follower.close()
    files = LogFiles(tmp_path, ("**/*",), has_header=False, max_record=LIMIT)
    (again,) = await files.blocks(whole(block.identity, len(data))) or []
    assert (again.data, again.file.path, again.identity) == (data, "a.log", block.identity)
    (tmp_path / "a.log").rename(tmp_path / "a.log.1")
    (tmp_path / "a.log").write_bytes(b"another first line\n")
    (again,) = await files.blocks(whole(block.identity, len(data))) or []
    assert (again.data, again.file.path) == (data, "a.log.1")
    (tmp_path / "a.log.1").unlink()
    (tmp_path / "a.log.2.gz").write_bytes(gzip.compress(data))
    (again,) = await files.blocks(whole(block.identity, len(data))) or []
    (same,) = await files.blocks(whole(block.identity, len(data))) or []
    assert (again.data, again.file.path, same.data) == (data, "a.log.2.gz", data)
    (tmp_path / "a.log.2.gz").unlink()
    files.close()
    assert await files.blocks(whole(block.identity, len(data))) is None
    files.close()


async def test_a_file_that_was_rewritten_is_another_log(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"header\nfirst line\nx\n")
    logs = find_logs(tmp_path, ("**/*",), has_header=True)
    (identity,) = logs
    files = LogFiles(tmp_path, ("**/*",), has_header=True, max_record=LIMIT)
    (again,) = await files.blocks(whole(identity, 20)) or []
    assert (again.data, again.file.header, again.offset) == (b"first line\nx\n", b"header", 7)
    with (tmp_path / "a.log").open("r+b") as f:  # in place: the file that is open is another log now
        f.write(b"header\nother\n")
        f.truncate()
    assert await files.blocks(whole(identity, 20)) is None
    files.close()


async def test_logs_that_begin_alike_are_told_apart_by_what_was_read(tmp_path: Path) -> None:
    contents = {f"a.{n}.log": b"begin\n" + b"%d\n" % n * (n + 5) for n in range(6)}
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    follower = Follower(tmp_path, has_header=False)
    follower.scan()
    while follower.poll(1 << 20):
        pass
    known = follower.positions()
    follower.close()
    for n in range(6):
        (tmp_path / f"a.{n}.log").rename(tmp_path / f"moved-{5 - n}")
    files = LogFiles(tmp_path, ("**/*",), has_header=False, max_record=LIMIT)
    read = []
    for each in known:
        chunk = Chunk(each.identity, 0, each.offset, MIN_NS, MAX_NS, each.offset, each.proof)
        read += [block.data for block in await files.blocks(chunk) or []]
    assert sorted(read) == sorted(contents.values())
    files.close()
