"""Cold look-ups in logs that are more than plain lines: varint messages, quoted line ends, headers in mid-file."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import Framing
from photon.adapters.logs.follower import Follower
from photon.batch.records import PrimaryRecord
from photon.eventstore import log_pass
from photon.eventstore.file_map import MappedLog
from photon.eventstore.logs_store import LogsEventStore
from photon.eventstore.places_to_read import PlaceToRead
from tests.unit.adapters.framings import Prefixed, prefixed
from tests.unit.adapters.messages import write_messages

from .helpers import told

FOREIGN = {"format": "jsonl", "key": "k", "time": {"field": "t", "unit": "s"}}


def mapped(directory: Path, adapter: ConfiguredAdapter) -> list[tuple[bytes, MappedLog, int, bytes]]:
    """(key, log, offset, record) of each record, as the primary reader sees it."""
    follower = Follower(directory, has_header=adapter.primary_has_header, framing=adapter.primary_framing)
    follower.scan()
    found = []
    while blocks := follower.poll(1 << 20, final=True):
        for block in blocks:
            log = MappedLog(0, block.identity, block.file, block.end)
            at = block.offset
            for line in block.data.split(b"\n")[:-1]:
                found.append((adapter.primary_key(line, block.file), log, at, line))
                at += len(line) + 1
    follower.close()
    return found


def read_all(
    directory: Path, primary: dict[str, Any], framing: Framing | None = None
) -> list[tuple[PrimaryRecord, bytes, bytes, bytes | None]]:
    """(what was read, key, record, payload) of each record, looked up in one batch with a header of another place."""
    adapter = ConfiguredAdapter({"primary": primary, "foreign": FOREIGN, "base": str(directory.parent)})
    if framing is not None:
        adapter.primary_framing = framing
    places = mapped(directory, adapter)
    last = places[-1][1]
    store = LogsEventStore(directory, adapter, lambda identity: last.file.path)
    wanted = [PlaceToRead(key, last, offset, 0, -1) for key, _, offset, _ in places]
    reads = told(store.read(wanted))
    assert told(store.read(wanted[::-1])) == reads[::-1]
    assert {what for what, _ in reads} == {"found"}
    store.close()
    return [
        (read, key, record, adapter.primary_payload(read.record, read.file) if read.record else None)
        for (_, read), (key, _, _, record) in zip(reads, places, strict=True)
    ]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_records_of_a_framing_of_the_users_own(tmp_path: Path, suffix: str) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    data = prefixed(b'{"k":"k%d","text":"%b"}' % (i, b"x" * (i % 200)) for i in range(9000))
    (logs / f"a.bin{suffix}").write_bytes(gzip.compress(data) if suffix else data)
    found = read_all(logs, {"format": "jsonl", "key": "k"}, Prefixed())
    assert [key for _, key, _, _ in found] == [b"k%d" % i for i in range(9000)]
    assert all(read.record == record.removesuffix(b"\r") for read, _, record, _ in found)


def test_records_over_several_lines(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    rows = [f'k{i},"first\nsecond ""{i}""\n",{i}\n' if i % 3 else f"k{i},plain,{i}\r\n" for i in range(3000)]
    (logs / "a.csv").write_text("k,text,n\n" + "".join(rows), newline="")
    found = read_all(logs, {"format": "csv", "key": "k", "multiline": True})
    assert [key for _, key, _, _ in found] == [b"k%d" % i for i in range(3000)]
    for i, (read, _, record, payload) in enumerate(found):
        assert read.record == record.removesuffix(b"\r")
        assert payload is not None
        if i % 3:
            assert b'"text":"first\\nsecond \\"%d\\"\\n"' % i in payload


@pytest.mark.parametrize("scan_bytes", [64, 1 << 20])
def test_headers_in_mid_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scan_bytes: int) -> None:
    monkeypatch.setattr(log_pass, "SCAN_BYTES", scan_bytes)
    logs = tmp_path / "logs"
    logs.mkdir()
    one, two = "#separator \\x09\n#fields\tuid\tx\ty\n", "#separator \\x09\n#fields\tuid\ty\tx\n"
    parts = [one, "a\t1\t2\n", two, "b\t2\t1\n", "c\t2\t1\n", one, "d\t1\t2\n", two]
    (logs / "conn.log").write_text("".join(parts) + "e\t2\t1\n")
    found = read_all(logs, {"format": "zeek", "key": "uid"})
    assert [key for _, key, _, _ in found] == [b"a", b"b", b"c", b"d", b"e"]
    for _, key, _, payload in found:
        assert sorted(payload[1:-1].split(b",")) == [b'"uid":"%b"' % key, b'"x":"1"', b'"y":"2"']


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_container_logs(tmp_path: Path, suffix: str) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    parts = []
    for i in range(3000):
        head = b"2024-03-01T10:00:00.5Z std%b " % (b"out" if i % 3 else b"err")
        record = b'{"k":"k%d","text":"%b"}' % (i, b"x" * (i % 90))
        cut = i % 7
        parts += [head + b"P " + record[:cut] + b"\n"] * bool(cut) + [head + b"F " + record[cut:] + b"\n"]
    data = b"".join(parts)
    (logs / f"0.log{suffix}").write_bytes(gzip.compress(data) if suffix else data)
    found = read_all(logs, {"format": "jsonl", "key": "k", "framing": "cri"})
    assert [key for _, key, _, _ in found] == [b"k%d" % i for i in range(3000)]
    for read, _, record, payload in found:
        assert read.record == record
        assert payload is not None
        assert record == b"2024-03-01T10:00:00.5Z " + record.split(b" ")[1] + b" " + payload


def test_length_delimited_messages(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    data = write_messages(tmp_path / "click.pb", [(f"k{i}", "x" * (i % 300)) for i in range(9000)])
    (logs / "a.bin").write_bytes(data)
    found = read_all(
        logs, {"format": "protobuf", "descriptor": "click.pb", "message": "test.Event", "key": "key.name"}
    )
    assert [key for _, key, _, _ in found] == [b"k%d" % i for i in range(9000)]
    assert all(read.record == record for read, _, record, _ in found)
