"""The map on a real HBase keeps what every backend promises: the same tests as for the embedded one."""

from __future__ import annotations

from pathlib import Path

import pytest

from photon.eventstore.file_map import FileMap, MapKind
from tests.hbase.maps import Maps
from tests.unit.eventstore.file_map_contract import FileMapContract


class TestOnHBase(FileMapContract):
    @pytest.fixture(autouse=True)
    def _maps(self, maps: Maps) -> None:
        self.maps = maps

    def open(
        self,
        directory: Path,
        kind: MapKind,
        window_micros: int = 1000,
        window_bytes: int = 100,
        timed: bool = False,
    ) -> FileMap:
        windows = {"window_micros": window_micros, "window_bytes": window_bytes}
        return self.maps.open(directory / "map", kind, timed=timed, **windows)
