"""Maps on the run's HBase, and small tools around it."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from photon.adapters.logs.identity import log_name
from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.eventstore.file_map import FileMapUnavailable, MapKind, MapSettings
from photon.eventstore.hbase.connection import ThriftHBase
from photon.eventstore.hbase_file_map import HBaseFileMap
from photon.rows.hbase.connection import ANSWER_SECONDS_MAX

TABLE = "photon_test"
DEADLINE_S = 300.0

T = TypeVar("T")


def lossy_connector(address: str, answer_seconds: float = ANSWER_SECONDS_MAX) -> Callable[[], Any]:
    """Connections that write past HBase's write-ahead log: what was not flushed is lost with the JVM, as it is where
    the log is not durable."""
    import happybase

    class Connection(happybase.Connection):  # type: ignore[misc]
        def table(self, name: bytes, use_prefix: bool = True) -> Any:
            table = super().table(name, use_prefix)
            table.batch = functools.partial(table.batch, wal=False)
            return table

    def connect() -> Any:
        host, _, port = address.rpartition(":")
        connection = Connection(host, int(port), timeout=int(answer_seconds * 1000), autoconnect=False)
        connection.open()
        return connection

    return connect


class Maps:
    """Opens maps whose connections go to ``port``; what is still open is closed at the test's end."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._open: list[HBaseFileMap] = []

    def hbase(self, *, lossy: bool = False) -> ThriftHBase:
        address = f"127.0.0.1:{self.port}"
        return ThriftHBase(address, SystemClock(), connect=lossy_connector(address) if lossy else None)

    def open(
        self,
        directory: Path,
        kind: MapKind = MapKind.DENSE,
        *,
        window_micros: int = 1000,
        window_bytes: int = 100,
        checkpoint_seconds: float = 300.0,
        lossy: bool = False,
        timed: bool = False,
    ) -> HBaseFileMap:
        """As the engine's reader has it after its first ``tend``."""
        settings = MapSettings(b"rule", kind, window_micros, window_bytes, timed=timed)
        file_map = HBaseFileMap(
            directory,
            settings,
            log_name,
            RealDisk(),
            self.hbase(lossy=lossy),
            TABLE,
            clock=SystemClock(),
            checkpoint_seconds=checkpoint_seconds,
        )
        self._open.append(file_map)
        until(file_map.tend, "open")
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
