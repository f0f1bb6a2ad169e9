"""Output records as Arrow columns, named as in ``records.py``. Our Parquet files contain these."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from photon.config.errors import PhotonError
from photon.outputs.records import OutputRecords

NUMBERS = ("event_time_ns", "source_offset", "primary_offset", "pair", "pairs")
TEXTS = ("reason", "source_file", "primary_file", "written_at", "token")
LEFT_OUT = ("offset", "line", "torn")


class LineUnreadable(PhotonError):
    """A line that is not an output record."""


def table_of(records: OutputRecords) -> Any:
    """Makes a ``pyarrow.Table``. Ids, keys and payloads (JSON text) are binary. Raises LineUnreadable."""
    import pyarrow as pa

    for why, offset in zip(records.torn, records.offset, strict=True):
        if why is not None:
            raise LineUnreadable(f"the line at {offset} is not an output record ({why}); see photon status verifier")
    names = [each.name for each in fields(OutputRecords) if each.name not in LEFT_OUT]
    return pa.table({name: pa.array(getattr(records, name), _type_of(name)) for name in names})


def schema() -> Any:
    """Returns the ``pyarrow.Schema`` of these tables."""
    return table_of(OutputRecords()).schema


def _type_of(name: str) -> Any:
    import pyarrow as pa

    if name in NUMBERS:
        return pa.int64()
    return pa.string() if name in TEXTS else pa.binary()
