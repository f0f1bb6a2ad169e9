"""First in (file, offset) order wins regardless of the cache; the meaning of a miss; a restart forgets no key."""

from __future__ import annotations

import errno
import gzip
import itertools
from pathlib import Path

import pytest

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import LogFile
from photon.adapters.faults import KEY_BYTES_MAX
from photon.adapters.logs.reader import Source, open_source
from photon.adapters.logs.unended_lines import RestRule
from photon.adapters.side import SideConfig, TimeConfig
from photon.config.clock import NEVER_NS, SystemClock
from photon.eventstore.api import ALL_BUT_ENDS_NS, LookUpCode
from photon.eventstore.block_keys import block_keys
from photon.eventstore.file_map import MapKind
from photon.eventstore.primary_reader import PrimaryLogsIncomplete
from photon.eventstore.tiered import NOTHING_READ_NS

from .helpers import Filled, LineAdapter


@pytest.mark.parametrize(("cache_bytes", "hits"), [(1 << 20, 2), (1, 0)])
def test_found_in_cache_and_in_logs_alike(filled: Filled, cache_bytes: int, hits: int) -> None:
    store = filled({"a.log": b"k1,x\r\nbad\nk2,y\n"}, cache_bytes=cache_bytes)
    assert store.ask(b"k2") == (LookUpCode.FOUND, "a.log", 10, b"k2,y")
    assert store.ask(b"k1") == (LookUpCode.FOUND, "a.log", 0, b"k1,x")
    assert store.ask(b"k3")[0] is LookUpCode.ABSENT
    counts = store.cache.counts()
    assert (counts.hits, counts.misses) == (hits, 2 - hits)  # no cache can have a key that is in no log
    store.close()


FILES = {"b.log": b"k,b1\nx,\nk,b2\n", "a.log.1": b"y,\nk,a1\n", "a.log": b"k,a2\n"}


@pytest.mark.parametrize("order", list(itertools.permutations(FILES)))
@pytest.mark.parametrize("cache_bytes", [1 << 20, 1, 1200])
def test_the_first_in_file_order_wins(filled: Filled, order: tuple[str, ...], cache_bytes: int) -> None:
    store = filled(cache_bytes=cache_bytes)
    for name in order:
        store.write(name, FILES[name])
        store.read_all()
    identities = {log.file.path: log.identity for log in store.map.logs()}
    first = min(("a.log.1", 3, b"k,a1"), ("a.log", 0, b"k,a2"), key=lambda place: identities[place[0]])
    assert store.ask(b"k") == (LookUpCode.FOUND, *first)
    assert store.map.totals(exact=True).duplicates == 3


@pytest.mark.parametrize("cache_bytes", [1, 1 << 20])
def test_a_malformed_line_does_not_hide_a_later_good_one(filled: Filled, cache_bytes: int) -> None:
    """The scan of a whole block may take a torn line for a record with the key; only the exact reading decides."""
    side = SideConfig(format="jsonl", key="id")
    foreign = SideConfig(format="jsonl", key="id", time=TimeConfig(field="t", unit="s"))
    store = filled(once=True, cache_bytes=cache_bytes, adapter=ConfiguredAdapter.from_sides(side, foreign))
    torn, good = b'{"id":"a","x":\n', b'{"id":"a","x":1}\n'
    store.write("a.log", torn + good + b'{"id":"b","x":\n')
    store.read_all()
    assert store.ask(b"a") == (LookUpCode.FOUND, "a.log", len(torn), good[:-1])
    assert store.ask(b"b")[0] is LookUpCode.ABSENT


def test_with_a_last_line_that_waits_for_its_end_nothing_is_absent_for_ever(filled: Filled) -> None:
    rest = RestRule(60.0, SystemClock().now_ns)
    store = filled({"a.log": b"k1,x\nk2"}, once=True, rest=rest)
    assert (store.reader.done, store.reader.read_past_ns) == (True, ALL_BUT_ENDS_NS)
    assert "a.log: the last line, at offset 5, has no line end" in store.reader.unended
    assert store.ask(b"k1", NEVER_NS)[0] is LookUpCode.FOUND
    assert store.ask(b"k2", NEVER_NS)[0] is LookUpCode.NOT_YET
    store.close()
    store = filled({"a.log": b"2,y\n"}, once=True, rest=rest)
    assert (store.reader.read_past_ns, store.reader.unended) == (NEVER_NS, "")
    assert store.ask(b"k22", NEVER_NS) == (LookUpCode.FOUND, "a.log", 5, b"k22,y")
    assert store.ask(b"k2", NEVER_NS)[0] is LookUpCode.ABSENT


def test_a_miss_is_absent_only_once_all_up_to_then_was_read(filled: Filled) -> None:
    store = filled()
    store.write("a.log", b"k,1\n")
    assert store.ask(b"no", NOTHING_READ_NS + 1)[0] is LookUpCode.NOT_YET
    store.clock.ns = 5000
    store.read_all()
    assert store.ask(b"no", 5000)[0] is LookUpCode.ABSENT
    assert store.ask(b"no", 5001)[0] is LookUpCode.NOT_YET
    store.write("a.log", b"no,1\n")
    store.clock.ns = 6000
    store.read_all()
    assert store.ask(b"no", 5001)[0] is LookUpCode.FOUND
    assert store.ask(b"no2", NEVER_NS)[0] is LookUpCode.NOT_YET


