"""Records of a backfill's Parquet file as the lines they would be; its columns are those of ``outputs/records``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from photon.config.errors import PhotonError
from photon.spark.output_lines import OutputColumns, OutputLine

SUFFIX = ".parquet"
ROWS_A_BATCH = 8192


class ParquetDamaged(PhotonError):
    """A file that a backfill shows is not as it was written."""


def read_parquet_lines(path: Path, size: int) -> Iterator[OutputColumns]:
    """All records; the number of a row is its offset. ``size``: bytes that were published. Raises ParquetDamaged,
    OSError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if (found := path.stat().st_size) != size:
        raise ParquetDamaged(f"{path}: has {found} bytes, {size} were published; restore it from a backup")
    at = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(ROWS_A_BATCH):
                lines: list[OutputLine | None] = [_line(row) for row in batch.to_pylist()]
                count = len(lines)
                yield OutputColumns(list(range(at, at + count)), lines, [None] * count, [b""] * count)
                at += count
    except (pa.ArrowException, KeyError) as error:
        raise ParquetDamaged(f"{path}: cannot be read after row {at} ({error}); restore it from a backup") from None


def _line(row: dict[str, Any]) -> OutputLine:
    primary = None if row["primary_file"] is None else (row["primary_file"], row["primary_offset"])
    return OutputLine(
        event_id=row["event_id"],
        key=row["key"],
        event_time_ns=row["event_time_ns"],
        foreign=row["foreign"],
        primary=row["primary"],
        record=row["record"],
        reason=row["reason"],
        source=(row["source_file"], row["source_offset"]),
        primary_source=primary,
        written_at=row["written_at"],
        token=row["token"],
    )
