"""Look-ups as the columns of eventstore.proto, and back: pure. Integers are little endian."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from photon.adapters.contract import LogFile
from photon.eventstore import eventstore_pb2 as pb
from photon.eventstore.api import Came, EventLookUps, Found, PrimaryPlace, PrimaryRecord, Progress

MESSAGE_BYTES_MAX = 64 << 20
"""gRPC's limit, set on both ends."""
REPLY_BYTES_MAX = 32 << 20
"""Records in one reply. A reply that would hold more answers a prefix of the keys; the client asks for the rest."""
KEYS_MAX = 4096
"""Keys in one request."""
FIELDS_MAX = KEYS_MAX + 16
"""Of a request: its keys, and what else it has."""
KEYS_BYTES_MAX = 16 << 20


class WireError(ValueError):
    """A message whose columns do not fit together."""


def request_slices(keys: Sequence[bytes]) -> list[slice]:
    """The keys of each request: KEYS_MAX, or KEYS_BYTES_MAX of them."""
    slices = []
    begin = size = 0
    for at, key in enumerate(keys):
        if at > begin and (at - begin >= KEYS_MAX or size + len(key) > KEYS_BYTES_MAX):
            slices.append(slice(begin, at))
            begin, size = at, 0
        size += len(key)
    if len(keys) > begin:
        slices.append(slice(begin, len(keys)))
    return slices


def request(join: str, keys: Sequence[bytes], as_of: Sequence[int]) -> pb.EventLookUpRequest:
    """The message that asks."""
    return pb.EventLookUpRequest(join=join, keys=keys, as_of=np.asarray(as_of, dtype="<i8").tobytes())


def asked(message: pb.EventLookUpRequest) -> tuple[list[bytes], list[int]]:
    """(keys, as_of). Raises WireError."""
    keys = list(message.keys)
    if len(message.as_of) != 8 * len(keys):
        raise WireError(f"as_of has {len(message.as_of)} bytes for {len(keys)} keys")
    if len(keys) > KEYS_MAX:
        raise WireError(f"{len(keys)} keys, at most {KEYS_MAX} can be asked at once")
    return keys, np.frombuffer(message.as_of, dtype="<i8").tolist()


_FOUND = tuple(sorted(Found))
"""By number: many times as fast as the enum's constructor."""


def reply(found: EventLookUps, bytes_max: int = REPLY_BYTES_MAX) -> pb.EventLookUpReply:
    """The answers, or those of a prefix of the keys (one at least) when records exceed ``bytes_max``."""
    present = [record for record in found.records if record is not None]
    records = [record.record for record in present]
    count = len(found.answers)
    if sum(map(len, records)) > bytes_max:
        sizes = np.cumsum(list(map(len, records)))
        fit = max(int(np.searchsorted(sizes, bytes_max, side="right")), 1)
        if fit < len(records):
            count = [row for row, record in enumerate(found.records) if record is not None][fit]
            present, records = present[:fit], records[:fit]
    files: dict[LogFile, int] = {}
    by_id = {id(record.file): record.file for record in present}  # few, and a file's own hash is slow
    numbers = {each: files.setdefault(file, len(files)) for each, file in by_id.items()}
    indexes = [numbers[id(record.file)] for record in present]
    offsets = [record.offset for record in present]
    return pb.EventLookUpReply(
        answers=bytes(found.answers[:count]),
        records=records,
        files=[_name(file) for file in files],
        file_indexes=np.asarray(indexes, dtype="<u4").tobytes(),
        offsets=np.asarray(offsets, dtype="<u8").tobytes(),
        ambiguous_rows=(shared := [row for row in sorted(found.ambiguous) if row < count]),
        ambiguous_files=[_name(found.ambiguous[row].file) for row in shared],
        ambiguous_offsets=[found.ambiguous[row].offset for row in shared],
    )


def _name(file: LogFile) -> pb.LogFileName:
    return pb.LogFileName(path=file.path, header=file.header)


def answered(message: pb.EventLookUpReply, keys: int) -> EventLookUps:
    """The answers of a prefix of ``keys`` keys. Raises WireError."""
    count = len(message.answers)
    n = len(message.records)
    try:
        answers = [_FOUND[answer] for answer in message.answers]
    except IndexError:
        raise WireError(f"an answer is none of {[each.value for each in Found]}") from None
    fits = len(message.file_indexes) == 4 * n and len(message.offsets) == 8 * n and answers.count(Found.FOUND) == n
    if not fits or count > keys or (keys and not count):
        raise WireError(f"{count} answers with {n} records for {keys} keys: the columns do not fit together")
    files = [LogFile(file.path, file.header) for file in message.files]
    indexes = np.frombuffer(message.file_indexes, dtype="<u4").tolist()
    if indexes and max(indexes) >= len(files):
        raise WireError("a file index is out of range")
    offsets = np.frombuffer(message.offsets, dtype="<u8").tolist()
    found = iter(zip(message.records, indexes, offsets, strict=True))
    records: list[PrimaryRecord | None] = []
    for answer in answers:
        if answer is Found.FOUND:
            record, index, offset = next(found)
            records.append(PrimaryRecord(record, files[index], offset))
        else:
            records.append(None)
    places = zip(message.ambiguous_files, message.ambiguous_offsets, strict=False)
    others = [PrimaryPlace(LogFile(file.path, file.header), offset) for file, offset in places]
    rows = message.ambiguous_rows
    if len(others) != len(rows) or any(row >= count or answers[row] is not Found.FOUND for row in rows):
        raise WireError("ambiguous keys and their places do not fit together")
    return EventLookUps(answers, records, dict(zip(rows, others, strict=True)))


def progress_reply(progress: Progress) -> pb.ProgressReply:
    """Progress as a message."""
    return pb.ProgressReply(**{name: getattr(progress, name) for name in Progress.__slots__})


def progress_of(message: pb.ProgressReply) -> Progress:
    """And back."""
    return Progress(**{name: getattr(message, name) for name in Progress.__slots__})


def arrived_reply(came: Came) -> pb.ArrivedReply:
    """What came as a message."""
    return pb.ArrivedReply(epoch=came.epoch, next=came.next, keys=came.keys, lost=came.lost)


def came_of(message: pb.ArrivedReply) -> Came:
    """And back."""
    return Came(message.epoch, message.next, list(message.keys), message.lost)


def seek_reply(rows: Sequence[int]) -> pb.SeekReply:
    """Rows of the keys that were asked for."""
    return pb.SeekReply(rows=np.asarray(rows, dtype="<u4").tobytes())


def sought_of(message: pb.SeekReply, keys: int) -> list[int]:
    """And back. Raises WireError."""
    if len(message.rows) % 4 or len(message.rows) > 4 * keys:
        raise WireError(f"{len(message.rows)} bytes of rows for {keys} keys")
    rows: list[int] = np.frombuffer(message.rows, dtype="<u4").tolist()
    if rows and max(rows) >= keys:
        raise WireError("a row is out of range")
    return rows
