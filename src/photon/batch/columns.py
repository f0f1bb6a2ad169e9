"""Column types, and helpers that all batches of columns share."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]
Objects = npt.NDArray[np.object_]
RowIndexes = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]

DIGEST_BYTES = 16


def split_digests(digests: bytes) -> list[bytes]:
    """Splits n x 16 bytes into n digests."""
    return [digests[at : at + DIGEST_BYTES] for at in range(0, len(digests), DIGEST_BYTES)]


def take_digests(digests: bytes, index: RowIndexes) -> bytes:
    """Returns the digests at ``index``. Uses opaque 16-byte items, as dtype 'S' would strip trailing zeros."""
    return np.frombuffer(digests, "V16")[index].tobytes()
