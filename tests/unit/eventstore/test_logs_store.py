"""Reading records at mapped places: plain and gzip files, renamed, replaced, missing and damaged ones."""

from __future__ import annotations

import gzip
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from photon.adapters.contract import LogFile
from photon.eventstore import log_files, log_pass
from photon.eventstore.file_map import MappedLog
from photon.eventstore.log_files import Pages, open_log
from photon.eventstore.logs_store import LogsEventStore, ReadTroubles
from photon.eventstore.places_to_read import PlaceToRead

from .helpers import LineAdapter, told

ADAPTER = LineAdapter({})


def lines(count: int, seed: int = 1) -> tuple[bytes, list[tuple[bytes, int]]]:
    """A log, and (key, offset) of its records."""
    rng = random.Random(seed)
    data = bytearray()
    places = []
    for number in range(count):
        key = b"k%d" % number
        places.append((key, len(data)))
        data += key + b"," + rng.randbytes(rng.randrange(200)).hex().encode() + b"\n"
    return bytes(data), places


class Logs:
    """A directory of logs and a store over it."""

    def __init__(self, directory: Path, **limits: int) -> None:
        self.directory = directory
        self.paths: dict[str, str] = {}
        self.store = LogsEventStore(directory, ADAPTER, self.paths.get, **limits)

    def log(self, identity: str, path: str, data: bytes) -> MappedLog:
        (self.directory / path).write_bytes(data)
        self.paths[identity] = path
        return MappedLog(len(self.paths) - 1, identity, LogFile(path, b"head"), len(data))

    def read(self, log: MappedLog, *wanted: tuple[bytes, int]) -> list[tuple[str, bytes]]:
        asked = [PlaceToRead(key, log, offset, 0, -1) for key, offset in wanted]
        return [(what, each.record) for what, each in told(self.store.read(asked))]


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path)


@pytest.mark.parametrize("name", ["a.log", "a.log.gz"])
def test_records_in_any_order(logs: Logs, name: str) -> None:
    data, places = lines(5000)
    log = logs.log("a", name, gzip.compress(data[:300_000]) + gzip.compress(data[300_000:]) if "gz" in name else data)
    asked = random.Random(2).sample(places, 700)
    got = told(logs.store.read([PlaceToRead(key, log, at, 0, -1) for key, at in asked]))
    for (key, at), (what, each) in zip(asked, got, strict=True):
        assert what == "found"
        assert each.record == data[at : data.index(b"\n", at)]
        assert each.record.startswith(key + b",")
        assert (each.file, each.offset) == (LogFile(name, b"head"), at)


class Together(LineAdapter):
    """Has its own form for the keys of many records; it raises, or answers for too few."""

    asked = 0

    def primary_keys_of(self, records: Sequence[bytes], file: LogFile) -> list[bytes | None]:
        self.asked += 1
        if self.options["how"] == "raises":
            raise KeyError("boom")
        keys = super().primary_keys_of(records, file)
        return keys[1:] if self.options["how"] == "short" else keys


@pytest.mark.parametrize("how", ["right", "raises", "short"])
def test_keys_are_asked_for_by_block_and_one_by_one_where_that_goes_wrong(logs: Logs, how: str) -> None:
    data, places = lines(50)
    log, adapter = logs.log("a", "a.log", data), Together({"how": how})
    store = LogsEventStore(logs.directory, adapter, logs.paths.get)
    wanted = [PlaceToRead(key, log, at, 0, -1) for key, at in (*places, (b"another", 0))]
    assert [what for what, _ in told(store.read(wanted))] == ["found"] * 50 + ["unavailable"]
    assert adapter.asked == 2  # the second time for the place that the map is wrong about
    store.close()


