"""Would-be records as columns, in which a batch is logged, registered and written."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from photon.adapters.envelope import is_inline
from photon.batch.columns import DIGEST_BYTES, I64, U8, U32, U64, RowIndexes, split_digests, take_digests
from photon.batch.ids import Ids
from photon.idregistry.api import Kind

_COUNT = struct.Struct("<I")
_BYTES_PER_ROW = DIGEST_BYTES + 8 + 1 + 4 + 4 + 4


@dataclass(frozen=True, slots=True)
class Rows:
    """n would-be verdicts. Each line is one whole record of an output log, its ``\\n`` included; or the records of
    all pairs of one event, one after another."""

    digests: bytes  # n x 16
    times: I64  # event times, ns UTC
    tokens: U64
    kinds: U8
    tags: U32
    generations: U32
    lines: list[bytes]

    def __len__(self) -> int:
        return len(self.lines)

    def take(self, index: RowIndexes) -> Rows:
        lines = self.lines
        return Rows(
            digests=take_digests(self.digests, index),
            times=self.times[index],
            tokens=self.tokens[index],
            kinds=self.kinds[index],
            tags=self.tags[index],
            generations=self.generations[index],
            lines=[lines[i] for i in index.tolist()],
        )

    def logs(self, index: RowIndexes) -> U8:
        """Returns the output log of each line at ``index``: an unmatched line may go to ``joined``.

        The line itself decides, as the settings may have changed since it was made.
        """
        logs = self.kinds[index]
        if Kind.UNMATCHED in logs.tobytes():
            unmatched = np.flatnonzero(logs == Kind.UNMATCHED).tolist()
            logs[[at for at in unmatched if is_inline(self.lines[index[at]])]] = Kind.JOINED
        return logs

    def inserts(self, index: RowIndexes) -> Ids:
        """Returns the registry request for the rows at ``index``, which must ascend."""
        return Ids(self.digests, self.times, self.tokens, self.kinds, self.tags, self.generations).take(index)

    def digest_list(self) -> list[bytes]:
        return split_digests(self.digests)

    def encode(self) -> list[bytes]:
        """Returns the chunks of a redo frame's body, without the tokens: the log has a separate column for those."""
        lengths = np.fromiter(map(len, self.lines), dtype="<u4", count=len(self.lines))
        return [
            _COUNT.pack(len(self.lines)),
            self.digests,
            self.times.astype("<i8", copy=False).tobytes(),
            self.kinds.tobytes(),
            self.tags.astype("<u4", copy=False).tobytes(),
            self.generations.astype("<u4", copy=False).tobytes(),
            lengths.tobytes(),
            b"".join(self.lines),
        ]

    @staticmethod
    def decode(tokens: U64, body: bytes) -> Rows:
        """Decodes the result of ``encode``. Raises ValueError for inconsistent columns."""
        (n,) = _COUNT.unpack_from(body)
        if len(tokens) != n or len(body) < _COUNT.size + n * _BYTES_PER_ROW:
            raise ValueError(f"redo frame of {len(body)} bytes with {len(tokens)} tokens cannot hold {n} rows")
        at = _COUNT.size
        columns = []
        for dtype, width in (("V16", 16), ("<i8", 8), ("u1", 1), ("<u4", 4), ("<u4", 4), ("<u4", 4)):
            columns.append(np.frombuffer(body, dtype, n, at))
            at += n * width
        digests, times, kinds, tags, generations, lengths = columns
        ends = (at + np.cumsum(lengths, dtype=np.int64)).tolist()
        if (ends[-1] if ends else at) != len(body):
            raise ValueError(f"redo frame of {len(body)} bytes: its line lengths do not add up")
        starts = [at, *ends[:-1]]
        lines = [body[a:b] for a, b in zip(starts, ends, strict=True)] if n else []
        return Rows(digests.tobytes(), times, tokens, kinds, tags, generations, lines)


def concat(parts: Sequence[Rows]) -> Rows:
    return Rows(
        digests=b"".join(part.digests for part in parts),
        times=np.concatenate([part.times for part in parts]),
        tokens=np.concatenate([part.tokens for part in parts]),
        kinds=np.concatenate([part.kinds for part in parts]),
        tags=np.concatenate([part.tags for part in parts]),
        generations=np.concatenate([part.generations for part in parts]),
        lines=[line for part in parts for line in part.lines],
    )
