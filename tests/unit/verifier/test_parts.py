"""The verifier's small parts: alarms, repeated ids, vanished logs, ids owned for too long, locks."""

from __future__ import annotations

import errno
import fcntl
import os
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from photon.config.disk import AppendFile, RealDisk
from photon.config.file_lock import holder_of
from photon.idregistry.api import Digester, token_of
from photon.verifier import lock
from photon.verifier.alarms import (
    NAME,
    OLD_NAME,
    OPEN_MAX,
    AlarmKind,
    AlarmLog,
    AlarmsDamaged,
    acknowledge,
    open_alarms,
    read_lines,
)
from photon.verifier.owned_ids import TOKENS_MAX, OwnedCount, OwnedFile, too_long, updated
from photon.verifier.seen_ids import SeenIds
from photon.verifier.service import pause_s
from photon.verifier.slot_state import state_of
from photon.verifier.source_finder import UNWATCHED_NS, LogMemory

DISK = RealDisk()
S = 10**9


# -- alarms ----------------------------------------------------------------------------------------------------------
def test_an_alarm_is_told_once_over_restarts(tmp_path: Path) -> None:
    for _ in range(3):
        alarms = AlarmLog(DISK, tmp_path, "s0")
        alarms.tell(AlarmKind.TORN, "broken", 5, file="joined/s0-000001.jsonl", offset=10)
        alarms.tell(AlarmKind.TORN, "broken", 6, file="joined/s0-000001.jsonl", offset=20)
    stand = open_alarms(DISK, tmp_path)
    assert [(each.finding, each.offset, each.at_ns) for each in stand] == [("torn", 10, 5), ("torn", 20, 6)]
    assert all(each.todo for each in stand)
    assert len(read_lines(DISK, tmp_path / NAME)) == 2


def test_what_is_over_may_be_told_again(tmp_path: Path) -> None:
    alarms = AlarmLog(DISK, tmp_path, "s0")
    alarms.tell(AlarmKind.OWNED, "3 ids", 1)
    alarms.over(AlarmKind.OWNED, 2)
    alarms.over(AlarmKind.OWNED, 3)
    assert (alarms.open, open_alarms(DISK, tmp_path)) == (0, [])
    again = AlarmLog(DISK, tmp_path, "s0")
    again.tell(AlarmKind.OWNED, "4 ids", 4)
    assert [each.what for each in open_alarms(DISK, tmp_path)] == ["4 ids"]
    assert len(read_lines(DISK, tmp_path / NAME)) == 3


