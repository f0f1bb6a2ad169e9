"""Converts look-ups to the columns of eventstore.proto, and back. Pure. Integers are little endian."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from photon.batch.files import LogFile
from photon.batch.records import Records
from photon.config.rpc import Service, WireError
from photon.eventstore import eventstore_pb2 as pb
from photon.eventstore.api import (
    Details,
    EventLookUps,
    Forgotten,
    KeyArrivals,
    LookUpCode,
    PrimaryPlace,
    Progress,
    SourceProgress,
    UnavailableLog,
)

_T = TypeVar("_T")

MESSAGE_BYTES_MAX = 64 << 20  # gRPC's limit, set on both ends
# Records in one reply. A reply that would exceed this answers a prefix of the keys; the client asks for the rest.
REPLY_BYTES_MAX = 32 << 20
KEYS_MAX = 4096  # keys in one request
FIELDS_MAX = KEYS_MAX + 16  # fields of a request: its keys and the others
KEYS_BYTES_MAX = 16 << 20
LISTED_MAX = 20_000  # most sources, and unavailable logs, in one reply
EVENT_STORE = Service(pb.DESCRIPTOR, "EventStore", bytes_max=MESSAGE_BYTES_MAX, fields_max=FIELDS_MAX)


def request_slices(keys: Sequence[bytes]) -> list[slice]:
    """Splits keys into requests of at most KEYS_MAX keys and KEYS_BYTES_MAX bytes each; a larger key goes alone."""
    if 0 < len(keys) <= KEYS_MAX and sum(map(len, keys)) <= KEYS_BYTES_MAX:
        return [slice(0, len(keys))]
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


def request(
    join: str, keys: Sequence[bytes], as_of: Sequence[int], times: Sequence[int] | None = None
) -> pb.EventLookUpRequest:
    columns = [b"" if each is None else np.asarray(each, dtype="<i8").tobytes() for each in (as_of, times)]
    return pb.EventLookUpRequest(join=join, keys=keys, as_of=columns[0], times=columns[1])


def asked(message: pb.EventLookUpRequest) -> tuple[list[bytes], list[int], list[int] | None]:
    """Returns (keys, as_of, times) of a request. Raises WireError."""
    keys = list(message.keys)
    for name, column in (("as_of", message.as_of), ("times", message.times)):
        if len(column) != 8 * len(keys) and (column or name == "as_of"):
            raise WireError(f"{name} has {len(column)} bytes for {len(keys)} keys")
    if len(keys) > KEYS_MAX:
        raise WireError(f"{len(keys)} keys, but at most {KEYS_MAX} are allowed")
    times = np.frombuffer(message.times, dtype="<i8").tolist() if message.times else None
    return keys, np.frombuffer(message.as_of, dtype="<i8").tolist(), times


_FOUND = bytes(LookUpCode)


def reply(found: EventLookUps, bytes_max: int = REPLY_BYTES_MAX) -> pb.EventLookUpReply:
    """Encodes the answers; only for a prefix of the keys (at least one) if the records exceed ``bytes_max``."""
    present = found.found
    count, fit, counts = len(found), len(present), found.counts
    if sum(map(len, present.records)) > bytes_max:
        sizes, ends = np.cumsum(list(map(len, present.records))), np.cumsum(found.per_row())
        rows = max(int(np.searchsorted(sizes[ends - 1], bytes_max, side="right")), 1)
        if rows < len(ends):
            count, fit = int(found.rows()[rows]), int(ends[rows - 1])
            counts = None if counts is None else counts[:rows]
    return pb.EventLookUpReply(
        answers=found.codes[:count],
        records=present.records[:fit],
        files=[_name(file) for file in present.files],
        file_indexes=present.file_index[:fit].astype("<u4", copy=False).tobytes(),
        offsets=present.offsets[:fit].astype("<i8", copy=False).tobytes(),
        ambiguous_rows=(shared := [row for row in sorted(found.ambiguous) if row < count]),
        ambiguous_files=[_name(found.ambiguous[row].file) for row in shared],
        ambiguous_offsets=[found.ambiguous[row].offset for row in shared],
        counts=b"" if counts is None else counts.astype("<u4", copy=False).tobytes(),
    )


def _name(file: LogFile) -> pb.LogFileName:
    return pb.LogFileName(path=file.path, header=file.header)


def answered(message: pb.EventLookUpReply, keys: int) -> EventLookUps:
    """Decodes the answers for a prefix of ``keys`` keys. Raises WireError."""
    count = len(message.answers)
    n = len(message.records)
    answers = message.answers
    if answers.translate(None, _FOUND):
        raise WireError(f"an answer is not one of {[each.value for each in LookUpCode]}")
    counts = np.frombuffer(message.counts, dtype="<u4") if message.counts and not len(message.counts) % 4 else None
    of_rows = n if counts is None else len(counts)
    fits = (
        len(message.file_indexes) == 4 * n
        and len(message.offsets) == 8 * n
        and answers.count(LookUpCode.FOUND) == of_rows
        and (counts is None or (bool(counts.all()) and int(counts.sum()) == n))
    )
    if not fits or count > keys or (keys and not count):
        raise WireError(f"{count} answers with {n} records for {keys} keys: the columns do not fit together")
    files = [LogFile(file.path, file.header) for file in message.files]
    index = np.frombuffer(message.file_indexes, dtype="<u4")
    if n and index.max() >= len(files):
        raise WireError("a file index is out of range")
    records = Records(files, index, np.frombuffer(message.offsets, dtype="<i8"), list(message.records))
    places = zip(message.ambiguous_files, message.ambiguous_offsets, strict=False)
    others = [PrimaryPlace(LogFile(file.path, file.header), offset) for file, offset in places]
    rows = message.ambiguous_rows
    if len(others) != len(rows) or any(row >= count or answers[row] != LookUpCode.FOUND for row in rows):
        raise WireError("ambiguous keys and their places do not fit together")
    return EventLookUps(answers, records, dict(zip(rows, others, strict=True)), counts)


def _fields(value: object, kind: type) -> dict[str, Any]:
    """Returns the fields that a message and a class have in common."""
    return {name: getattr(value, name) for name in kind.__slots__}  # type: ignore[attr-defined]


def _each(values: Sequence[object], kind: type[_T]) -> tuple[_T, ...]:
    return tuple(kind(**_fields(each, kind)) for each in values)


def progress_reply(progress: Progress) -> pb.ProgressReply:
    return pb.ProgressReply(**_fields(progress, Progress))


def progress_of(message: pb.ProgressReply) -> Progress:
    return Progress(**_fields(message, Progress))


def details_reply(details: Details) -> pb.ProgressReply:
    reply = progress_reply(details.progress)
    reply.sources.extend(pb.PrimarySource(**_fields(each, SourceProgress)) for each in details.sources[:LISTED_MAX])
    reply.unavailable.extend(_unavailable(details.unavailable))
    return reply


def details_of(message: pb.ProgressReply) -> Details:
    sources = _each(message.sources, SourceProgress)
    return Details(progress_of(message), sources, _each(message.unavailable, UnavailableLog))


def forget_reply(forgotten: Forgotten) -> pb.ForgetReply:
    return pb.ForgetReply(logs=_unavailable(forgotten.logs), refused=forgotten.refused)


def forgotten_of(message: pb.ForgetReply) -> Forgotten:
    return Forgotten(_each(message.logs, UnavailableLog), tuple(message.refused))


def _unavailable(logs: Sequence[UnavailableLog]) -> list[pb.UnavailableLog]:
    return [pb.UnavailableLog(**_fields(each, UnavailableLog)) for each in logs[:LISTED_MAX]]


def arrived_reply(came: KeyArrivals) -> pb.ArrivedReply:
    return pb.ArrivedReply(epoch=came.epoch, next=came.next, keys=came.keys, lost=came.lost)


def came_of(message: pb.ArrivedReply) -> KeyArrivals:
    return KeyArrivals(message.epoch, message.next, list(message.keys), message.lost)


def seek_reply(rows: Sequence[int]) -> pb.SeekReply:
    return pb.SeekReply(rows=np.asarray(rows, dtype="<u4").tobytes())


def sought_of(message: pb.SeekReply, keys: int) -> list[int]:
    """Returns the rows in a SeekReply. Raises WireError."""
    if len(message.rows) % 4 or len(message.rows) > 4 * keys:
        raise WireError(f"{len(message.rows)} bytes of rows for {keys} keys")
    rows: list[int] = np.frombuffer(message.rows, dtype="<u4").tolist()
    if rows and max(rows) >= keys:
        raise WireError("a row is out of range")
    return rows
