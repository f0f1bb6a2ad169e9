"""Batches as the columns of joiner.proto, and back: pure. Integers are little-endian."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from photon.adapters.contract import LogFile
from photon.eventstore import eventstore_pb2 as store_pb
from photon.idregistry.api import DIGEST_BYTES, Kind, split_digests
from photon.joiner import joiner_pb2 as pb
from photon.joiner.api import ForeignEvent, JoinAnswers, Outcome, TakenBy

MESSAGE_BYTES_MAX = 64 << 20
"""gRPC's limit, set on both ends."""
EVENTS_MAX = 16 << 10
"""Events in one request."""
FIELDS_MAX = 4 * EVENTS_MAX + 64
"""Of a request: id, key and record of each event, a file for each at most, and the columns."""
REQUEST_BYTES_MAX = 32 << 20
"""Records and keys in one request, unless a single event is bigger."""

_KINDS = {int(kind): kind for kind in Kind}
_OUTCOMES = {int(outcome): outcome for outcome in Outcome}


class WireError(ValueError):
    """A message whose columns do not fit together."""


def request_slices(events: Sequence[ForeignEvent]) -> list[slice]:
    """The events of each request: EVENTS_MAX, or REQUEST_BYTES_MAX of them."""
    slices = []
    begin = size = 0
    for at, event in enumerate(events):
        bytes_of = len(event.record) + len(event.key) + len(event.event_id)
        if at > begin and (at - begin >= EVENTS_MAX or size + bytes_of > REQUEST_BYTES_MAX):
            slices.append(slice(begin, at))
            begin, size = at, 0
        size += bytes_of
    if len(events) > begin:
        slices.append(slice(begin, len(events)))
    return slices


def request(join: str, events: Sequence[ForeignEvent]) -> pb.JoinRequest:
    """The message that asks."""
    files: dict[LogFile, int] = {}
    indexes = [files.setdefault(event.file, len(files)) for event in events]
    generations = [event.generation for event in events]
    return pb.JoinRequest(
        join=join,
        ids=[event.event_id for event in events],
        digests=b"".join([event.digest for event in events]),
        times=np.array([event.event_time_ns for event in events], dtype="<i8").tobytes(),
        keys=[event.key for event in events],
        records=[event.record for event in events],
        files=[store_pb.LogFileName(path=_text(file.path), header=file.header) for file in files],
        file_indexes=np.array(indexes, dtype="<u4").tobytes(),
        offsets=np.array([event.offset for event in events], dtype="<i8").tobytes(),
        unmatched_as_of=np.array([event.unmatched_as_of_ns for event in events], dtype="<i8").tobytes(),
        generations=np.array(generations, dtype="<u4").tobytes() if any(generations) else b"",
    )


def asked(message: pb.JoinRequest) -> list[ForeignEvent]:
    """The batch. Raises WireError."""
    n = len(message.ids)
    if n > EVENTS_MAX:
        raise WireError(f"{n} events, at most {EVENTS_MAX} can be sent at once")
    if len(message.keys) != n or len(message.records) != n or len(message.digests) != n * DIGEST_BYTES:
        raise WireError(f"{n} ids with {len(message.keys)} keys, {len(message.records)} records and other columns")
    files = [LogFile(file.path, file.header) for file in message.files]
    indexes = _column(message.file_indexes, "<u4", n, "file_indexes")
    if n and max(indexes) >= len(files):
        raise WireError(f"file index {max(indexes)} of {len(files)} files")
    columns = zip(
        message.ids,
        split_digests(message.digests),
        _column(message.times, "<i8", n, "times"),
        message.keys,
        message.records,
        [files[index] for index in indexes],
        _column(message.offsets, "<i8", n, "offsets"),
        _column(message.unmatched_as_of, "<i8", n, "unmatched_as_of"),
        _column(message.generations, "<u4", n, "generations") if message.generations else [0] * n,
        strict=True,
    )
    return [ForeignEvent(*row) for row in columns]


def reply(answers: JoinAnswers) -> pb.JoinReply:
    """The answers."""
    taken = sorted(answers.taken)
    kinds = bytearray(len(answers.outcomes))
    for row in taken:
        kinds[row] = answers.taken[row].kind
    reasons = sorted(answers.reasons)
    return pb.JoinReply(
        overloaded=answers.overloaded,
        outcomes=bytes(answers.outcomes),
        kinds=bytes(kinds) if taken else b"",
        reason_of=reasons,
        reasons=[_text(answers.reasons[row]) for row in reasons],
        owner_datacentres=[answers.taken[row].datacentre for row in taken],
        owner_of=taken,
        same_lines=bytes([answers.taken[row].same_line for row in taken]),
        owner_times=_times(answers.taken[row].time_ns for row in taken),
        owner_tokens=b"".join([answers.taken[row].token.to_bytes(8, "little") for row in taken]),
        ambiguous=answers.ambiguous,
    )


def answered(message: pb.JoinReply, n: int) -> JoinAnswers:
    """The answers to n events. Raises WireError; an outcome of a newer version is RETRY."""
    owners = len(message.owner_of)
    if len(message.outcomes) != n or len(message.reasons) != len(message.reason_of):
        raise WireError(f"{len(message.outcomes)} outcomes for {n} events")
    if len(message.owner_datacentres) != owners or len(message.same_lines) != owners:
        raise WireError(f"{owners} owners with {len(message.owner_datacentres)} datacentres")
    rows = (*message.owner_of, *message.reason_of, *message.ambiguous)
    if (owners and len(message.kinds) != n) or any(row >= n for row in rows):
        raise WireError(f"rows beyond the {n} that were asked about")
    outcomes = [_OUTCOMES.get(code, Outcome.RETRY) for code in message.outcomes]
    times = _column(message.owner_times, "<i8", owners, "owner_times") if message.owner_times else [_NO_TIME] * owners
    tokens = _column(message.owner_tokens, "<u8", owners, "owner_tokens") if message.owner_tokens else [0] * owners
    taken = {}
    for at, row in enumerate(message.owner_of):
        kind = _KINDS.get(message.kinds[row])
        if kind is None:
            raise WireError(f"verdict {message.kinds[row]} of an owner is not known here")
        time_ns = None if times[at] == _NO_TIME else times[at]
        taken[row] = TakenBy(message.owner_datacentres[at], kind, bool(message.same_lines[at]), time_ns, tokens[at])
    if any(outcome is Outcome.TAKEN and row not in taken for row, outcome in enumerate(outcomes)):
        raise WireError("an id is taken, and nobody owns it")
    reasons = dict(zip(message.reason_of, message.reasons, strict=True))
    return JoinAnswers(outcomes, taken, reasons, message.overloaded, ambiguous=tuple(message.ambiguous))


_NO_TIME = -(2**63)


def _times(times: Iterable[int | None]) -> bytes:
    return b"".join([(_NO_TIME if each is None else each).to_bytes(8, "little", signed=True) for each in times])


def _column(data: bytes, dtype: str, n: int, name: str) -> list[int]:
    width = int(dtype[-1])
    if len(data) != width * n:
        raise WireError(f"{name} has {len(data)} bytes for {n} events")
    values: list[int] = np.frombuffer(data, dtype).tolist()
    return values


def _text(text: str) -> str:
    """Protobuf strings are UTF-8; a file name that is not becomes what the output would show of it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return text