def test_once_everything_is_read_for_ever(filled: Filled) -> None:
    store = filled({"a.log": b"k,1\nlast,2"}, once=True)
    assert store.reader.done
    assert store.ask(b"no", NEVER_NS)[0] is LookUpCode.ABSENT
    assert store.ask(b"last", NEVER_NS) == (LookUpCode.FOUND, "a.log", 4, b"last,2")


@pytest.mark.parametrize("committed", [False, True])
def test_a_restart_forgets_no_key(filled: Filled, committed: bool) -> None:
    store = filled({"a.log": b"k,1\n"})
    if committed:
        store.reader.commit()
    store.close()

    store = filled()
    # The map's log has no path before the first scan: it cannot be read *now*.
    assert store.ask(b"k", 0)[0] is (LookUpCode.UNAVAILABLE if committed else LookUpCode.NOT_YET)
    store.read_all()
    assert store.ask(b"k", 0) == (LookUpCode.FOUND, "a.log", 0, b"k,1")
    assert store.map.totals(exact=True).events == 1


def test_a_log_that_is_gone_is_unavailable(filled: Filled) -> None:
    store = filled({"a.log": b"k,1\n", "b.log": b"j,1\nk,2\n"}, cache_bytes=1)
    (store.logs / "a.log").unlink()
    store.read_all()
    assert store.ask(b"k")[0] is LookUpCode.UNAVAILABLE  # b.log has a k too, but a.log's would come first
    assert store.ask(b"j")[0] is LookUpCode.FOUND


@pytest.mark.parametrize("cache_bytes", [1, 1 << 20])
@pytest.mark.parametrize("duplicates", ["first", "last"])
def test_a_key_of_a_log_that_is_gone_is_found_where_it_stands_as_well(
    filled: Filled, cache_bytes: int, duplicates: str
) -> None:
    """A job rewrote its rows under another name: nothing waits for the file that it removed."""
    gone, kept = ("a.log", "b.log") if duplicates == "first" else ("b.log", "a.log")
    store = filled({gone: b"k,1\nj,1\n", kept: b"k,2\n"}, cache_bytes=1, duplicates=duplicates)
    identity = next(log.identity for log in store.map.logs() if log.file.path == gone)
    (store.logs / gone).unlink()
    store.read_all()
    assert store.ask(b"k")[0] is LookUpCode.UNAVAILABLE  # it may be on its way to another name
    store.tiers.gone = lambda: {identity}
    assert store.ask(b"k") == (LookUpCode.FOUND, kept, 0, b"k,2")
    assert store.ask(b"j")[0] is LookUpCode.GONE


def test_records_that_are_compared_are_waited_for_though_their_log_is_gone(filled: Filled) -> None:
    store = filled({"a.log": b"k,1\n", "b.log": b"k,2\n"}, cache_bytes=1, duplicates="reject")
    identity = next(log.identity for log in store.map.logs() if log.file.path == "b.log")
    (store.logs / "b.log").unlink()
    store.read_all()
    store.tiers.gone = lambda: {identity}
    assert store.ask(b"k")[0] is LookUpCode.GONE


def test_of_two_logs_the_one_that_may_come_back_decides_what_is_waited_for(filled: Filled) -> None:
    store = filled({"a.log": b"k,1\n", "b.log": b"k,2\n"}, cache_bytes=1)
    for order in ("a.log", "b.log"):
        (store.logs / order).unlink()
    store.read_all()
    both = {log.identity for log in store.map.logs()}
    assert store.ask(b"k")[0] is LookUpCode.UNAVAILABLE
    for identity in both:
        store.tiers.gone = lambda only=identity: {only}
        assert store.ask(b"k")[0] is LookUpCode.UNAVAILABLE
    store.tiers.gone = lambda: both
    assert store.ask(b"k")[0] is LookUpCode.GONE


def test_sparse_map_end_to_end(filled: Filled) -> None:
    store = filled(kind=MapKind.SPARSE, cache_bytes=1)
    ids = [b"10.0.0.%d:1:%d" % (i % 3, 1_000_000 + 40_000 * i) for i in range(2000)]
    data = b"".join(key + b",r\n" for key in ids)
    store.write("a.log", data)
    store.write("b.log", ids[7] + b",again\nplain,1\n")
    store.read_all()
    for key in ids[::37]:
        assert store.ask(key) == (LookUpCode.FOUND, "a.log", data.index(key + b","), key + b",r")
    assert store.ask(ids[7])[1] == "a.log"
    assert store.ask(b"plain") == (LookUpCode.FOUND, "b.log", len(ids[7]) + 7, b"plain,1")
    assert store.ask(b"10.0.0.1:1:1040001", 0)[0] is LookUpCode.ABSENT


