"""photon read: its sources, its sink, its table."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from photon.cli.read import _start, named_place, table
from photon.cli.read_sink import OutputSink, Signals
from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.outputs import Cursor, CursorUnreadable, OutputBlock, OutputLog, OutputPlace, Position
from photon.outputs.cursor import CursorFile
from tests.unit.outputs.helpers import WrittenSlot

DEPLOYMENT = """
[join.clicks.primary]
format = "jsonl"
key = "q"
[join.clicks.foreign]
format = "jsonl"
key = "q"
id = "c"
time = { field = "t", unit = "us" }
[registry]
retention = "3d"
[registry.replicas.r1]
datacentre = "east"
address = "127.0.0.1:1"
directory = "r1"
[datacentre.east]
join = "clicks"
primary = "p"
foreign = "f"
output = "out"
state = "state"
address = "127.0.0.1:3"
"""


def test_whose_output(tmp_path: Path) -> None:
    config = tmp_path / "photon.toml"
    config.write_text(DEPLOYMENT)
    with pytest.raises(UsageError, match=r"state: no such directory; datacentre east has not begun"):
        named_place(None, config, None)
    (tmp_path / "state").mkdir()
    for name in (None, "east"):
        assert named_place(None, config, name) == OutputPlace(tmp_path / "out", tmp_path / "state")
    (tmp_path / "joined/.photon").mkdir(parents=True)
    assert named_place(tmp_path / "joined", None, None).state == tmp_path / "joined/.photon"
    for arguments, said in (
        ((None, None, None), "give an output"),
        ((None, config, "west"), "there are: east"),
        ((tmp_path, config, None), "give either OUTPUT or --config"),
        ((tmp_path, None, "east"), "requires --config"),
    ):
        with pytest.raises(UsageError, match=said):
            named_place(*arguments)


def test_where_it_begins(tmp_path: Path) -> None:
    slot = WrittenSlot(tmp_path)
    slot.append(1, b"abc\n")
    end = Cursor({OutputLog("s0", "joined"): Position(1, 4)})
    assert _start(slot.place, None, "beginning") == Cursor()
    assert _start(slot.place, None, "end") == end
    assert _start(slot.place, None, end.encode().decode()) == end
    for bad, kind in (("middle", UsageError), ("{", CursorUnreadable), ('{"\udcff', CursorUnreadable)):
        with pytest.raises(kind, match="--from"):
            _start(slot.place, None, bad)
    kept = CursorFile(RealDisk(), tmp_path / "c")
    assert _start(slot.place, kept, "end") == end
    slot.append(1, b"more\n")
    assert _start(slot.place, kept, "end") == end  # the file decides
    kept.close()


Pipe = tuple[int, int, Signals, OutputSink]


@pytest.fixture
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def pipe() -> Pipe:
    """Both ends of a pipe and its writer."""
    read, write = os.pipe()
    signals = Signals(write)
    return read, write, signals, OutputSink(write, signals)


@pytest.mark.usefixtures("handlers")
def test_a_stop_is_heard_while_the_pipe_is_full(pipe: Pipe) -> None:
    """It ends within the line that the other side no longer reads, and says how far it came."""
    read, write, signals, sink = pipe
    data = (b"x" * 99 + b"\n") * 5000
    stopper = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM))
    stopper.start()
    written = sink.write(data)
    stopper.join()
    assert signals.asked
    assert 0 < written < len(data)
    assert len(os.read(read, 1 << 20)) == written
    assert sink.write(data) == 0
    signals.wait(60)  # returns at once
    for descriptor in (read, write):
        os.close(descriptor)


@pytest.mark.usefixtures("handlers")
def test_a_line_that_was_begun_is_ended(pipe: Pipe) -> None:
    read, write, _, sink = pipe
    data = (b"x" * 9_999 + b"\n") * 100
    taken = b""

    def take() -> None:
        nonlocal taken
        os.kill(os.getpid(), signal.SIGTERM)
        while part := os.read(read, 1000):
            taken += part

    taker = threading.Timer(0.3, take)
    taker.start()
    written = sink.write(data)
    os.close(write)
    taker.join()
    assert 0 < written < len(data)
    assert written % 10_000 == 0
    assert len(taken) == written
    os.close(read)


@pytest.mark.usefixtures("handlers")
def test_nobody_reads_any_more(pipe: Pipe) -> None:
    read, write, signals, sink = pipe
    os.close(read)
    with pytest.raises(BrokenPipeError):
        signals.wait(60)
    with pytest.raises(BrokenPipeError):
        sink.write(b"x\n")
    os.close(write)


@pytest.mark.usefixtures("handlers")
def test_a_file_takes_all(tmp_path: Path) -> None:
    with (tmp_path / "f").open("wb") as file:
        sink = OutputSink(file.fileno(), Signals(file.fileno()))
        data = (b"x" * 99 + b"\n") * 30_000
        assert sink.write(data) == len(data)
        sink.flush()
    assert (tmp_path / "f").read_bytes() == data


def test_the_table_shows_people_what_is_in_a_line() -> None:
    tail = b'"source":{"file":"a\\u001b[2J.log","offset":7},"decided_at":"2026-11-21T00:00:00.000000Z"}\n'
    lines = [
        b'{"event_id":"e1","key":"k","event_time_ns":1500000001234567000,"reason":"why\\nnot","record":"r",' + tail,
        b'{"reason":"not JSON","record":"r",' + tail,
        b'{"event_id_raw_base64":"//4=","key":"k","event_time_ns":9223372036854775807,"record":"r",' + tail,
        b"junk\n",
    ]
    place = OutputLog("s0", "rejected")
    rows = table(OutputBlock(place, "rejected/s0-000001.jsonl", 1, 10, b"".join(lines))).decode().splitlines()
    assert len(rows) == 4
    assert "\x1b" not in "".join(rows)
    assert "2017-07-14T02:40:01.234567Z" in rows[0]
    assert r"e1  <-  a\x1b[2J.log:7  (why\nnot)" in rows[0]
    assert r"-  <-  a\x1b[2J.log:7  (not JSON)" in rows[1]
    assert r"\xff\xfe" in rows[2]
    assert f"rejected/s0-000001.jsonl:{10 + sum(map(len, lines[:3]))}: " in rows[3]
