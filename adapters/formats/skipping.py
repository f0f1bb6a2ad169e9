"""Skips the records of a side that are not events, that is, those that meet one of the ``skip`` conditions.

The tested fields are read as columns, like keys. A record is parsed only if its field is not text there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from photon.adapters.conditions import Condition, value_test
from photon.adapters.contract import BadRecord, ForeignHeader, Headers, LogFile, Skipped
from photon.adapters.formats.base import SidePayloads, SideReader, Stop
from photon.adapters.formats.json_values import find

SKIPPED = b""  # the key of a skipped record, in columns
_decode = msgspec.json.Decoder(dict).decode
Column = Sequence[bytes | None]


class SkippingSide(SideReader):
    """Reads one side through ``inner``, and skips the records that meet a condition."""

    def __init__(
        self,
        inner: SideReader,
        conditions: Sequence[Condition],
        readers: Sequence[SideReader | None],
        where: str,
        *,
        typed: bool,
    ) -> None:
        """``readers``: one per condition, which reads the tested field as its key; ``None``: parse each record.

        ``typed``: a field may hold a number with the same text as a string. Raises AdapterError.
        """
        self._inner, self._readers, self._typed = inner, tuple(readers), typed
        self._tests = [(each.field, value_test(each, where)) for each in conditions]

    @property
    def numbers(self) -> dict[str, object]:
        """Returns the fields' numbers and types (protobuf only)."""
        return self._inner.numbers  # type: ignore[attr-defined,no-any-return]

    def key(self, record: bytes, file: LogFile) -> bytes:
        self._check(record, file)
        return self._inner.key(record, file)

    def header(self, record: bytes, file: LogFile) -> ForeignHeader:
        self._check(record, file)
        return self._inner.header(record, file)

    def headers(self, records: Sequence[bytes], file: LogFile) -> Headers:
        skipped = self._skipped(records, file)
        if not skipped:
            return self._inner.headers(records, file)
        kept = [row for row in range(len(records)) if row not in skipped]
        found = self._inner.headers([records[row] for row in kept], file)  # a header costs more than a skip
        rows: list[tuple[bytes, int, bytes | None]] = [(SKIPPED, 0, None)] * len(records)
        for row, header in zip(kept, zip(found.keys, found.times, found.ids, strict=True), strict=True):
            rows[row] = header
        others: dict[int, BadRecord] = {kept[at]: other for at, other in found.others.items()}
        return Headers.columns(rows, others | {row: Skipped("skipped") for row in skipped})

    def times(self, records: Sequence[bytes], file: LogFile) -> Headers:
        return self._inner.times(records, file)

    def payload(self, record: bytes, file: LogFile) -> bytes | None:
        return self._inner.payload(record, file)

    def payloads(self, records: Sequence[bytes], files: Sequence[LogFile]) -> SidePayloads:
        return self._inner.payloads(records, files)

    def stops_at(self, record: bytes) -> Stop | None:
        return self._inner.stops_at(record)

    def keys_of(self, records: Sequence[bytes], file: LogFile) -> list[bytes | None]:
        return _without(self._inner.keys_of(records, file), self._skipped(records, file))

    def keys(self, block: bytes, file: LogFile) -> list[bytes | None]:
        return self._kept(self._inner.keys(block, file), block, file)

    def located_keys(self, block: bytes, file: LogFile) -> tuple[list[bytes | None], npt.NDArray[np.int64]] | None:
        found = self._inner.located_keys(block, file)
        return None if found is None else (self._kept(found[0], block, file), found[1])

    def _kept(self, keys: list[bytes | None], block: bytes, file: LogFile) -> list[bytes | None]:
        def lines() -> list[bytes]:
            return [line.removesuffix(b"\r") for line in block.split(b"\n")[:-1]]

        columns = [None if reader is None else reader.keys(block, file) for reader in self._readers]
        return _without(keys, self._rows(columns, len(keys), lines, file))

    def _check(self, record: bytes, file: LogFile) -> None:
        """Raises Skipped if the record meets a condition."""
        if self._skipped((record,), file):
            raise Skipped("skipped")

    def _skipped(self, records: Sequence[bytes], file: LogFile) -> Collection[int]:
        columns = [None if reader is None else reader.keys_of(records, file) for reader in self._readers]
        return self._rows(columns, len(records), lambda: records, file)

    def _rows(
        self, columns: Sequence[Column | None], count: int, records: Callable[[], Sequence[bytes]], file: LogFile
    ) -> Collection[int]:
        """Returns the rows to skip. Calls ``records`` only if some records must be parsed."""
        rows, unknown = set[int](), set[int]()
        for (_, test), column in zip(self._tests, columns, strict=True):
            if column is None:
                unknown.update(range(count))
                continue
            verdicts = {text: self._of_text(text, test) for text in set(column)}
            rows.update(row for row, text in enumerate(column) if verdicts[text])
            if None in verdicts.values():
                unknown.update(row for row, text in enumerate(column) if verdicts[text] is None)
        if unknown := unknown - rows:
            every = records()
            rows.update(row for row in unknown if self._is_skipped(every[row], file))
        return rows

    def _of_text(self, text: bytes | None, test: Callable[[object], bool]) -> bool | None:
        """True if a record with this text in the field is skipped; ``None`` if the record must be parsed."""
        if text is None or (self._typed and text.lstrip(b"-").isdigit()):
            return None
        try:
            return test(text.decode())
        except UnicodeDecodeError:
            return None

    def _is_skipped(self, record: bytes, file: LogFile) -> bool:
        try:
            payload = self._inner.payload(record, file)
            if payload is None:  # not UTF-8
                return False
            fields = _decode(payload)
        except (BadRecord, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False  # reading its key or header reports the error
        return any(test(find(fields, name)) for name, test in self._tests)


def _without(keys: list[bytes | None], rows: Collection[int]) -> list[bytes | None]:
    for row in rows:
        keys[row] = SKIPPED
    return keys
