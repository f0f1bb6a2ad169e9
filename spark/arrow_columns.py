"""Converts the results of Photon's readers to Arrow columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from photon.idregistry.api import DIGEST_BYTES

HOUR_NS = 3_600_000_000_000


def digests_column(digests: bytes) -> pa.Array:
    count = len(digests) // DIGEST_BYTES
    offsets = np.arange(0, (count + 1) * DIGEST_BYTES, DIGEST_BYTES, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(digests)])


def hours(times_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Converts times to whole hours since 1970."""
    return times_ns // HOUR_NS


def binary(values: Sequence[bytes | None]) -> pa.Array:
    return pa.array(values, pa.binary())


def strings(values: Sequence[str | None]) -> pa.Array:
    return pa.array(values, pa.string())


def bigints(values: Any) -> pa.Array:
    return pa.array(values, pa.int64())


def same(value: str | None, count: int) -> pa.Array:
    """Repeats ``value`` in ``count`` rows."""
    return pa.nulls(count, pa.string()) if value is None else pa.repeat(pa.scalar(value, pa.string()), count)


def mapped(values: pa.Array, make: Callable[[str], str]) -> pa.Array:
    """Applies ``make`` to each string, once per distinct string; null stays null."""
    encoded = values.dictionary_encode()
    return strings([make(each) for each in encoded.dictionary.to_pylist()]).take(encoded.indices)


def batch(columns: dict[str, pa.Array], names: Sequence[str] | None = None) -> pa.RecordBatch:
    """Returns a batch of the columns ``names`` (default: all)."""
    kept = list(columns) if names is None else list(names)
    return pa.RecordBatch.from_arrays([columns[name] for name in kept], names=kept)
