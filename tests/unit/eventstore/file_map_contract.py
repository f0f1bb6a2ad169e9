"""The contract of every FileMap backend; a backend's tests subclass this and say how it is opened."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from photon.eventstore.file_map import PLACES_PER_KEY_MAX, UNKNOWN_TIME_NS, FileMap, MapKind
from photon.eventstore.index import hash_keys

from .helpers import block

Opening = Callable[..., FileMap]
Place = tuple[str, int, int, int]  # identity, offset, span, anchor


def places(file_map: FileMap, *keys: bytes) -> list[list[Place]]:
    found = file_map.places(keys, hash_keys(keys))
    out: list[list[Place]] = [[] for _ in keys]
    columns: Sequence[list[int]] = [
        column.tolist() for column in (found.rows, found.logs, found.offsets, found.spans, found.anchors)
    ]
    for row, log, offset, span, anchor in zip(*columns, strict=True):
        out[row].append((file_map.logs()[log].identity, offset, span, anchor))
    return [sorted(each) for each in out]


def versions(file_map: FileMap, *asked: tuple[bytes, int], without: Sequence[int] = ()) -> list[list[Place]]:
    """(identity, offset, time) of each place, by what was asked for."""
    found = file_map.versions(
        hash_keys([key for key, _ in asked]), np.array([time for _, time in asked], np.int64), without
    )
    assert found.times is not None
    out: list[list[Place]] = [[] for _ in asked]
    columns = (found.rows, found.logs, found.offsets, found.spans, found.times)
    for row, log, offset, span, time in zip(*(column.tolist() for column in columns), strict=True):
        assert span == 0
        out[row].append((file_map.logs()[log].identity, offset, span, time))
    return [sorted(each) for each in out]


def event(micros: int, process: bytes = b"10.0.0.1:7") -> bytes:
    return b"%s:%d" % (process, micros)


class FileMapContract(ABC):
    """``self.open`` opens the same map again after ``close``, which does not commit."""

    @abstractmethod
    def open(
        self,
        directory: Path,
        kind: MapKind,
        window_micros: int = 1000,
        window_bytes: int = 100,
        timed: bool = False,
    ) -> FileMap: ...

    @pytest.fixture
    def opening(self, tmp_path: Path) -> Iterator[Opening]:
        """Opens the map; the one before is closed, and the last one at the end."""
        maps: list[FileMap] = []

        def opened(kind: MapKind = MapKind.DENSE, **windows: int) -> FileMap:
            for each in maps:
                each.close()
            maps[:] = [self.open(tmp_path, kind, **windows)]
            return maps[0]

        yield opened
        for each in maps:
            each.close()

    def test_a_new_map_is_empty(self, opening: Opening) -> None:
        file_map = opening(MapKind.DENSE)
        assert file_map.positions() == []
        assert places(file_map, b"k") == [[]]
        assert file_map.totals(exact=True).events == 0

    @pytest.mark.parametrize("committed", [False, True])
    def test_added_keys_are_found_at_once(self, opening: Opening, committed: bool) -> None:
        file_map = opening(MapKind.DENSE)
        file_map.add(block([b"k1", b"k2"], [0, 9], begin=0, end=20))
        file_map.add(block([b"k1", b"k3"], [5, 7], identity="b", path="b.log", begin=5, end=30))
        if committed:
            file_map.commit()
        assert places(file_map, b"k3", b"k1", b"no") == [[("b", 7, 0, -1)], [("a", 0, 0, -1), ("b", 5, 0, -1)], []]
        assert [(p.identity, p.offset) for p in file_map.positions()] == [("a", 20), ("b", 30)]

    @pytest.mark.parametrize("kind", MapKind)
    def test_commit_keeps_all_and_a_crash_takes_back_the_rest_together(self, opening: Opening, kind: MapKind) -> None:
        file_map = opening(kind)
        file_map.add(block([event(1), b"plain"], [0, 30], begin=0, end=60))
        file_map.commit()
        before = places(file_map, event(1), b"plain")
        file_map.add(block([event(5000), b"lost"], [60, 90], begin=60, end=120))
        file_map.add(block([b"x"], [0], identity="b", path="b.log", begin=0, end=8))

        file_map = opening(kind)
        assert [(p.identity, p.path, p.offset) for p in file_map.positions()] == [("a", "a.log", 60)]
        assert places(file_map, event(1), b"plain") == before
        assert before[0]
        assert before[1] == [("a", 30, 0, -1)]
        assert places(file_map, event(5000), b"lost", b"x") == [[], [], []]
        assert file_map.totals().events == 2
        # lost entries are read again, and are there once
        file_map.add(block([event(5000), b"lost"], [60, 90], begin=60, end=120))
        file_map.commit()
        assert places(file_map, b"lost") == [[("a", 90, 0, -1)]]
        assert len(places(file_map, event(5000))[0]) == 1
        assert file_map.totals(exact=True).events == 4

    def test_many_commits(self, opening: Opening) -> None:
        file_map = opening(MapKind.DENSE)
        for number in range(70):
            keys = [b"%d-%d" % (number, i) for i in range(50)]
            starts = [number * 1000 + 10 * i for i in range(50)]
            file_map.add(block(keys, starts, begin=number * 1000, end=(number + 1) * 1000))
            file_map.commit()
        asked = [b"%d-%d" % (number, 49) for number in range(70)]
        expected = [[("a", number * 1000 + 490, 0, -1)] for number in range(70)]
        assert places(file_map, *asked) == expected
        file_map = opening(MapKind.DENSE)
        assert places(file_map, *asked) == expected
        assert file_map.totals().events == 3500

    def test_repeats_are_counted(self, opening: Opening) -> None:
        file_map = opening(MapKind.DENSE)
        file_map.add(block([b"k", b"k", b"j"], [0, 3, 6], begin=0, end=9))
        file_map.commit()
        file_map.add(block([b"k", b"i"], [9, 12], begin=9, end=15))
        assert file_map.totals(exact=True).duplicates == 2
        file_map.commit()
        assert file_map.totals(exact=True).duplicates == 2

    def test_of_very_many_places_the_first_in_file_order_are_given(self, opening: Opening) -> None:
        file_map = opening(MapKind.DENSE)
        for identity, path in (("b", "b.log"), ("a", "a.log.1")):
            keys = [b"same"] * 40
            file_map.add(block(keys, [2 * i for i in range(40)], identity=identity, path=path, begin=0, end=80))
        expected = [("a", 2 * i, 0, -1) for i in range(PLACES_PER_KEY_MAX)]
        assert places(file_map, b"same", b"no") == [expected, []]

    # -- versions --------------------------------------------------------------------------------------------------
    @pytest.mark.parametrize("committed", [False, True])
    def test_the_newest_version_is_found_however_many_there_are(self, opening: Opening, committed: bool) -> None:
        file_map = opening(timed=True)
        count = 3000
        keys = [b"EUR", b"GBP"] * count
        starts = [10 * at for at in range(2 * count)]
        times = [100 * (at // 2) for at in range(2 * count)]
        file_map.add(block(keys, starts, begin=0, end=20 * count, times=times))
        if committed:
            file_map.commit()
            file_map = opening(timed=True)
        assert versions(file_map, (b"EUR", 150_050), (b"GBP", 100), (b"EUR", 10**9), (b"no", 5)) == [
            [("a", 10 * 3000, 0, 150_000)], [("a", 30, 0, 100)], [("a", 10 * 5998, 0, 299_900)], [],
        ]  # fmt: skip
        ((newer,),) = versions(file_map, (b"EUR", -1))
        assert newer[3] > -1, "a record is there, and none as early"

    @pytest.mark.parametrize("committed", [False, True])
    def test_versions_of_one_time_and_of_unknown_time(self, opening: Opening, committed: bool) -> None:
        file_map = opening(timed=True)
        file_map.add(block([b"k"] * 4, [0, 3, 6, 9], begin=0, end=12, times=[5, 7, 7, UNKNOWN_TIME_NS]))
        if committed:
            file_map.commit()
        file_map.add(block([b"k", b"k"], [0, 3], identity="b", path="b.log", begin=0, end=6, times=[7, 6]))
        unknown = ("a", 9, 0, UNKNOWN_TIME_NS)
        assert versions(file_map, (b"k", 7), (b"k", 6), (b"k", 5)) == [
            [("a", 3, 0, 7), ("a", 6, 0, 7), unknown, ("b", 0, 0, 7)],
            [unknown, ("b", 3, 0, 6)],
            [("a", 0, 0, 5), unknown],
        ]
        assert versions(file_map, (b"k", 7), without=[1]) == [[("a", 3, 0, 7), ("a", 6, 0, 7), unknown]]
        assert versions(file_map, (b"k", 7), without=[0]) == [[("b", 0, 0, 7)]]
        assert versions(file_map, (b"k", 9), without=[0, 1]) == [[]]

    def test_versions_of_a_rewritten_log_may_be_stale_so_several_are_given(self, opening: Opening) -> None:
        file_map = opening(timed=True)
        file_map.add(block([b"k"] * 40, [2 * at for at in range(40)], begin=0, end=80, times=list(range(40))))
        file_map.add(block([b"k"], [10], begin=10, end=80, times=[2]))
        ((*found,),) = versions(file_map, (b"k", 30))
        assert sorted(time for *_, time in found) == list(range(31 - PLACES_PER_KEY_MAX, 31))

    # -- sparse ----------------------------------------------------------------------------------------------------
    def test_sparse_entries_each_window_of_time_or_bytes(self, opening: Opening) -> None:
        file_map = opening(MapKind.SPARSE, window_micros=1000, window_bytes=100)
        micros = [10, 500, 1010, 1011, 1012, 1013]
        starts = [0, 20, 40, 60, 80, 170]
        file_map.add(block([event(m) for m in micros], starts, begin=0, end=200))
        # entries: the first; 1011 (more than W after it); 1013 (M bytes after that)
        expected = {10: (0, 10), 500: (0, 10), 1010: (0, 10), 1011: (60, 1011), 1012: (60, 1011), 1013: (170, 1013)}
        for m, (offset, anchor) in expected.items():
            assert places(file_map, event(m)) == [[("a", offset, 100, anchor)]], m
        assert places(file_map, event(9), event(2014), event(11, b"10.0.0.2:7")) == [[], [], []]

    def test_sparse_ids_that_do_not_rise_are_exact(self, opening: Opening) -> None:
        file_map = opening(MapKind.SPARSE)
        keys = [event(100), event(300), event(200), b"no id", event(300), event(301)]
        file_map.add(block(keys, [0, 10, 20, 30, 40, 50], begin=0, end=60))
        span = ("a", 0, 100, 100)
        assert places(file_map, event(200), event(300), event(301), b"no id") == [
            [span, ("a", 20, 0, -1)],
            [span, ("a", 40, 0, -1)],
            [span],
            [("a", 30, 0, -1)],
        ]
        assert file_map.totals().duplicates == 1

    def test_sparse_order_is_known_across_a_restart(self, opening: Opening) -> None:
        file_map = opening(MapKind.SPARSE)
        file_map.add(block([event(100), event(300)], [0, 10], begin=0, end=20))
        file_map.commit()
        file_map = opening(MapKind.SPARSE)
        file_map.add(block([event(200), event(310)], [20, 30], begin=20, end=40))
        assert places(file_map, event(200), event(300), event(310)) == [
            [("a", 0, 100, 100), ("a", 20, 0, -1)],
            [("a", 0, 100, 100)],
            [("a", 0, 100, 100)],
        ]

    def test_sparse_one_process_in_two_logs(self, opening: Opening) -> None:
        file_map = opening(MapKind.SPARSE, window_micros=50)
        file_map.add(block([event(100), event(140)], [0, 9], begin=0, end=20))
        file_map.add(block([event(120), event(130)], [0, 8], identity="b", path="b.log", begin=0, end=20))
        assert places(file_map, event(130), event(119)) == [
            [("a", 0, 100, 100), ("b", 0, 100, 120)],
            [("a", 0, 100, 100)],
        ]

    def test_a_log_that_is_read_again_is_mapped_exactly(self, opening: Opening) -> None:
        file_map = opening(MapKind.SPARSE)
        file_map.add(block([event(100), event(200)], [0, 50], begin=0, end=100))
        file_map.add(block([event(150)], [10], begin=0, end=60))
        assert ("a", 10, 0, -1) in places(file_map, event(150))[0]
        assert file_map.logs()[0].rewritten
        assert [p.offset for p in file_map.positions()] == [60]
        file_map.commit()
        file_map = opening(MapKind.SPARSE)
        assert file_map.logs()[0].rewritten
