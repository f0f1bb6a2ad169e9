"""Which backend of the file map an event store uses, and opening it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.eventstore import embedded_file_map
from photon.eventstore.file_map import FileMap, MapSettings


@dataclass(frozen=True, slots=True)
class HBaseTable:
    thrift: str  # host:port of the Thrift server
    table: str


def open_map(
    directory: Path,
    settings: MapSettings,
    log_name: Callable[[str], str],
    disk: Disk,
    clock: Clock,
    table: HBaseTable | None,
) -> tuple[FileMap, str]:
    """The map, and why it had to be rebuilt ("" if it had not). ``table`` None: a map on this machine.

    Raises FileMapBusy, OSError; UsageError when happybase is missing. HBase is not asked yet.
    """
    if table is None:
        return embedded_file_map.open_or_rebuild(directory, settings, log_name, disk)
    from photon.eventstore import hbase_file_map
    from photon.eventstore.hbase.connection import ThriftHBase

    hbase = ThriftHBase(table.thrift, clock)
    try:
        return hbase_file_map.open_or_rebuild(directory, settings, log_name, disk, hbase, table.table, clock=clock)
    except BaseException:
        hbase.close()
        raise