def test_neighbours_are_read_together(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    data, places = lines(5000)
    log = logs.log("a", "a.log", data)
    reads: list[int] = []
    plain = log_files.PlainBytes.read

    def counted(self: log_files.PlainBytes, offset: int, length: int) -> bytes:
        reads.append(offset)
        return plain(self, offset, length)

    monkeypatch.setattr(log_files.PlainBytes, "read", counted)
    assert {outcome for outcome, _ in logs.read(log, *places[::-1])} == {"found"}
    assert reads == [0]


def test_line_ends_long_records_and_a_last_line_without_end(logs: Logs) -> None:
    long = b"long," + b"x" * 100_000
    log = logs.log("a", "a.log", b"one,1\r\n" + long + b"\nlast,3")
    assert logs.read(log, (b"one", 0), (b"long", 7), (b"last", 7 + len(long) + 1)) == [
        ("found", b"one,1"),
        ("found", long),
        ("found", b"last,3"),
    ]


def test_a_file_renamed_and_compressed_is_found_by_its_identity(logs: Logs) -> None:
    data, places = lines(50)
    log = logs.log("a", "a.log", data)
    assert logs.read(log, places[3])[0][0] == "found"
    (logs.directory / "a.log").unlink()
    (logs.directory / "a.log.1.gz").write_bytes(gzip.compress(data))
    logs.paths["a"] = "a.log.1.gz"
    ((what, _),) = told(logs.store.read([PlaceToRead(places[4][0], log, places[4][1], 0, -1)]))
    assert what == "found"
    ((_, each),) = told(logs.store.read([PlaceToRead(places[5][0], log, places[5][1], 0, -1)]))
    assert each.file.path == "a.log.1.gz"  # the deleted file was let go


def test_missing_files_and_what_stands_behind_damage_are_unavailable(logs: Logs) -> None:
    data, places = lines(2000)
    log = logs.log("a", "a.log.gz", gzip.compress(data))
    packed = bytearray(gzip.compress(data))
    packed[len(packed) // 2 : len(packed) // 2 + 50] = b"\xff" * 50
    (logs.directory / "a.log.gz").write_bytes(packed)
    assert logs.read(log, places[-1])[0][0] == "unavailable"
    assert [outcome for outcome, _ in logs.read(log, places[800], places[0])] == ["found"] * 2
    assert logs.read(log, places[-1], places[1])[1][0] == "found"
    (logs.directory / "a.log.gz").unlink()
    logs.read(log, places[0])  # still open; let go once it is seen to have no name
    assert logs.read(log, places[0])[0][0] == "unavailable"
    del logs.paths["a"]
    assert logs.read(log, places[0])[0][0] == "unavailable"


def test_another_file_under_the_name_is_unavailable_never_not_there(logs: Logs) -> None:
    data, places = lines(100)
    log = logs.log("a", "a.log", data)
    (logs.directory / "a.log").write_bytes(b"other,1\n" * 400)
    assert logs.read(log, places[0], places[50]) == [("unavailable", b"")] * 2
    (logs.directory / "a.log").write_bytes(b"")
    assert logs.read(log, places[0]) == [("unavailable", b"")]
    (logs.directory / "right.log").write_bytes(data)
    logs.paths["a"] = "right.log"
    assert logs.read(log, places[50])[0][0] == "found"


def test_in_a_log_that_was_rewritten_stale_places_are_not_there(logs: Logs) -> None:
    log = logs.log("a", "a.log", b"new,1\n")
    rewritten = MappedLog(0, "a", log.file, 6, rewritten=True)
    assert logs.read(rewritten, (b"old", 0), (b"old", 500)) == [("not there", b"")] * 2


def test_another_key_with_the_same_hash_is_not_there(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    log = logs.log("a", "a.log", b"there,1\n")
    monkeypatch.setattr(log_pass, "hash_keys", lambda keys: [7 for _ in keys])
    assert logs.read(log, (b"asked", 0)) == [("not there", b"")]


def test_spans(logs: Logs) -> None:
    ids = [b"10.0.0.1:1:%d" % micros for micros in range(100, 200)]
    data = b"".join(key + b",mentions " + ids[99] + b"\n" for key in ids)
    starts = [data.index(key + b",") for key in ids]
    log = logs.log("a", "a.log", data)

    def read(key: bytes, offset: int, span: int, anchor: int) -> tuple[str, int]:
        ((what, each),) = told(logs.store.read([PlaceToRead(key, log, offset, span, anchor)]))
        return what, each.offset

    assert read(ids[50], 0, 5000, 100) == ("found", starts[50])
    assert read(ids[99], 0, 5000, 100) == ("found", starts[99])
    assert read(ids[50], starts[50], 10, 150) == ("found", starts[50])
    assert read(ids[51], starts[50], 10, 150) == ("not there", 0)  # it begins beyond the span
    assert read(b"10.0.0.1:1:777", 0, 5000, 100) == ("not there", 0)
    assert read(ids[50], 3, 5000, 100) == ("unavailable", 0)  # the anchor does not begin here: another file


def test_gzip_pages_and_checkpoints_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "PAGE_BYTES", 1 << 12)
    monkeypatch.setattr(log_files, "CHECKPOINT_BYTES", 1 << 14)
    data = random.Random(3).randbytes(1 << 20)
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(data[:500_000]) + b"\0" * 600 + gzip.compress(data[500_000:]))
    pages = Pages(1 << 15)
    source = open_log(path, pages, 1)
    rng = random.Random(4)
    for _ in range(300):
        at, length = rng.randrange(len(data)), rng.randrange(1, 20_000)
        assert source.read(at, length) == data[at : at + length]
        assert pages.nbytes <= 1 << 15
    assert 2 < len(source._checkpoints) <= log_files.CHECKPOINTS_MAX
    assert source.read(len(data) + 5, 10) == b""
    source.close()


def test_whatever_goes_wrong_in_one_log_is_said_of_that_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[str, str, list[bytes]]] = []

    class Noted(ReadTroubles):
        def failed(self, log: MappedLog, why: str, keys: Sequence[bytes]) -> None:
            said.append((log.file.path, why, list(keys)))

    logs = Logs(tmp_path)
    logs.store = LogsEventStore(tmp_path, ADAPTER, logs.paths.get, troubles=Noted())
    plain, packed = logs.log("a", "a.log", b"k,1\n"), logs.log("b", "b.log.gz", gzip.compress(b"k,2\n"))

    def broken(self: log_files.GzipBytes, offset: int, length: int) -> bytes:
        raise ValueError("no such\nstate")

    monkeypatch.setattr(log_files.GzipBytes, "read", broken)
    asked = [PlaceToRead(b"k", packed, 0, 0, -1), PlaceToRead(b"k", plain, 0, 0, -1)]
    assert [what for what, _ in told(logs.store.read(asked))] == ["unavailable", "found"]
    assert said == [("b.log.gz", "it cannot be read (ValueError('no such\\nstate'))", [b"k"])]