class FullDisk(RealDisk):
    """Once it is ``full``, only half of a line finds room."""

    full = False

    def append(self, path: Path) -> AppendFile:
        file = super().append(path)
        if self.full:
            write = file.write

            def half(*chunks: bytes) -> None:
                write(chunks[0][: len(chunks[0]) // 2])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

            file.write = half  # type: ignore[method-assign]
        return file


def test_what_a_full_disk_did_not_take_is_told_once_there_is_room(tmp_path: Path) -> None:
    disk = FullDisk()
    alarms = AlarmLog(disk, tmp_path, "s0", bytes_max=900)
    alarms.tell(AlarmKind.DAMAGED, "a file", 1)
    for number in (2, 3, 4, 5):  # the log is restarted in between
        disk.full = True
        with pytest.raises(OSError, match="No space left"):
            alarms.tell(AlarmKind.TORN, "x", number, file="f", offset=number)
        with pytest.raises(OSError, match="No space left"):
            alarms.over(AlarmKind.DAMAGED, number)
        disk.full = False
        alarms.tell(AlarmKind.TORN, "x", number, file="f", offset=number)
        assert [each.offset for each in open_alarms(DISK, tmp_path)] == [0, *range(2, number + 1)]
    assert (tmp_path / OLD_NAME).exists()
    alarms.over(AlarmKind.DAMAGED, 6)
    assert [each.offset for each in open_alarms(DISK, tmp_path)] == [2, 3, 4, 5]
    assert AlarmLog(DISK, tmp_path, "s0").open == alarms.open == 4


def test_the_log_of_alarms_is_bounded_and_keeps_what_stands(tmp_path: Path) -> None:
    alarms = AlarmLog(DISK, tmp_path, "s0", bytes_max=4000)
    alarms.tell(AlarmKind.OWNED, "long ago", 0)
    for n in range(200):
        alarms.tell(AlarmKind.TORN, "x" * 300, n, file="f", offset=n)
        alarms.over(AlarmKind.TORN, n, file="f", offset=n)
    assert max([(tmp_path / name).stat().st_size for name in (NAME, OLD_NAME)]) < 5000
    assert [each.what for each in open_alarms(DISK, tmp_path)] == ["long ago"]
    assert AlarmLog(DISK, tmp_path, "s0").is_open(AlarmKind.OWNED)


def test_a_rotten_disk_does_not_flood_the_log(tmp_path: Path) -> None:
    alarms = AlarmLog(DISK, tmp_path, "s0")
    for n in range(OPEN_MAX + 10):
        alarms.tell(AlarmKind.TORN, "x", n, file="f", offset=n)
    alarms.tell(AlarmKind.OWNED, "told all the same", 0)
    assert len(open_alarms(DISK, tmp_path)) == OPEN_MAX + 1
    acknowledge(DISK, tmp_path, 1)
    alarms.tell(AlarmKind.TORN, "x", 1, file="f", offset=OPEN_MAX + 20)
    alarms.tell(AlarmKind.TORN, "x", 1, file="f", offset=3)  # acknowledged
    assert [each.offset for each in open_alarms(DISK, tmp_path)] == [OPEN_MAX + 20]


def test_acknowledged_alarms_stay_over_while_the_verifier_runs(tmp_path: Path) -> None:
    alarms = AlarmLog(DISK, tmp_path, "s0", bytes_max=2000)
    alarms.tell(AlarmKind.TORN, "x", 1, file="f", offset=1)
    assert acknowledge(DISK, tmp_path, 9) == 1
    assert acknowledge(DISK, tmp_path, 9) == 0
    alarms.tell(AlarmKind.TORN, "x", 2, file="f", offset=1)  # the same line, read once more
    again = AlarmLog(DISK, tmp_path, "s0", bytes_max=2000)
    again.tell(AlarmKind.TORN, "x", 2, file="f", offset=1)
    assert open_alarms(DISK, tmp_path) == []
    for n in range(2, 20):  # carried on into further files
        alarms.tell(AlarmKind.TORN, "x" * 200, n, file="f", offset=n)
    assert 1 not in [each.offset for each in open_alarms(DISK, tmp_path)]


def test_a_torn_and_a_damaged_log_of_alarms(tmp_path: Path) -> None:
    AlarmLog(DISK, tmp_path, "s0").tell(AlarmKind.TORN, "x", 1, file="f", offset=1)
    path = tmp_path / NAME
    whole = path.read_bytes()
    path.write_bytes(whole + whole[-20:-1])
    AlarmLog(DISK, tmp_path, "s0").tell(AlarmKind.TORN, "x", 1, file="f", offset=2)
    assert [each.offset for each in open_alarms(DISK, tmp_path)] == [1, 2]
    path.write_bytes(b"{}\n" + whole)
    with pytest.raises(AlarmsDamaged, match="move it away"):
        AlarmLog(DISK, tmp_path, "s0")


# -- ids seen twice --------------------------------------------------------------------------------------------------
DIGESTER = Digester(b"key", "clicks")


def test_an_id_that_stands_at_two_places(tmp_path: Path) -> None:
    seen = SeenIds(1000)
    ids = [b"a", b"b", b"c"]
    assert seen.add("joined/s0-1", DIGESTER.digests(ids), [0, 10, 20]) == []
    assert seen.add("joined/s0-1", DIGESTER.digests(ids), [0, 10, 20]) == []  # read again after a crash
    assert seen.add("unmatched/s1-1", DIGESTER.digests([b"x", b"b"]), [0, 5]) == [(1, ("joined/s0-1", 10))]
    assert seen.add("joined/s0-1", DIGESTER.digests([b"c"]), [30]) == [(0, ("joined/s0-1", 20))]


@pytest.mark.parametrize("settled", [False, True])
def test_an_event_that_is_written_again_for_a_damaged_range_is_no_second_one(*, settled: bool) -> None:
    seen = SeenIds(1000, 2 if settled else 1000)

    def is_lost(file: str, offset: int) -> bool:
        return (file, offset) == ("joined/s0-1", 0)

    ids = DIGESTER.digests([b"a", b"b"])
    assert seen.add("joined/s0-1", ids, [0, 10], is_lost) == []
    assert seen.add("joined/s1-1", ids, [0, 10], is_lost) == [(1, ("joined/s0-1", 10))]
    assert seen.add("joined/s1-1", ids[:16], [0], is_lost) == []  # read again after a crash
    assert seen.add("joined/s1-1", ids[:16], [20], is_lost) == [(0, ("joined/s1-1", 0))]


WINDOW_STEPS = 80  # ten ids each: those in the columns that are kept for sure


def test_the_window_is_bounded_and_long_enough() -> None:
    seed = int(os.environ.get("PHOTON_SEED", "11"))
    print(f"PHOTON_SEED={seed}")
    draw = random.Random(seed)
    seen = SeenIds(1000, recent_max=100)
    at: dict[int, list[int]] = {}
    for step in range(500):
        ids = [draw.randrange(5000) for _ in range(10)]
        fresh = list(dict.fromkeys(ids))
        offsets = [step * 100 + n for n in range(len(fresh))]
        twins = dict(seen.add("f", DIGESTER.digests([b"%d" % each for each in fresh]), offsets))
        for row, (each, offset) in enumerate(zip(fresh, offsets, strict=True)):
            if row in twins:
                assert twins[row][1] < offset
                assert twins[row][1] in at[each], "another id's place"
            elif each in at:
                assert step - at[each][-1] // 100 > WINDOW_STEPS, "forgotten too early"
            at.setdefault(each, []).append(offset)


# -- logs that went --------------------------------------------------------------------------------------------------
def test_whether_a_source_may_have_been_deleted() -> None:
    memory = LogMemory()
    memory.looked({"a.log": ["1", "2"], "b.log": ["3"]}, 100 * S)
    hour = 3600 * S
    assert not memory.may_be_gone("a.log", 200 * S, hour)
    assert memory.may_be_gone("c.log", 200 * S, hour)  # nobody has seen a log of that name
    assert memory.may_be_gone("a.log", 99 * S, hour)  # made before anybody watched
    memory.looked({"a.log": ["2"], "b.log": ["3"]}, 300 * S)
    assert memory.may_be_gone("a.log", 200 * S, hour)
    assert memory.may_be_gone("a.log", 300 * S + hour // 2, hour)
    assert not memory.may_be_gone("a.log", 301 * S + hour, hour)
    assert memory.may_be_gone("a.log", 301 * S + hour, None)  # it may have waited for any time
    assert memory.may_be_gone("a.log", None, hour)
    assert not memory.may_be_gone("b.log", None, hour)


def test_who_was_away_for_long_has_not_watched() -> None:
    memory = LogMemory()
    memory.looked({"a.log": ["1"]}, 100 * S)
    memory.looked({"a.log": ["1"]}, 100 * S + UNWATCHED_NS)
    assert not memory.may_be_gone("a.log", 101 * S, S)
    later = 101 * S + 2 * UNWATCHED_NS
    memory.looked({"a.log": ["1"]}, later)
    assert memory.may_be_gone("a.log", later - S, S)
    assert not memory.may_be_gone("a.log", later, S)


# -- owned ids -------------------------------------------------------------------------------------------------------
def count_of(tokens: list[int], *, whole: bool = True, fenced: bool = False) -> OwnedCount:
    count = OwnedCount(whole=whole)
    count.add(np.array(tokens, np.uint64), fenced=fenced)
    return count


def test_ids_are_owned_for_too_long() -> None:
    old, young = token_of(3, 1), token_of(3, 2)
    first = count_of([old, old])
    owned = updated(OwnedFile(), first, 0)
    assert too_long(owned, first, 300 * S, 300) is None
    second = count_of([old, young, young])
    owned = updated(owned, second, 301 * S)
    assert (owned.ids, owned.oldest_ns) == (3, 0)
    found = too_long(owned, second, 301 * S, 300)
    assert (found.ids, found.batches, found.incarnations, found.for_s) == (1, 1, (3,), 301.0)
    third = count_of([young])
    owned = updated(owned, third, 400 * S)
    assert too_long(owned, third, 400 * S, 300) is None
    assert owned.since_ns == {young: 301 * S}


def test_a_look_that_did_not_get_to_its_end_forgets_nothing() -> None:
    token = token_of(1, 1)
    owned = updated(OwnedFile(), count_of([token], fenced=True), 0)
    partly = updated(owned, count_of([], whole=False), 10 * S)
    assert (partly.since_ns, partly.ids, partly.retired) == ({token: 0}, 1, True)
    assert updated(partly, count_of([]), 20 * S).since_ns == {}


def test_of_many_batches_the_oldest_are_told_apart() -> None:
    tokens = [token_of(1, batch) for batch in range(TOKENS_MAX + 50)]
    owned = updated(OwnedFile(), count_of(tokens), 0)
    assert owned.ids == len(tokens)
    assert sorted(owned.since_ns) == tokens[:TOKENS_MAX]
    assert Counter(owned.since_ns.values()) == {0: TOKENS_MAX}


def test_a_clock_that_was_set_back() -> None:
    token = token_of(1, 1)
    owned = updated(OwnedFile(), count_of([token]), 1000 * S)
    assert updated(owned, count_of([token]), 500 * S).oldest_ns == 500 * S


# -- locks and slots -------------------------------------------------------------------------------------------------
def test_one_verifier_at_a_time(tmp_path: Path) -> None:
    held = lock.take(tmp_path)
    with pytest.raises(lock.VerifierBusy, match=f"pid {os.getpid()}.*stop it first"):
        lock.take(tmp_path)
    assert holder_of(tmp_path / "lock") == f"pid {os.getpid()}"
    os.close(held)
    assert holder_of(tmp_path / "lock") is None
    os.close(lock.take(tmp_path))


def test_who_only_looks_holds_nobody_back(tmp_path: Path) -> None:
    os.close(lock.take(tmp_path))
    looking = os.open(tmp_path / "lock", os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            fcntl.flock(looking, fcntl.LOCK_UN)

    os.close(lock.take(tmp_path, sleep=sleep))
    assert len(waited) == 3
    os.close(looking)


def test_what_is_seen_of_a_slot(tmp_path: Path) -> None:
    state = tmp_path / "s0"
    assert str(state_of(DISK, state)) == "its directory is not there"
    assert str(state_of(DISK, state, retired=True)) == "retired, its directory is not there"
    (state / "redo").mkdir(parents=True)
    (state / "redo/00000001.redo").write_bytes(b"x" * 1234)
    (state / "lock").write_bytes(b"pid 77\n")
    assert str(state_of(DISK, state)) == "no live process holds it, 1,234 bytes in its redo log"
    fd = os.open(state / "lock", os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    seen = state_of(DISK, state)
    assert (str(seen), seen.word) == ("held by a live process (pid 77), 1,234 bytes in its redo log", "live")
    os.close(fd)
    assert [state_of(DISK, state).word, state_of(DISK, state, retired=True).word] == ["down", "retired"]


def test_a_share_of_a_core() -> None:
    assert pause_s(0.1, 0.1, 0.25) == pytest.approx(0.3)
    assert pause_s(0.1, 0.5, 0.25) == 0.0  # the disk was slow: it has rested enough
    assert pause_s(0.1, 0.1, 1.0) == 0.0
