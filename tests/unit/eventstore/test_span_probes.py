"""Guesses within a span: they save reading, and never change the record found."""

from __future__ import annotations

from pathlib import Path

import pytest

from photon.eventstore import log_pass
from photon.eventstore.api import LookUpCode
from photon.eventstore.file_map import MapKind
from photon.eventstore.tiered import TieredEventStore

from .helpers import Store

STEP = 1000  # microseconds between two records; each has about 300 bytes
RECORDS = 3000


def event(number: int, process: int = 1) -> bytes:
    return b"10.0.0.1:%d:%d" % (process, 1_000_000 + number * STEP)


def line(key: bytes) -> bytes:
    return key + b"," + b"x" * (298 - len(key)) + b"\n"


def store_of(base: Path, lines: list[bytes]) -> Store:
    """Nothing is cached. A second process begins in the middle, so the log's speed is known from two anchors."""
    lines[RECORDS // 2] = line(event(RECORDS // 2, process=2))
    store = Store(base, kind=MapKind.SPARSE, cache_bytes=1)
    store.write("a.log", b"".join(lines))
    store.read_all()
    return store


def test_a_guess_reads_little(tmp_path: Path) -> None:
    store = store_of(tmp_path, [line(event(n)) for n in range(RECORDS)])
    asked = [100, 1000, 2400, RECORDS - 1]
    keys = [event(RECORDS // 2, process=2), *map(event, asked)]
    found = store.tiers.look_up(keys, [0] * len(keys))
    assert found.answers == [LookUpCode.FOUND] * len(keys)
    assert [each.offset for each in found.records if each] == [300 * n for n in [RECORDS // 2, *asked]]
    assert store.reads.counts().bytes < len(keys) * 2 * log_pass.PROBE_BYTES
    store.close()


def test_a_log_whose_speed_changes_is_found_by_the_second_guess_or_the_search(tmp_path: Path) -> None:
    """Ten times as many events a second in its second half, and a long pause."""
    times = [n * 10 for n in range(RECORDS // 2)] + [RECORDS * 20 + n for n in range(RECORDS // 2)]
    lines = [line(event(n)) for n in times]
    store = store_of(tmp_path, lines)
    keys = [event(times[n]) for n in range(RECORDS) if n != RECORDS // 2][::37]
    found = store.tiers.look_up([event(RECORDS // 2, process=2), *keys], [0] * (len(keys) + 1))
    assert set(found.answers) == {LookUpCode.FOUND}
    assert [each.record + b"\n" for each in found.records[1:] if each] == list(map(line, keys))
    absent = store.tiers.look_up([event(times[7] + 1), event(RECORDS * 19)], [0, 0])
    assert absent.answers == [LookUpCode.ABSENT] * 2
    store.close()


@pytest.mark.parametrize("guarded", [True, False])
def test_a_guess_does_not_prefer_a_second_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """The clock of a third process is ahead: its id appears early, and again where its time belongs."""
    if not guarded:  # without the rule it goes wrong
        monkeypatch.setattr(TieredEventStore, "_exact_places", staticmethod(lambda places: set()))
    lines = [line(event(n)) for n in range(RECORDS)]
    ahead = event(2000, process=3)
    lines[1], lines[10], lines[2000] = line(event(1, process=3)), line(ahead), line(ahead)
    store = store_of(tmp_path, lines)
    found = store.tiers.look_up([ahead, event(RECORDS // 2, process=2), event(5)], [0] * 3)
    assert found.answers == [LookUpCode.FOUND] * 3
    assert found.records[0].offset == 300 * (10 if guarded else 2000)
    store.close()


def test_what_a_process_has_not_written_yet_costs_no_reading(tmp_path: Path) -> None:
    store = store_of(tmp_path, [line(event(n)) for n in range(RECORDS)])
    early = event(RECORDS + 7)
    assert store.tiers.look_up([early], [0]).answers == [LookUpCode.ABSENT]
    assert store.tiers.look_up([early], [10**9]).answers == [LookUpCode.NOT_YET]
    assert store.reads.counts().bytes == 0
    store.write("a.log", line(early))
    store.read_all()
    assert store.tiers.look_up([early], [0]).answers == [LookUpCode.FOUND]
    store.close()
