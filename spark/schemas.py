"""The columns of the data passed between steps of a Spark job. A column name has the same meaning everywhere.

They are written as Spark's DDL, so that this module needs no pyspark. Times are int64 nanoseconds UTC, ``hour`` is
the event time in whole hours since 1970, digests have 16 bytes, tokens are 16 hex digits as in the output, offsets
are uncompressed bytes. ``log`` is a file's name relative to its log directory without a compression suffix.
"""

from __future__ import annotations

# A record of a raw foreign log. ``name``: the log's without rotation suffix; ``identity``: the log's, 32 hex digits,
# by which dispatchers and event stores know it; ``header``: in force at the record (``LogFile.header``), null if the
# format has none; ``unreadable``: why the adapter cannot read it; then its contents are null.
FOREIGN = (
    "datacentre string, log string, name string, identity string, offset bigint, header binary, event_id binary, "
    "digest binary, key binary, event_time_ns bigint, hour bigint, record binary, unreadable string"
)

# A record of a raw primary log that has a key. If several share one, the first in (name, identity, offset) wins.
PRIMARY = (
    "datacentre string, log string, name string, identity string, offset bigint, header binary, key binary, "
    "record binary"
)

# A line of an output log. ``kind``: joined, filtered, unmatched, rejected or late; ``file``, ``offset``: the line's
# place; ``foreign`` and ``primary``: the payloads' JSON text as in the line, null if it has none; ``record``: the
# original record, of unjoined lines; ``log``, ``primary_log``: ``source_file`` and ``primary_file`` without
# rotation suffix; ``pair``, ``pairs``: the record's number and the number of records of its event, if that is joined
# with all primary events of its key; ``written_at``: joined_at or decided_at; ``token`` null: written by a
# dispatcher; ``added``: it has unexpected members; ``torn``: why the line is not an output record, then
# ``line`` has its bytes and its contents are null; without ``line`` why the file is not whole (``line`` is null
# otherwise).
OUTPUT = (
    "datacentre string, slot string, kind string, file string, offset bigint, event_id binary, digest binary, "
    "key binary, event_time_ns bigint, hour bigint, token string, foreign binary, primary binary, record binary, "
    "reason string, source_file string, source_offset bigint, primary_file string, primary_offset bigint, "
    "log string, primary_log string, "
    "pair bigint, pairs bigint, written_at string, added boolean, line binary, torn string"
)

# An entry of a registry export. ``state``: owned, cleared or reopened.
REGISTRY = (
    "shard int, digest binary, event_time_ns bigint, hour bigint, token string, state string, kind string, "
    "tag bigint, generation bigint, incarnation bigint, datacentre string, slot string, slot_retired boolean"
)

# A finding of the verification. ``class``: see ``classes.py``; ``datacentre``: the owner of the wrong output, or the
# registered owner of a lost record; ``log`` and ``offset``: the raw foreign record, in that datacentre's logs if they
# have it; ``token``, ``state``, ``generation``: the registry's entry as exported, to repair by compare; ``evidence``:
# JSON; ``acknowledged``: it has been accepted.
PROBLEM = (
    "event_id binary, digest binary, event_time_ns bigint, hour bigint, datacentre string, class string, key binary, "
    "log string, offset bigint, output_file string, output_offset bigint, token string, state string, "
    "generation bigint, evidence string, acknowledged boolean"
)