def test_bad_and_oversized_records_are_counted(filled: Filled) -> None:
    store = filled({"a.log": b"k,1\nbad\nraise,1\n" + b"z" * 500 + b"\nj,2\n"}, max_record=50)
    totals = store.map.totals()
    assert (totals.events, totals.bad_records) == (2, 3)
    assert store.ask(b"j")[0] is LookUpCode.FOUND


def test_commits_come_in_time(filled: Filled) -> None:
    store = filled({"a.log": b"k,1\n"})
    store.clock.ns += 6_000_000_000
    store.read_all()
    store.close()
    store = filled()
    assert [p.offset for p in store.map.positions()] == [4]


def unreadable(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def opened(path: Path) -> Source:
        if path.name == name:
            raise PermissionError(errno.EACCES, "Permission denied")
        return open_source(path)

    monkeypatch.setattr("photon.adapters.logs.open_files.open_source", opened)


def test_an_unread_log_holds_back_absent_and_fails_once(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled()
    unreadable(monkeypatch, "two.log")
    store.write("one.log", b"k,1\nx,1\n")
    store.write("two.log", b"y,1\n")
    for _ in range(5):
        store.read_all()
        store.clock.ns += 1000
    assert store.ask(b"y", store.clock.ns - 1000)[0] is LookUpCode.NOT_YET
    store.close()
    store = filled(once=True)
    with pytest.raises(PrimaryLogsIncomplete, match=r"two\.log: cannot be opened"):
        store.read_all()
    assert store.ask(b"y", NEVER_NS)[0] is LookUpCode.NOT_YET


def test_progress_goes_on_once_the_unread_log_is_gone(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled()
    unreadable(monkeypatch, "two.log")
    store.write("one.log", b"k,1\nx,1\n")
    store.write("two.log", b"y,1\n")
    for _ in range(5):
        store.read_all()
        store.clock.ns += 1000
    assert store.ask(b"y", store.clock.ns - 1000)[0] is LookUpCode.NOT_YET
    (store.logs / "two.log").unlink()
    for _ in range(2):
        store.read_all()
        store.clock.ns += 1000
    assert store.ask(b"y", store.clock.ns - 1000)[0] is LookUpCode.ABSENT


@pytest.mark.parametrize("once", [False, True])
def test_a_copy_holds_nothing_back(filled: Filled, once: bool) -> None:
    store = filled(once=once)
    store.write("one.log", b"k,1\nx,1\n")
    store.write("one (copy).log", b"k,1\nx,1\n")
    for _ in range(5):
        store.read_all()
        store.clock.ns += 1000
    assert store.ask(b"y", store.clock.ns - 10_000)[0] is LookUpCode.ABSENT
    assert store.ask(b"x", store.clock.ns - 10_000)[0] is LookUpCode.FOUND
    store.close()


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("b.log.gz", b"no gzip", "b.log.gz: not valid gzip"),
        ("b.log.gz", gzip.compress(b"y,1\n" * 50)[:-9], "b.log.gz: the compressed stream is incomplete"),
        ("b.log.lz4", b"y,1\n", "b.log.lz4: lz4 is not a supported compression"),
    ],
    ids=["no gzip", "cut short", "unsupported"],
)
def test_once_a_log_that_is_not_readable_to_its_end_is_named(
    filled: Filled, name: str, data: bytes, said: str
) -> None:
    store = filled(once=True)
    store.write("a.log", b"k,1\n")
    store.write(name, data)
    with pytest.raises(PrimaryLogsIncomplete, match=said):
        store.read_all()
    assert store.ask(b"z", NEVER_NS)[0] is LookUpCode.NOT_YET


class _Nonsense(LineAdapter):
    def __init__(self, keys: object) -> None:
        super().__init__({})
        self._keys = keys

    def primary_keys(self, block: bytes, file: LogFile) -> list[bytes | None]:
        return self._keys  # type: ignore[return-value]


@pytest.mark.parametrize("keys", [None, [b"k"], ["k", b"x"], [None, 7]])
def test_where_the_keys_of_a_block_are_nonsense_each_record_is_asked_alone(keys: object) -> None:
    found = block_keys(_Nonsense(keys), b"k,1\nx,1\n", LogFile("a.log"))
    assert sorted(found.keys) == [b"k", b"x"]
    assert not found.failed


class FailingAdapter(LineAdapter):
    def primary_key(self, record: bytes, file: LogFile) -> bytes:
        key = super().primary_key(record, file)
        made: dict[bytes, object] = {b"text": "text", b"empty": b"", b"long": b"k" * (KEY_BYTES_MAX + 1)}
        if key == b"interrupt":
            raise KeyboardInterrupt
        return made.get(key, key)  # type: ignore[return-value]


def test_a_key_that_the_adapter_fails_on_is_not_taken_for_none() -> None:
    block = b"k,1\ntext,1\nempty,1\ninterrupt,1\nlong,1\n"
    found = block_keys(FailingAdapter({}), block, LogFile("a.log"))
    assert list(found.keys) == [b"k"]
    assert found.bad == 4
    assert [start for start, _ in found.failed] == [4, 19, 31]
    assert "str" in found.failed[0][1]
    assert "KeyboardInterrupt" in found.failed[1][1]
    assert "bytes" in found.failed[2][1]
