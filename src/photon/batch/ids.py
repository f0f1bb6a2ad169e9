"""A batch's ids and their registration data, in columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from photon.batch.columns import DIGEST_BYTES, I64, U8, U32, U64, RowIndexes, take_digests

_I64, _U64, _U32, _U8 = (np.dtype(each) for each in ("<i8", "<u8", "<u4", "u1"))


class IdsError(ValueError):
    """The columns do not match each other."""


@dataclass(frozen=True, slots=True, eq=False)
class Ids:
    """n ids, one row per id. Columns never change. Look-ups use only digests and times; clears also use tokens."""

    digests: bytes  # n x 16
    times: I64  # event times, ns UTC
    tokens: U64
    kinds: U8  # ``idregistry.api.Kind``
    tags: U32
    generations: U32 | None = None  # None means all 0

    def __len__(self) -> int:
        return len(self.digests) // DIGEST_BYTES

    @staticmethod
    def of(digests: bytes, times: I64, tokens: U64 | None = None) -> Ids:
        """Makes ids for a look-up or, with tokens, for a clear."""
        n = len(digests) // DIGEST_BYTES
        tokens = np.zeros(n, np.uint64) if tokens is None else tokens
        return Ids(bytes(digests), times, tokens, np.zeros(n, np.uint8), np.zeros(n, np.uint32))

    def take(self, index: RowIndexes) -> Ids:
        """Returns the rows at ``index``, which must be ascending."""
        if len(index) == len(self):
            return self
        generations = self.generations
        return Ids(
            take_digests(self.digests, index),
            self.times[index],
            self.tokens[index],
            self.kinds[index],
            self.tags[index],
            None if generations is None else generations[index],
        )

    @staticmethod
    def encode(parts: Sequence[Ids]) -> dict[str, bytes]:
        """Concatenates and encodes ids in their wire format: column name -> little-endian bytes. Copies each column
        once.

        ``generations`` is empty if all are 0. Without parts, returns no columns.
        """
        if not parts:
            return {}
        generations = b""
        if any(each.generations is not None and np.count_nonzero(each.generations) for each in parts):
            columns = [np.zeros(len(each), _U32) if each.generations is None else each.generations for each in parts]
            generations = _joined(columns, _U32)
        return {
            **Ids.encode_cleared(parts),
            "kinds": _joined([each.kinds for each in parts], _U8),
            "tags": _joined([each.tags for each in parts], _U32),
            "generations": generations,
        }

    @staticmethod
    def encode_cleared(parts: Sequence[Ids]) -> dict[str, bytes]:
        """Like ``encode``, but only the columns of a clear."""
        if not parts:
            return {}
        return {
            "digests": b"".join([each.digests for each in parts]),
            "times": _joined([each.times for each in parts], _I64),
            "tokens": _joined([each.tokens for each in parts], _U64),
        }

    @staticmethod
    def decode(
        digests: bytes,
        times: bytes,
        tokens: bytes | None = None,
        kinds: bytes | None = None,
        tags: bytes | None = None,
        generations: bytes = b"",
    ) -> Ids:
        """Decodes what ``encode`` returned, without copying. A column of ``None`` is all 0. Raises IdsError if sizes
        do not match."""
        if not (digests or times or tokens or kinds or tags or generations):
            return NO_IDS
        n, rest = divmod(len(digests), DIGEST_BYTES)
        if rest:
            raise IdsError(f"digests: {len(digests)} bytes is not a multiple of {DIGEST_BYTES}")
        return Ids(
            digests,
            _column("times", times, _I64, n),
            _column("tokens", tokens, _U64, n),
            _column("kinds", kinds, _U8, n),
            _column("tags", tags, _U32, n),
            _column("generations", generations, _U32, n) if generations else None,
        )


NO_IDS = Ids.of(b"", np.empty(0, np.int64))


def _joined(columns: Sequence[Any], kind: np.dtype[Any]) -> bytes:
    return b"".join([np.ascontiguousarray(each, kind) for each in columns])  # type: ignore[misc]  # buffers


def _column(name: str, column: bytes | None, kind: np.dtype[Any], n: int) -> Any:
    if column is None:
        return np.zeros(n, kind)
    if len(column) != n * kind.itemsize:
        raise IdsError(f"{name}: {len(column)} bytes for {n} ids of {kind.itemsize} bytes each")
    return np.frombuffer(column, kind)
