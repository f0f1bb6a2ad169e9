"""Batches as the columns of joiner.proto, and back: pure. Integers are little-endian."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from photon.batch.columns import DIGEST_BYTES
from photon.batch.events import Events
from photon.batch.files import LogFile
from photon.config.rpc import Service, WireError
from photon.eventstore import eventstore_pb2 as store_pb
from photon.idregistry.api import Kind
from photon.joiner import joiner_pb2 as pb
from photon.joiner.api import JoinAnswers, Outcome, TakenBy

EVENTS_MAX = 16 << 10
"""Events in one request."""
FIELDS_MAX = 4 * EVENTS_MAX + 64
"""Of a request: id, key and record of each event, a file for each at most, and the columns."""
REQUEST_BYTES_MAX = 32 << 20
"""Records and keys in one request, unless a single event is bigger."""
JOINER = Service(pb.DESCRIPTOR, "Joiner", bytes_max=64 << 20, fields_max=FIELDS_MAX)

_KINDS = {int(kind): kind for kind in Kind}
_OUTCOMES = [Outcome(code) if code in set(Outcome) else Outcome.RETRY for code in range(256)]


def request(join: str, events: Events) -> pb.JoinRequest:
    """The message that asks."""
    generations = events.generations
    return pb.JoinRequest(
        join=join,
        ids=events.ids,
        digests=events.digests,
        times=events.times.astype("<i8", copy=False).tobytes(),
        keys=events.keys,
        records=events.records,
        files=[store_pb.LogFileName(path=_text(file.path), header=file.header) for file in events.files],
        file_indexes=events.file_index.astype("<u4", copy=False).tobytes(),
        offsets=events.offsets.astype("<i8", copy=False).tobytes(),
        unmatched_as_of=events.as_of.astype("<i8", copy=False).tobytes(),
        generations=generations.astype("<u4", copy=False).tobytes() if generations.any() else b"",
    )


def asked(message: pb.JoinRequest) -> Events:
    """The batch. Raises WireError."""
    n = len(message.ids)
    if n > EVENTS_MAX:
        raise WireError(f"{n} events, at most {EVENTS_MAX} can be sent at once")
    if len(message.keys) != n or len(message.records) != n or len(message.digests) != n * DIGEST_BYTES:
        raise WireError(f"{n} ids with {len(message.keys)} keys, {len(message.records)} records and other columns")
    files = [LogFile(file.path, file.header) for file in message.files]
    index = _column(message.file_indexes, "<u4", n, "file_indexes")
    if n and index.max() >= len(files):
        raise WireError(f"file index {index.max()} of {len(files)} files")
    return Events(
        files=files,
        file_index=index,
        offsets=_column(message.offsets, "<i8", n, "offsets"),
        times=_column(message.times, "<i8", n, "times"),
        digests=message.digests,
        keys=list(message.keys),
        ids=list(message.ids),
        records=list(message.records),
        as_of=_column(message.unmatched_as_of, "<i8", n, "unmatched_as_of"),
        generations=_column(message.generations or bytes(4 * n), "<u4", n, "generations"),
    )


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
    outcomes = [_OUTCOMES[code] for code in message.outcomes]
    times, tokens = [_NO_TIME] * owners, [0] * owners
    if message.owner_times:
        times = _column(message.owner_times, "<i8", owners, "owner_times").tolist()
    if message.owner_tokens:
        tokens = _column(message.owner_tokens, "<u8", owners, "owner_tokens").tolist()
    taken = {}
    for at, row in enumerate(message.owner_of):
        kind = _KINDS.get(message.kinds[row])
        if kind is None:
            raise WireError(f"verdict {message.kinds[row]} of an owner is not known here")
        time_ns = None if times[at] == _NO_TIME else times[at]
        taken[row] = TakenBy(message.owner_datacentres[at], kind, bool(message.same_lines[at]), time_ns, tokens[at])
    if message.outcomes.count(Outcome.TAKEN) != sum(outcomes[row] is Outcome.TAKEN for row in taken):
        raise WireError("an id is taken, and nobody owns it")
    reasons = dict(zip(message.reason_of, message.reasons, strict=True))
    return JoinAnswers(outcomes, taken, reasons, message.overloaded, ambiguous=tuple(message.ambiguous))


_NO_TIME = -(2**63)


def _times(times: Iterable[int | None]) -> bytes:
    return b"".join([(_NO_TIME if each is None else each).to_bytes(8, "little", signed=True) for each in times])


def _column(data: bytes, dtype: str, n: int, name: str) -> npt.NDArray[Any]:
    if len(data) != int(dtype[-1]) * n:
        raise WireError(f"{name} has {len(data)} bytes for {n} events")
    return np.frombuffer(data, dtype)


def _text(text: str) -> str:
    """Protobuf strings are UTF-8; a file name that is not becomes what the output would show of it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return text
