"""Narrow rows: all data about an id as rows with the same columns, so that they can be grouped. Needs no pyspark."""

from __future__ import annotations

import xxhash

from photon.spark.key_filter import HASH_SEED

# ``role``: a raw foreign line, an output record, an entry of the registry, a row of a retry store, a line of the
# output that is no record (``name``: why, ``event_id``: its bytes).
LINE, RECORD, ENTRY, WAITING, TORN = 0, 1, 2, 3, 4
GIVEN_UP = "given-up"  # ``state`` of a record that an operator gave up
UNNAMED = "unnamed"  # ``state`` of a record in a file that no manifest names
# ``judged``: its event time is in the verified range; ``log``, ``primary_log``: without rotation suffix, ``name``:
# the file's name; ``file``, ``file_offset``: of the output line; ``foreign``, ``record``, ``primary``: hashes of the
# payload (of an output line without one: of the original record), of the record, and of the primary payload;
# ``reason``: hash of why it is unmatched or filtered; ``added``: an output line has unexpected members. If an event
# is joined with all primary events of its key, ``members`` of a line are the pairs of its set in order (then members
# about one primary event are null), ``pair`` and ``pairs`` of a record are those in the record itself, and
# ``pairs_hash`` is ``hash_of_pair``: of a record, and of all in a line's set by exclusive or.
NARROW = (
    "digest binary, role tinyint, judged boolean, datacentre string, kind string, log string, offset bigint, "
    "file string, file_offset bigint, token string, event_time_ns bigint, hour bigint, key binary, foreign bigint, "
    "record bigint, primary bigint, primary_log string, primary_offset bigint, event_id binary, name string, "
    "state string, slot string, retired boolean, generation bigint, unread boolean, fresh boolean, "
    "pair bigint, pairs bigint, pairs_hash bigint, reason bigint, added boolean, "
    "members array<struct<foreign:bigint,primary:bigint,primary_log:string,primary_offset:bigint>>"
)


def hash64(data: bytes) -> int:
    """Returns Spark's signed ``xxhash64`` of a binary."""
    value = xxhash.xxh64_intdigest(data, HASH_SEED)
    return value - (1 << 64) if value >> 63 else value


def hash_of_pair(pair: int, pairs: int, *said: int | str | None) -> int:
    """Returns the hash of one of an event's pairs. ``said``: the hashes of the payloads, and the primary record's
    place. ``verify.job`` computes the same hash from a record."""
    return hash64("\0".join(map(str, (pair, pairs, *said))).encode())
