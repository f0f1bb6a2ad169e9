"""The HBase table of a file map, as configured in the deployment file: its place, its rows' lifetime, and its
creation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from photon.config.clock import SystemClock
from photon.config.errors import UsageError
from photon.config.settings import Settings
from photon.eventstore.file_map import HBaseTable
from photon.fleet.access import pipeline_named

if TYPE_CHECKING:
    from photon.eventstore.hbase.admin import TableMade

# Rows live a quarter longer than the registry's ids, so that any event that can be registered can be looked up.
LONGER = 1.25
INIT_SECONDS = 5.0  # seconds to wait for a server's answer


def table_of(settings: Settings, datacentre: str | None) -> HBaseTable | None:
    """Returns a datacentre's table; `None` if its file map is in its state directory. Raises UsageError."""
    hbase = None if datacentre is None else settings.datacentre[datacentre].hbase
    if hbase is None:
        return None
    ttl_s(settings, str(datacentre))
    return HBaseTable(hbase.thrift, hbase.table or f"photon_{datacentre}")


def ttl_s(settings: Settings, datacentre: str) -> int | None:
    """Returns the lifetime of rows in seconds; `None` means unlimited. Raises UsageError if ids live longer than
    rows."""
    hbase, retention = settings.datacentre[datacentre].hbase, settings.registry.retention
    if hbase is None or hbase.ttl is None:
        return None if retention is None else int(retention * LONGER)
    if retention is None or hbase.ttl < retention:
        ids = "permanently" if retention is None else f"for {retention:.0f} s (registry.retention)"
        raise UsageError(
            f"datacentre.{datacentre}.hbase.ttl: rows would live for {hbase.ttl:.0f} s, ids {ids}; rows must live "
            "as long, so that any event that may still be registered finds its primary event; raise ttl, or remove it"
        )
    return int(hbase.ttl)


def check(settings: Settings) -> list[str]:
    """Lists the tables to create in HBase, for ``photon doctor config``. Does not check whether they exist.

    Raises UsageError for settings that cannot work.
    """
    notes = _check_tables(settings)
    tables: dict[tuple[str, str], str] = {}
    for name, pipeline in settings.datacentre.items():
        table = table_of(settings, name)
        if table is None or pipeline.hbase is None:
            continue
        other = tables.setdefault((table.thrift, table.table), name)
        if other != name:
            raise UsageError(
                f"datacentre.{name}.hbase.table: {table.table} belongs to datacentre {other}; use another table"
            )
        notes.append(
            f"to be created once, if missing: table {table.table} in HBase at {table.thrift} "
            f"(photon eventstore init --config FILE --datacentre {name})"
        )
        if pipeline.hbase.admin is None:
            notes.append(f"datacentre.{name}.hbase.admin is not set: create the table in HBase's own shell")
    return notes


def _check_tables(settings: Settings) -> list[str]:
    """Lists notes about ``[tables]``. Raises UsageError if it cannot work."""
    tables = settings.tables
    if tables is None or not tables.thrift:
        return []
    if not settings.registry.replicas:
        raise UsageError("tables.thrift: needs [registry.replicas.NAME]; the replicas hand out the timestamps")
    notes = [
        f"to be created once, if missing: table {tables.table} in HBase at {', '.join(tables.thrift)} "
        "(photon table init --config FILE)"
    ]
    if not tables.durable:
        notes.append("tables.durable is not set: a crash of HBase may lose transactions, or parts of them")
    return notes


def init(settings: Settings, datacentre: str | None) -> TableMade:
    """Creates a pipeline's table unless it exists. Raises PhotonError."""
    from photon.eventstore.hbase.admin import make_table
    from photon.eventstore.hbase.connection import ThriftHBase

    name, pipeline = pipeline_named(settings, datacentre)
    table = table_of(settings, name)
    if table is None or pipeline.hbase is None:
        raise UsageError(
            f"datacentre.{name}.hbase: is not in the configuration; the file map is in the state directory, so "
            "no table is needed"
        )
    hbase = ThriftHBase(table.thrift, SystemClock(), call_seconds=INIT_SECONDS)
    try:
        return make_table(hbase, pipeline.hbase.admin, table.table, ttl_s(settings, name))
    finally:
        hbase.close()
