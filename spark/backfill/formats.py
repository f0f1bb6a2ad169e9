"""How the lines of a part become a file: JSON Lines as the joiner's, or Parquet with the envelope's columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from photon.config.errors import PhotonError
from photon.outputs.records import Records, decode
from photon.spark.backfill.parts import Encode, join_lines

JSONL = "jsonl"
PARQUET = "parquet"
FORMATS = (JSONL, PARQUET)
ROW_GROUP_ROWS = 64_000
COMPRESSION = "zstd"
_NUMBERS = ("event_time_ns", "source_offset", "primary_offset")
_TEXTS = ("reason", "source_file", "primary_file", "written_at", "token")
_LEFT_OUT = ("offset", "line", "torn")


class LineUnreadable(PhotonError):
    """A line of ours is no output record: a defect, and nothing is published."""


def encoder(name: str) -> Encode:
    """Of one of FORMATS."""
    return {JSONL: join_lines, PARQUET: to_parquet}[name]


def to_parquet(lines: Sequence[bytes]) -> bytes:
    """A Parquet file: a row a line, columns named as in ``outputs/records.py``; payloads are their JSON text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    records = decode(b"".join(lines))
    for why in records.torn:
        if why is not None:
            raise LineUnreadable(f"a line cannot be read back ({why}); write it with --format jsonl")
    columns = {
        each.name: pa.array(getattr(records, each.name), _type_of(each.name))
        for each in fields(Records)
        if each.name not in _LEFT_OUT
    }
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, compression=COMPRESSION, row_group_size=ROW_GROUP_ROWS)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _type_of(name: str) -> object:
    import pyarrow as pa

    if name in _NUMBERS:
        return pa.int64()
    return pa.string() if name in _TEXTS else pa.binary()
