"""Creates the table with its regions, which only HBase's Thrift 2 server can do.

Thrift 1, which happybase speaks, creates tables of one region. All rows would go to one server, and HBase would
eventually split the region at a row of its choice; the map would then treat the new region as one that lost
everything. So Thrift 2 creates the table, split by salt, with splitting and merging switched off. If no such server
runs, ``shell_command`` returns the command for HBase's shell.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from photon.config.clock import SystemClock
from photon.config.errors import PhotonError, UsageError
from photon.eventstore.hbase.connection import ThriftHBase
from photon.eventstore.hbase.schema import FAMILY, REGIONS, split_keys
from photon.rows.hbase.servers import Servers
from photon.rows.hbase.thrift2 import connector, types_of

ANSWER_SECONDS_MAX = 60.0
FOREVER_S = 2**31 - 1  # HBase's lifetime of rows that never expire
_ATTRIBUTES = {
    b"SPLIT_POLICY": b"org.apache.hadoop.hbase.regionserver.DisabledRegionSplitPolicy",
    b"SPLIT_ENABLED": b"false",
    b"MERGE_ENABLED": b"false",
}


class CannotMakeTable(PhotonError):
    """The table cannot be created. One line with server, table and the server's message."""


@dataclass(frozen=True, slots=True)
class TableMade:
    """The table's present state. ``notes``: its differences from the configuration."""

    table: str
    made: bool
    regions: int
    ttl_s: int | None
    notes: list[str] = field(default_factory=list)


def shell_command(table: str, ttl_s: int | None, regions: int = REGIONS) -> str:
    splits = ", ".join(f'"\\x{key[0]:02x}"' for key in split_keys(regions))
    ttl = f", TTL => {ttl_s}" if ttl_s is not None else ""
    return (
        f"create '{table}', {{NAME => '{FAMILY.decode()}', VERSIONS => 1, DATA_BLOCK_ENCODING => 'FAST_DIFF'{ttl}}},"
        f" {{SPLITS => [{splits}], SPLIT_ENABLED => false, MERGE_ENABLED => false}}"
    )


def make_table(
    hbase: ThriftHBase, admin: str | None, table: str, ttl_s: int | None, regions: int = REGIONS
) -> TableMade:
    """Creates the table if missing. ``admin``: host:port of a Thrift 2 server.

    Raises HBaseUnavailable, HBaseRefused, CannotMakeTable, RowsFailed, UsageError.
    """
    made = False
    if table.encode() not in hbase.call(lambda c: c.tables(), f"list tables (for {table})"):
        if admin is None:
            raise UsageError(
                "hbase.admin: is not set; name HBase's Thrift 2 server (host:port), or run this in HBase's shell: "
                + shell_command(table, ttl_s, regions)
            )
        made = _create(admin, table, ttl_s, regions)
    return _described(hbase, table, made, ttl_s, regions)


def _described(hbase: ThriftHBase, table: str, made: bool, ttl_s: int | None, regions: int) -> TableMade:
    families = hbase.call(lambda c: c.table(table).families(), f"describe {table}")
    family = families.get(FAMILY) or families.get(FAMILY + b":")
    if family is None:
        raise CannotMakeTable(
            f"table {table} at {hbase.address} has no family {FAMILY.decode()}: it belongs to another program"
        )
    there = int(family["time_to_live"])
    ttl = None if there >= FOREVER_S else there
    count = len(hbase.regions(table.encode()))
    notes = []
    if ttl != ttl_s:
        wanted = FOREVER_S if ttl_s is None else ttl_s
        notes.append(
            f"its rows' TTL in seconds is {ttl or 'FOREVER'}, not {ttl_s or 'FOREVER'}; "
            f"in HBase's shell: alter '{table}', {{NAME => '{FAMILY.decode()}', TTL => {wanted}}}"
        )
    if count != regions:
        notes.append(f"it has {count} regions, not {regions}")
    return TableMade(table, made, count, ttl, notes)


def _create(admin: str, table: str, ttl_s: int | None, regions: int) -> bool:
    """Creates the table; returns False if another process created it first."""
    connect = connector(admin, types_of(), "hbase.admin", ANSWER_SECONDS_MAX)
    servers = Servers([admin], "hbase.admin", SystemClock(), 0.0, [connect])
    ttl_s = FOREVER_S if ttl_s is None else ttl_s
    try:
        return servers.create(
            table.encode(), {FAMILY: 1}, ttl_s=ttl_s, attributes=_ATTRIBUTES, splits=split_keys(regions)
        )
    finally:
        servers.close()
