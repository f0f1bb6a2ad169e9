"""Maps on the run's HBase, and small tools around it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from photon.adapters.logs.identity import log_name
from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.eventstore.file_map import FileMapUnavailable, MapKind, MapSettings
from photon.eventstore.hbase.connection import ThriftHBase
from photon.eventstore.hbase_file_map import HBaseFileMap

TABLE = "photon_test"
DEADLINE_S = 60.0

T = TypeVar("T")


class Maps:
    """Opens maps whose connections go to ``port``; what is still open is closed at the test's end."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._open: list[HBaseFileMap] = []

    def hbase(self, port: int | None = None, **seconds: float) -> ThriftHBase:
        return ThriftHBase(f"127.0.0.1:{port or self.port}", SystemClock(), **seconds)

    def open(
        self,
        directory: Path,
        kind: MapKind = MapKind.DENSE,
        *,
        window_micros: int = 1000,
        window_bytes: int = 100,
        port: int | None = None,
        checkpoint_seconds: float = 300.0,
        answer_seconds: float = 10.0,
        call_seconds: float = 20.0,
    ) -> HBaseFileMap:
        """As the engine's reader has it after its first ``tend``."""
        settings = MapSettings(b"rule", kind, window_micros, window_bytes)
        hbase = self.hbase(port, answer_seconds=answer_seconds, call_seconds=call_seconds)
        file_map = HBaseFileMap(
            directory,
            settings,
            log_name,
            RealDisk(),
            hbase,
            TABLE,
            clock=SystemClock(),
            checkpoint_seconds=checkpoint_seconds,
        )
        self._open.append(file_map)
        file_map.tend()
        return file_map

    def close(self) -> None:
        for each in self._open:
            with contextlib.suppress(Exception):
                each.close()


def until(ask: Callable[[], T], what: str) -> T:
    """What ``ask`` gives as soon as HBase can be asked."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            return ask()
        except FileMapUnavailable as error:
            if time.monotonic() > deadline:
                raise AssertionError(f"{what}: {error}") from error
            time.sleep(0.05)
