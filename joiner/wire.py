"""Converts batches to the columns of joiner.proto, and back. Pure. Integers are little-endian."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from photon.batch.columns import DIGEST_BYTES
from photon.batch.events import Events
from photon.batch.files import LogFile
from photon.batch.verdicts import Verdicts
from photon.config.rpc import Service, WireError
from photon.eventstore import eventstore_pb2 as store_pb
from photon.idregistry.api import Kind
from photon.joiner import joiner_pb2 as pb
from photon.joiner.api import JoinAnswers, Outcome

EVENTS_MAX = 16 << 10  # events in one request
# Fields of a request: id, key and record of each event, at most a file for each, and the columns.
FIELDS_MAX = 4 * EVENTS_MAX + 64
REQUEST_BYTES_MAX = 32 << 20  # records and keys in one request, unless a single event is larger
JOINER = Service(pb.DESCRIPTOR, "Joiner", bytes_max=64 << 20, fields_max=FIELDS_MAX)

DATACENTRES_MAX = 255  # datacentres that own ids of one batch

_KINDS = frozenset(map(int, Kind))
_TAKEN = int(Outcome.TAKEN)  # numpy is slow to compare with an enumeration's member
_OUTCOMES = frozenset(map(int, Outcome))


def request(join: str, events: Events) -> pb.JoinRequest:
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
    """Decodes a batch. Raises WireError."""
    n = len(message.ids)
    if n > EVENTS_MAX:
        raise WireError(f"{n} events, but at most {EVENTS_MAX} are allowed")
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
    verdicts = answers.verdicts
    message = pb.JoinReply(
        overloaded=answers.overloaded,
        outcomes=verdicts.outcomes.tobytes(),
        reason_of=verdicts.reasons.keys(),
        reasons=map(_text, verdicts.reasons.values()),
        ambiguous=answers.ambiguous,
        unpaired=answers.unpaired,
    )
    if _TAKEN in message.outcomes:
        taken = np.flatnonzero(verdicts.outcomes == _TAKEN)
        times = verdicts.owner_times[taken]
        message.kinds = verdicts.owner_kinds.tobytes()
        message.owner_of.extend(taken.tolist())
        names = verdicts.datacentres
        message.owner_datacentres.extend([names[at] for at in verdicts.owner_datacentres[taken].tolist()])
        message.same_lines = answers.same_line[taken].tobytes()
        message.owner_times = np.where(times == 0, _NO_TIME, times).astype("<i8", copy=False).tobytes()
        message.owner_tokens = verdicts.owner_tokens[taken].astype("<u8", copy=False).tobytes()
    return message


def answered(message: pb.JoinReply, n: int) -> JoinAnswers:
    """Decodes the answers to ``n`` events. Raises WireError."""
    if len(message.outcomes) != n or len(message.reasons) != len(message.reason_of):
        raise WireError(f"{len(message.outcomes)} outcomes for {n} events")
    if any(row >= n for row in (*message.owner_of, *message.reason_of, *message.ambiguous, *message.unpaired)):
        raise WireError(f"rows beyond the {n} requested ones")
    names = {name: at for at, name in enumerate(dict.fromkeys(message.owner_datacentres))}
    verdicts = Verdicts.blank(n, datacentres=tuple(names))
    if message.reason_of:
        verdicts = replace(verdicts, reasons=dict(zip(message.reason_of, message.reasons, strict=True)))
    if strange := set(message.outcomes) - _OUTCOMES:
        raise WireError(f"unknown outcome {min(strange)}")
    verdicts.outcomes[:] = np.frombuffer(message.outcomes, np.uint8)
    same_line, ambiguous, unpaired = np.zeros(n, np.bool_), tuple(message.ambiguous), tuple(message.unpaired)
    answers = JoinAnswers(verdicts, same_line, message.overloaded, ambiguous=ambiguous, unpaired=unpaired)
    if message.owner_of or message.owner_datacentres:
        _fill_owners(answers, message, names)
    if _TAKEN in message.outcomes and 0 in verdicts.owner_kinds[verdicts.outcomes == _TAKEN].tobytes():
        raise WireError("an id is taken, but has no owner")
    return answers


_NO_TIME = -(2**63)


def _fill_owners(answers: JoinAnswers, message: pb.JoinReply, names: Mapping[str, int]) -> None:
    """Fills the columns aligned with ``owner_of``. Raises WireError."""
    verdicts, rows = answers.verdicts, np.array(message.owner_of, np.intp)
    n = len(rows)
    if len(message.owner_datacentres) != n or len(names) > DATACENTRES_MAX:
        raise WireError(f"{n} owners with {len(message.owner_datacentres)} datacentres")
    kinds = _column(message.kinds, "u1", len(verdicts), "kinds")[rows]
    if strange := set(kinds.tobytes()) - _KINDS:
        raise WireError(f"verdict {min(strange)} of an owner is unknown here")
    verdicts.owner_kinds[rows] = kinds
    verdicts.owner_datacentres[rows] = [names[name] for name in message.owner_datacentres]
    answers.same_line[rows] = _column(message.same_lines, "u1", n, "same_lines")
    if message.owner_times:
        times = _column(message.owner_times, "<i8", n, "owner_times")
        verdicts.owner_times[rows] = np.where(times == _NO_TIME, 0, times)
    if message.owner_tokens:
        verdicts.owner_tokens[rows] = _column(message.owner_tokens, "<u8", n, "owner_tokens")


def _column(data: bytes, dtype: str, n: int, name: str) -> npt.NDArray[Any]:
    if len(data) != int(dtype[-1]) * n:
        raise WireError(f"{name} has {len(data)} bytes for {n} events")
    return np.frombuffer(data, dtype)


def _text(text: str) -> str:
    """Converts a file name to UTF-8, as protobuf requires, in the form shown in the output."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return text
