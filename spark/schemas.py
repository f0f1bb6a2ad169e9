"""Columns of what goes between the steps of a Spark job. One name means one thing everywhere.

Written as Spark's DDL, so that this module needs no pyspark. Times are int64 nanoseconds UTC, ``hour`` is whole hours
since 1970 of the event time, digests have 16 bytes, tokens are 16 hex digits as in the output, offsets are
uncompressed bytes. ``log`` is a file's name relative to its log directory without a compression suffix.
"""

from __future__ import annotations

FOREIGN = (
    "datacentre string, log string, name string, identity string, offset bigint, header binary, event_id binary, "
    "digest binary, key binary, event_time_ns bigint, hour bigint, record binary, unreadable string"
)
"""A record of a raw foreign log. ``name``: the log's without rotation suffix; ``identity``: the log's, 32 hex digits,
by which dispatchers and event stores know it; ``header``: in force at the record (``LogFile.header``), null where the
format has none; ``unreadable``: why the adapter cannot read it; then what it says is null."""

PRIMARY = (
    "datacentre string, log string, name string, identity string, offset bigint, header binary, key binary, "
    "record binary"
)
"""A record of a raw primary log that has a key. Of several with one key the first in (name, identity, offset)
wins."""

OUTPUT = (
    "datacentre string, slot string, kind string, file string, offset bigint, event_id binary, digest binary, "
    "key binary, event_time_ns bigint, hour bigint, token string, foreign binary, primary binary, record binary, "
    "reason string, source_file string, source_offset bigint, primary_file string, primary_offset bigint, "
    "log string, primary_log string, "
    "pair bigint, pairs bigint, written_at string, added boolean, line binary, torn string"
)
"""A line of an output log. ``kind``: joined, filtered, unmatched, rejected or late; ``file``, ``offset``: where the
line stands; ``foreign`` and ``primary``: the payloads' JSON text as it stands in the line, null where it has none;
``record``: the original record, of lines that are no join; ``log``, ``primary_log``: ``source_file`` and
``primary_file`` without rotation suffix; ``pair``, ``pairs``: which of how many records of its event it is, where
that is joined with all primary events of its key; ``written_at``: joined_at or decided_at; ``token`` null: of a
dispatcher's line; ``added``: it has members that no line of its kind has; ``torn``: why the line is
no output record, then ``line`` has its bytes and all that it says is null; without ``line`` why the file is not
whole (``line`` is null otherwise)."""

REGISTRY = (
    "shard int, digest binary, event_time_ns bigint, hour bigint, token string, state string, kind string, "
    "tag bigint, generation bigint, incarnation bigint, datacentre string, slot string, slot_retired boolean"
)
"""An entry of a registry export. ``state``: owned, cleared or reopened."""

PROBLEM = (
    "event_id binary, digest binary, event_time_ns bigint, hour bigint, datacentre string, class string, key binary, "
    "log string, offset bigint, output_file string, output_offset bigint, token string, state string, "
    "generation bigint, evidence string, acknowledged boolean"
)
"""A finding of the verification. ``class``: see ``classes.py``; ``datacentre``: whose output is wrong, the registered
owner's of what is lost; ``log`` and ``offset``: the raw foreign record, in that datacentre's logs if they have it;
``token``, ``state``, ``generation``: the registry's entry as exported, to repair by compare; ``evidence``: JSON;
``acknowledged``: somebody has accepted it as it is."""
