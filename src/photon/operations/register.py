"""Registers the ids of outputs again, in a registry that was restored from a backup and is closed.

Each output line names its event and the token that it was written under. An id whose line the verifier had cleared
becomes cleared again, any other becomes owned, so that the verifier clears it later.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from photon.adapters.envelope_reader import EnvelopeError, OutputRefs, read_block
from photon.config.decoding import DECODE_ERRORS
from photon.config.disk import RealDisk
from photon.config.errors import PhotonError
from photon.config.versioned_file import decoded
from photon.idregistry import registry_pb2 as pb
from photon.idregistry.api import DIGEST_BYTES, I64, Answer, Digester, Kind
from photon.idregistry.core import commands as c
from photon.idregistry.core.sharding import split
from photon.idregistry.operate.operator_client import OperatorClient
from photon.joiner.slot.place import DIRECTORY_OF
from photon.outputs.log.format import Cleared
from photon.outputs.published import PublishedDamaged, read_slot

BLOCK_BYTES = 4 << 20
IDS_AT_ONCE = 8_192
_NAME = re.compile(r"(?P<slot>.+)-[0-9]{6}\.jsonl(?P<gz>\.gz)?")


class OutputUnreadable(PhotonError):
    """A line that is not an output record; no later line of its file was registered. One line."""


@dataclass(frozen=True, slots=True)
class OutputFile:
    path: Path
    name: str  # relative to the output's root, as a plain file, as named by the verifier
    slot: str
    kind: Kind
    compressed: bool  # all its ids were cleared before it was compressed


@dataclass(slots=True)
class Registered:
    lines: int = 0
    registered: int = 0  # now owned or cleared under their line's token
    taken: int = 0  # the backup has another token for the id: there may be two records of it
    too_old: int = 0  # below the boundary, so they cannot be registered
    without_token: int = 0

    def add(self, answers: bytes) -> None:
        column = np.frombuffer(answers, np.uint8)
        good = (column == Answer.COMMITTED) | (column == Answer.DONE)
        self.registered += int(np.count_nonzero(good))
        self.taken += int(np.count_nonzero(column == Answer.TAKEN))
        self.too_old += int(np.count_nonzero(column == Answer.BELOW_BOUNDARY))


def output_files(root: Path) -> list[OutputFile]:
    """All files of a pipeline, of all its slots.

    If a file exists both plain and compressed, the plain one is used.
    """
    found: dict[str, OutputFile] = {}
    for kind, directory in DIRECTORY_OF.items():
        for path in sorted((root / directory).glob("*.jsonl*")):
            match = _NAME.fullmatch(path.name)
            if match is None:
                continue
            name = f"{directory}/{path.name.removesuffix('.gz')}"
            if match["gz"] is None or name not in found:
                found[name] = OutputFile(path, name, match["slot"], kind, match["gz"] is not None)
    return [found[name] for name in sorted(found)]


def cleared_lengths(slot_state: Path) -> Mapping[str, int]:
    """Bytes of each file of a slot whose ids the verifier had cleared; for a final file all. Empty if unknown."""
    try:
        files = decoded((slot_state / "verifier" / "cleared.json").read_bytes(), Cleared).files
    except (OSError, *DECODE_ERRORS):
        files = {}
    try:
        final = {file.name: file.length for file in read_slot(RealDisk(), slot_state).files if file.final}
    except (OSError, PublishedDamaged):
        final = {}
    return files | final


def blocks(file: OutputFile, cleared: int) -> Iterator[tuple[bytes, bool]]:
    """(whole lines, True if they were cleared). A torn last line is left out."""
    with _opened(file) as opened:
        at, rest = 0, b""
        while True:
            below = max(cleared - at - len(rest), 0)
            part = opened.read(min(BLOCK_BYTES, below) if below and not file.compressed else BLOCK_BYTES)
            if not part:
                return
            data = rest + part
            end = data.rfind(b"\n") + 1
            if end:
                yield data[:end], file.compressed or at + end <= cleared
                at += end
            rest = data[end:]


def _opened(file: OutputFile) -> IO[bytes]:
    opened: Any = gzip.open(file.path, "rb") if file.compressed else open(file.path, "rb")  # noqa: SIM115 - the caller's with
    stream: IO[bytes] = opened
    return stream


def register_file(
    client: OperatorClient,
    ranges: Sequence[c.Range],
    digester: Digester,
    datacentre: str,
    file: OutputFile,
    cleared: int,
    done: Registered,
) -> None:
    """Adds to the counts in ``done``. Raises OutputUnreadable, and errors of the client."""
    for refs, was_cleared in _refs(file, cleared, done):
        rows = np.flatnonzero(np.array(refs.tokens, np.uint64))
        for each in reversed(ranges):  # earlier shards hold, and report, the ids entered in their time
            elsewhere = []
            for at, request in _requests(refs, each.shards, rows, digester, datacentre, file, was_cleared):
                answers = client.register_again(request)
                elsewhere.append(at[np.frombuffer(answers, np.uint8) == Answer.ELSEWHERE])
                done.add(bytes(each for each in answers if each != Answer.ELSEWHERE))
            rows = np.concatenate(elsewhere) if elsewhere else rows[:0]
            if not rows.size:
                break


def counted(files: Sequence[OutputFile]) -> Registered:
    """Counts the lines that ``register_file`` would register, without any request. Raises OutputUnreadable."""
    done = Registered()
    for file in files:
        for _ in _refs(file, 0, done):
            pass
    return done


def _refs(file: OutputFile, cleared: int, done: Registered) -> Iterator[tuple[OutputRefs, bool]]:
    for block, was_cleared in blocks(file, cleared):
        try:
            refs = read_block(block)
        except EnvelopeError as error:
            raise OutputUnreadable(f"{file.path}: {error}") from None
        done.lines += len(refs.event_ids)
        done.without_token += refs.tokens.count(0)
        yield refs, was_cleared


def _requests(
    refs: OutputRefs,
    shards: Sequence[int],
    rows: I64,
    digester: Digester,
    datacentre: str,
    file: OutputFile,
    cleared: bool,
) -> Iterator[tuple[I64, pb.RegisterAgainRequest]]:
    """(rows, the request about them)."""
    tokens = np.array(refs.tokens, np.uint64)
    digests = digester.digests(refs.event_ids)
    times = np.array(refs.event_times_ns, np.int64)
    kinds = np.full(len(tokens), int(file.kind), np.uint8)
    if file.kind == Kind.JOINED:
        kinds[refs.reasoned] = Kind.UNMATCHED
    for part in split(digests, shards, rows):
        for start in range(0, len(part.rows), IDS_AT_ONCE):
            at = part.rows[start : start + IDS_AT_ONCE]
            yield (
                at,
                pb.RegisterAgainRequest(
                    shard=part.shard,
                    digests=c.take(digests, DIGEST_BYTES, at),
                    times=times[at].astype("<i8").tobytes(),
                    tokens=tokens[at].astype("<u8").tobytes(),
                    kinds=kinds[at].tobytes(),
                    tags=bytes(4 * len(at)),
                    slot=file.slot,
                    datacentre=datacentre,
                    cleared=cleared,
                ),
            )
