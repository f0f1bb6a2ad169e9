"""Lost primary logs are named and counted, wait for their operator, and are taken back when they return."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from photon.adapters.contract import LogFile
from photon.config.clock import NEVER_NS, SystemClock
from photon.config.disk import RealDisk
from photon.eventstore import unavailable
from photon.eventstore.api import LookUpCode
from photon.eventstore.engine import EventStoreConfig, EventStoreEngine
from photon.eventstore.file_map import MappedLog
from photon.eventstore.logs_store import GONE
from photon.eventstore.unavailable import GRACE_ONCE_SECONDS, GRACE_SECONDS, KEYS_MAX, UnavailableLogs
from tests.kit.clock import ManualClock

from .helpers import LineAdapter, until

LOGS = [MappedLog(n, f"{n}" * 32, LogFile(name), 100) for n, name in enumerate(("a.log", "a.log", "b.log"))]
A0, A1, B = LOGS


class Watched:
    """UnavailableLogs with a manually set clock, and its reports."""

    def __init__(self, state: Path, *, forget_missing: bool = False, once: bool = False) -> None:
        self.clock = ManualClock()
        self.told: list[str] = []
        self.logs = UnavailableLogs(
            state, self.clock, RealDisk(), report=self.told.append, forget_missing=forget_missing, once=once
        )

    def scanned(self, *present: MappedLog, later: float = 0.0) -> list[str]:
        """Reports of a scan that finds these."""
        self.clock.ns += int(later * 1e9)
        self.told.clear()
        self.logs.scanned({log.identity: log.file.path for log in present})
        return list(self.told)


def test_a_log_is_reported_by_name_once_after_the_grace_time_and_when_it_is_back(tmp_path: Path) -> None:
    w = Watched(tmp_path)
    w.logs.failed(B, GONE, [b"early"])  # before anybody has looked: says nothing
    assert w.scanned(A0, A1) == []
    assert w.logs.counts() == (0, 0)
    w.logs.failed(B, GONE, [b"k1", b"k2", b"k1"])
    w.logs.failed(B, GONE, [b"k2"])
    assert w.logs.counts() == (1, 2)
    assert w.scanned(A0, A1, later=GRACE_SECONDS - 1) == []
    [line] = w.scanned(A0, A1, later=1)
    assert line.startswith("b.log (22222222): its file is gone; 2 keys ")
    assert "photon eventstore forget" in line
    assert w.scanned(A0, A1, later=100) == []
    [shown] = w.logs.listed()
    assert (shown.path, shown.identity, shown.why, shown.keys, shown.present) == ("b.log", B.identity, GONE, 2, False)
    assert w.scanned(A0, A1, B) == ["b.log: is back; its records can be looked up again"]
    assert w.logs.counts() == (0, 0)


def test_with_once_the_grace_time_is_short(tmp_path: Path) -> None:
    w = Watched(tmp_path, once=True)
    w.scanned(A0, A1)
    w.logs.failed(B, GONE, [b"k"])
    assert w.scanned(A0, A1, later=GRACE_ONCE_SECONDS / 2) == []
    assert w.logs.gone == frozenset()
    assert len(w.scanned(A0, A1, later=GRACE_ONCE_SECONDS)) == 1
    assert w.logs.gone == {B.identity}


def test_a_key_that_stands_elsewhere_does_not_wait_for_a_log_that_is_gone(tmp_path: Path) -> None:
    w = Watched(tmp_path)
    w.scanned(A0, A1)
    w.logs.failed(B, GONE, [b"k1", b"k2"])
    w.logs.failed(A1, "it cannot be opened (Permission denied)", [b"k1"])
    assert w.logs.gone == frozenset()
    w.scanned(A0, A1, later=GRACE_SECONDS)
    assert w.logs.gone == {B.identity}
    w.logs.elsewhere(B, b"k1")
    assert w.logs.counts() == (2, 2)
    w.logs.elsewhere(B, b"k2")
    assert w.logs.counts() == (1, 1)  # a log for which nothing waits is not missing
    w.scanned(*LOGS)
    assert w.logs.gone == frozenset()


def test_a_log_that_is_there_and_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    w = Watched(tmp_path)
    w.scanned(A0)
    w.logs.failed(A0, "it cannot be opened (Permission denied)", [b"k"])
    [line] = w.scanned(A0, later=GRACE_SECONDS)
    assert "Permission denied" in line
    assert "make it readable" in line
    assert w.logs.listed()[0].present
    w.logs.succeeded(A0)
    assert w.logs.listed() == ()


def test_counted_keys_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    w = Watched(tmp_path)
    w.scanned()
    w.logs.failed(B, GONE, [b"%d" % n for n in range(3 * KEYS_MAX)])
    assert w.logs.counts() == (1, KEYS_MAX)
    [line] = w.scanned(later=GRACE_SECONDS)
    assert "10,000 keys or more" in line
    monkeypatch.setattr(unavailable, "LOGS_MAX", 1)
    w.logs.failed(A0, GONE, [b"k"])
    assert len(w.logs.listed()) == 1


def test_only_logs_without_a_file_are_given_up_and_only_when_told_to(tmp_path: Path) -> None:
    w = Watched(tmp_path)
    assert "try again" in w.logs.forget(["b.log"], LOGS, apply=True).refused[0]
    w.scanned(A0)
    said = w.logs.forget(["a.log", "b.log", "c.log", B.identity[:8]], LOGS, apply=False)
    # a.log is the last name of two logs: the existing one is not meant.
    assert [(each.path, each.identity) for each in said.logs] == [("a.log", A1.identity), ("b.log", B.identity)]
    assert said.refused == ("c.log: no primary log of this name was ever read",)
    assert w.logs.given_up == frozenset()
    assert w.logs.forget([A0.identity], LOGS, apply=True).refused == (
        f"{A0.identity}: exists; only a log whose file is gone can be given up",
    )
    w.told.clear()
    assert w.logs.forget(["b.log"], LOGS, apply=True).logs[0].identity == B.identity
    assert w.logs.given_up == {B.identity}
    assert w.told == ["b.log (22222222): given up; its keys count as absent"]
    assert w.logs.forget(["b.log"], LOGS, apply=True).logs == ()
    w.logs.failed(A1, GONE, [b"k"])
    assert [each.identity for each in w.logs.forget([], LOGS, apply=False).logs] == [A1.identity]


def test_what_was_given_up_survives_a_restart_and_is_taken_back_when_it_returns(tmp_path: Path) -> None:
    w = Watched(tmp_path)
    w.scanned(A0, A1)
    w.logs.forget(["b.log"], LOGS, apply=True)
    w = Watched(tmp_path)
    assert w.logs.given_up == {B.identity}
    assert [each.forgotten for each in w.logs.listed()] == [True]
    assert w.logs.counts() == (0, 0)
    assert w.scanned(*LOGS) == ["b.log: is back; its records can be looked up again"]
    assert w.logs.given_up == frozenset()
    assert Watched(tmp_path).logs.given_up == frozenset()


def test_a_damaged_file_of_given_up_logs_is_told_and_waits_again(tmp_path: Path) -> None:
    w = Watched(tmp_path)
    w.scanned()
    w.logs.forget(["b.log"], LOGS, apply=True)
    file = tmp_path / unavailable.FILE_NAME
    file.write_bytes(file.read_bytes().replace(b"b.log", b"c.log"))
    w = Watched(tmp_path)
    assert "damaged" in w.told[0]
    assert w.logs.given_up == frozenset()


def test_with_the_setting_a_gone_log_is_given_up_by_itself_and_named(tmp_path: Path) -> None:
    w = Watched(tmp_path, forget_missing=True)
    w.scanned(A0, A1)
    w.logs.failed(B, GONE, [b"k"])
    w.logs.failed(A0, "it cannot be opened (Permission denied)", [b"k"])
    assert w.scanned(A0, A1, later=GRACE_SECONDS - 1) == []
    assert w.logs.given_up == frozenset()
    lines = w.scanned(A0, A1, later=1)
    assert any(line.startswith("b.log (22222222): its file is gone; 1 key ") and "absent" in line for line in lines)
    assert w.logs.given_up == {B.identity}  # existing unreadable logs are never given up


@pytest.mark.parametrize("once", [False, True])
async def test_a_deleted_log_in_a_running_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, once: bool) -> None:
    monkeypatch.setattr(unavailable, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(unavailable, "GRACE_ONCE_SECONDS", 0.0)
    logs = tmp_path / "logs"
    logs.mkdir()
    told: list[str] = []
    config = EventStoreConfig("clicks", logs, tmp_path / "map", once=once, cache_bytes=1)

    def engine() -> EventStoreEngine:
        return EventStoreEngine(config, LineAdapter({}), SystemClock(), RealDisk(), told.append)

    (logs / "a.log").write_bytes(b"k1,1\n")
    (logs / "b.log").write_bytes(b"k2,2\nboth,b\n")
    (logs / "c.log").write_bytes(b"both,c\n")
    store = engine()
    store.start()

    async def answers(as_of: int = 0) -> list[LookUpCode]:
        return (await store.look_up([b"k1", b"k2", b"both"], [as_of] * 3)).answers

    async def reached(wanted: list[LookUpCode]) -> None:
        async def there() -> bool:
            return await answers() == wanted

        await until(there)

    await reached([LookUpCode.FOUND] * 3)
    shutil.copy(logs / "b.log", tmp_path / "b.away")
    (logs / "b.log").unlink()
    gone = [LookUpCode.FOUND, LookUpCode.UNAVAILABLE, LookUpCode.UNAVAILABLE]
    await reached(gone)
    await until(lambda: any("b.log" in line and "2 keys" in line for line in told))
    await reached([LookUpCode.FOUND, LookUpCode.GONE, LookUpCode.FOUND])  # "both" is in c.log as well
    progress = await store.progress()
    assert (progress.missing_logs, progress.missing_keys) == (1, 1)
    assert [each.path for each in (await store.details()).unavailable] == ["b.log"]
    said = await store.forget(["b.log"], apply=False)
    assert [each.keys for each in said.logs] == [1]
    assert await answers() == [LookUpCode.FOUND, LookUpCode.GONE, LookUpCode.FOUND]
    assert (await store.forget(["b.log"], apply=True)).logs == said.logs
    assert (await store.look_up([b"k2"], [NEVER_NS])).answers == [LookUpCode.ABSENT if once else LookUpCode.NOT_YET]
    given_up = [LookUpCode.FOUND, LookUpCode.ABSENT, LookUpCode.FOUND]
    await reached(given_up)
    assert (await store.look_up([b"both"], [0])).records[0].record == b"both,c"  # type: ignore[union-attr]
    assert (await store.progress()).missing_logs == 0
    await store.close()
    store = engine()
    store.start()
    await reached(given_up)
    (tmp_path / "b.away").rename(logs / "b.log.1")
    await reached([LookUpCode.FOUND] * 3)
    assert (await store.look_up([b"both"], [0])).records[0].record == b"both,b"  # type: ignore[union-attr]
    await store.close()
