"""Several logs read at the same time: a slow one holds back no other; its waiting requests are read together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np

from photon.adapters.contract import LogFile
from photon.batch.records import PrimaryRecord
from photon.eventstore.file_map import MappedLog
from photon.eventstore.found_records import FoundRecords, ReadResults
from photon.eventstore.index import I64
from photon.eventstore.log_reads import READ_THREADS, LogReads
from photon.eventstore.logs_store import LogsEventStore, Tell
from photon.eventstore.places_to_read import PlacesToRead, PlaceToRead

from .helpers import LineAdapter, told


def want(log: int, offset: int) -> PlaceToRead:
    return PlaceToRead(b"k%d" % offset, MappedLog(log, f"log{log}", LogFile(f"{log}.log"), 100), offset, 0, -1)


class SlowLogs(LogsEventStore):
    """Every record is there; log 0 is read when ``gate`` opens."""

    def __init__(self) -> None:
        super().__init__(Path("nowhere"), LineAdapter({}), lambda identity: None)
        self.gate = threading.Event()
        self.at_gate = threading.Event()
        self.passes: list[tuple[int, list[int]]] = []

    def read_log(
        self,
        log: MappedLog,
        wanted: PlacesToRead,
        indexes: I64,
        tell: Tell,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        number = log.number
        self.passes.append((number, sorted(wanted.offsets[indexes].tolist())))
        if number == 0:
            self.at_gate.set()
            assert self.gate.wait(20)
        if not stopped():
            for at in indexes.tolist():
                each = wanted[at]
                record = PrimaryRecord(each.key, LogFile("x"), each.offset)
                tell(FoundRecords.of([(at, log.identity, record)]), np.empty(0, np.int64))


def found(reads: ReadResults) -> list[bytes]:
    return [each.record for _, each in told(reads)]


async def test_a_slow_log_holds_back_neither_other_logs_nor_other_batches() -> None:
    logs = SlowLogs()
    reads = LogReads(logs, patience=20)
    slow = asyncio.create_task(reads.read([want(0, 1), want(1, 2)]))
    await asyncio.to_thread(logs.at_gate.wait, 20)
    # More askers of the slow log than there are threads.
    waiting = [asyncio.create_task(reads.read([want(0, 50 - i)])) for i in range(2 * READ_THREADS)]
    await asyncio.sleep(0)
    assert found(await reads.read([want(2, 3), want(1, 4)])) == [b"k3", b"k4"]
    assert not slow.done()
    logs.gate.set()
    assert found(await slow) == [b"k1", b"k2"]
    assert [found(await each) for each in waiting] == [[b"k%d" % (50 - i)] for i in range(2 * READ_THREADS)]
    # Requests for the slow log were read in one pass, in the order of offsets.
    assert [offsets for log, offsets in logs.passes if log == 0] == [[1], list(range(43, 51))]
    reads.close()


async def test_what_is_not_read_in_time_is_unavailable_and_the_rest_is_answered() -> None:
    logs = SlowLogs()
    reads = LogReads(logs, patience=0.2)
    first = await reads.read([want(0, 1), want(1, 2)])
    assert [what for what, _ in told(first)] == ["unavailable", "found"]
    assert told(await asyncio.create_task(reads.read([want(0, 7)])))[0][0] == "unavailable"
    logs.gate.set()
    reads.close()
    # Nobody waits for it any more: it is not read.
    assert [offsets for log, offsets in logs.passes if log == 0] == [[1]]
    assert told(await reads.read([want(1, 2)]))[0][0] == "unavailable"
