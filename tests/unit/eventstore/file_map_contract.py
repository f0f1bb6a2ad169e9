"""The contract of every FileMap backend; a backend's tests subclass this and say how it is opened."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from photon.eventstore.file_map import PLACES_PER_KEY_MAX, FileMap, MapKind
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


def event(micros: int, process: bytes = b"10.0.0.1:7") -> bytes:
    return b"%s:%d" % (process, micros)


class FileMapContract(ABC):
    """``self.open`` opens the same map again after ``close``, which does not commit."""

    @abstractmethod
    def open(self, directory: Path, kind: MapKind, window_micros: int = 1000, window_bytes: int = 100) -> FileMap: ...

    @pytest.fixture
    def opening(self, tmp_path: Path) -> Iterator[Opening]:
        """Opens the map; the one before is closed, and the last one at the end."""
        maps: list[FileMap] = []

        def opened(kind: MapKind, **windows: int) -> FileMap:
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
