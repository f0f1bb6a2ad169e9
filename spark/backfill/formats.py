"""How the lines of a part become a file: JSON Lines as the joiner's, or Parquet with the envelope's columns."""

from __future__ import annotations

from collections.abc import Sequence

from photon.outputs.arrow_columns import table_of
from photon.outputs.records import decode
from photon.spark.backfill.parts import Encode, join_lines

JSONL = "jsonl"
PARQUET = "parquet"
FORMATS = (JSONL, PARQUET)
ROW_GROUP_ROWS = 64_000
COMPRESSION = "zstd"


def encoder(name: str) -> Encode:
    """Of one of FORMATS."""
    return {JSONL: join_lines, PARQUET: to_parquet}[name]


def to_parquet(lines: Sequence[bytes]) -> bytes:
    """A Parquet file: a row a line, columns as in ``outputs/arrow_columns.py``. Raises LineUnreadable."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    table = table_of(decode(b"".join(lines)))
    pq.write_table(table, sink, compression=COMPRESSION, row_group_size=ROW_GROUP_ROWS)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
