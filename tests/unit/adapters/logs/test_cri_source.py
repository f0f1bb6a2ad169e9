"""Container logs of Kubernetes as lines: any parts, any growth, restarts anywhere, torn ends, bounded memory."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.adapters.contract import Framing
from photon.adapters.logs import cri_source, forward
from photon.adapters.logs.cri_source import CriSource
from photon.adapters.logs.reader import open_source
from tests.unit.adapters.logs import tails

CRI = Framing("cri")
TIMES = (b"2024-03-01T10:00:00Z", b"2024-03-01T10:00:00.931087621Z", b"2016-10-06T00:17:09.6+02:00")
STREAMS = (b"stdout", b"stderr")


class Tail(tails.Tail):
    def __init__(self, directory: Path, *arguments: Any, **options: Any) -> None:
        super().__init__(directory, *arguments, framing=CRI, **options)


def made_of(lines: list[bytes]) -> tuple[list[bytes], bool]:
    """The records of a file's whole lines, by the rule as a person would write it, and whether parts wait at
    the end."""
    records: list[bytes] = []
    parts: dict[bytes, list[bytes]] = {}
    for line in lines:
        time, stream, tags, content = line.split(b" ", 3)
        known = parts.setdefault(stream, [time + b" " + stream + b" "])
        known.append(content)
        if tags[:1] == b"F":
            record = b"".join(parts.pop(stream))
            records.append(record if any(known[1:]) else b"")
    return records, bool(parts)


contents = st.one_of(
    st.just(b""),
    st.binary(max_size=30).map(lambda data: data.replace(b"\n", b"").replace(b"\r", b"")),
    st.integers(1, 300).map(lambda size: b"x" * size),
)
tags = st.sampled_from([b"P", b"F", b"F", b"F", b"P:a", b"F:a:b"])
written = st.lists(
    st.builds(
        lambda time, stream, tag, content: b"%b %b %b %b%b" % (time, stream, tag, content, b"p" * (tag[:1] == b"P")),
        st.sampled_from(TIMES),
        st.sampled_from(STREAMS),
        tags,
        contents,
    ),
    max_size=14,
)


@given(written, st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 900)), max_size=8), st.integers(1, 400))
@settings(deadline=None, max_examples=300)
def test_any_lines_read_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], reads: list[tuple[int, int]], step: int
) -> None:
    path = tmp_path_factory.mktemp("c") / "0.log"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    records, waits = made_of(lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cri_source, "READ_BYTES", step)
        patch.setattr(cri_source, "HELD_BYTES", 40)
        patch.setattr(forward, "MARK_SPACING_BYTES", 50)
        patch.setattr(forward, "MARKS_MAX", 4)
        source = CriSource(open_source(path))
        whole = source.read(0, 1 << 20)
        assert whole == b"".join(record + b"\n" for record in records)
        assert (source.damage(), source.cut_short()) == ("", waits)
        for at, length in reads:
            assert source.read(at, length) == whole[at : at + length]
        assert source.read(0, len(whole) + 1) == whole
        assert source.cut_short() == waits
        source.close()


@given(written, st.lists(st.integers(1, 90)))
@settings(deadline=None, max_examples=150)
def test_a_growing_log_gives_each_record_once_whatever_is_restarted(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], steps: list[int]
) -> None:
    directory = tmp_path_factory.mktemp("c")
    data = b"".join(line + b"\n" for line in lines)
    tail = Tail(directory)
    found: list[bytes] = []
    done = 0
    for step in [*steps, len(data) + 1]:
        tails.append(directory / "0.log", data[done : done + step])
        done = min(done + step, len(data))
        found += [line for line in tail.read() if line]
        assert found == [record for record in made_of(data[:done].split(b"\n")[:-1])[0] if record]
        if step % 2:
            positions = tail.follower.positions()
            tail.close()
            tail = Tail(directory, positions)
    tail.close()


def test_a_restart_at_each_byte_of_interleaved_parts(tmp_path: Path) -> None:
    heads = zip(STREAMS * 6, [b"P", b"P", b"F", b"P"] * 3, strict=True)
    lines = [b"%b %b %b %b" % (TIMES[1], *head, b"%d" % at * 9) for at, head in enumerate(heads)]
    data = b"".join(line + b"\n" for line in lines)
    want, _ = made_of(lines)
    for cut in range(1, len(data)):
        directory = tmp_path / str(cut)
        tails.append(directory / "0.log", data[:cut])
        first = Tail(directory)
        found = first.read()
        tails.append(directory / "0.log", data[cut:])
        second = Tail(directory, first.follower.positions())
        assert found + second.read() == want
        first.close()
        second.close()


@pytest.mark.parametrize("step", [1, 7, 1 << 18])
def test_lines_that_are_not_cri_stay_and_are_not_mistaken_for_records(
    tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cri_source, "READ_BYTES", step)
    other = [
        b"plain text", b"", b"y" * 500, b"2024-03-01 stdout F no time", b"2024-03-01T10:00:00Z stdlog F no stream",
        b"2024-03-01T10:00:00Z stdout", b"2024-03-01T10:00:00Zstdout F x",
    ]  # fmt: skip
    alike = [b"2024-03-01T10:00:00Z stdout X content", b"2024-03-01T10:00:00Z stderr Full " + b"z" * 500]
    path = tmp_path / "0.log"
    path.write_bytes(b"\n".join([*other, *alike, b""]))
    source = CriSource(open_source(path))
    assert source.read(0, 1 << 20).split(b"\n")[:-1] == other + [b" " + line for line in alike]
    source.close()


@pytest.mark.parametrize("same_begin", [False, True])
def test_a_log_that_was_truncated_and_grew_beyond_what_was_read_is_read_from_its_start(
    tmp_path: Path, same_begin: bool
) -> None:
    log = tmp_path / "0.log"
    line = TIMES[1] + b" stdout F %05d\n"
    log.write_bytes(b"".join(line % at for at in range(100)))
    tail = Tail(tmp_path)
    assert len(tail.read()) == 100
    with log.open("r+b") as file:
        file.truncate(0)
        file.write(b"".join(line % (0 if same_begin and not at else 7000 + at) for at in range(300)))
    assert tail.read() == [
        TIMES[1] + b" stdout %05d" % (0 if same_begin and not at else 7000 + at) for at in range(300)
    ]
    tail.close()


@pytest.mark.parametrize("one_line", [False, True])
@pytest.mark.parametrize("pack", [False, True])
def test_records_over_the_limit_are_skipped_with_bounded_memory_and_reported(
    tmp_path: Path, one_line: bool, pack: bool
) -> None:
    part = TIMES[1] + b" stdout %b %b\n"
    aside = TIMES[1] + b" stderr F aside\n"
    size, content = 16_384 * 512, b"x" * 16_384
    long = part % (b"F", b"x" * size) if one_line else part % (b"P", content) * 511 + aside + part % (b"F", content)
    data = part % (b"F", b"a") + long + part % (b"F", b"b")
    log = tmp_path / ("0.log.gz" if pack else "0.log")
    log.write_bytes(gzip.compress(data, 1) if pack else data)
    made = TIMES[1] + b" stdout "
    tail = Tail(tmp_path, max_record=100_000)
    between = [] if one_line else [TIMES[1] + b" stderr aside"]
    assert tail.read() == [made + b"a", *between, made + b"b"]
    assert [each.length for b in tail.blocks for each in b.oversized] == [len(made) + size]
    tail.close()
    source = CriSource(open_source(log))
    at, held = 0, 0
    while more := source.read(at, 1 << 16):
        at += len(more)
        held = max(held, len(source._buffer), *(len(each.held) for each in source._waiting.values()), 0)
    assert held <= cri_source.HELD_BYTES + cri_source.READ_BYTES
    source.close()


def test_reading_back_begins_near_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"".join(b"%b stdout F %09d\n" % (TIMES[1], at) for at in range(100_000)))
    source = CriSource(open_source(path))
    whole = source.read(0, 1 << 23)
    read: list[int] = []
    inner = source._inner.read
    monkeypatch.setattr(source._inner, "read", lambda at, length: (read.append(at), inner(at, length))[1])
    middle = len(whole) // 2
    assert source.read(middle, 100) == whole[middle : middle + 100]
    assert len(read) <= 3
    source.close()
