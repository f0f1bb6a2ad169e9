"""Registers the ids of outputs again in a closed registry, after it was restored from a backup.

Each output line names its event and the token that it was written under. An id whose line the verifier had cleared
becomes cleared again, any other becomes owned, so that the verifier clears it later. All that readers see is
registered, a retired slot's copy and the outputs of backfills too; not damaged ranges, whose events were given back.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from photon.adapters.envelope_reader import EnvelopeError, OutputRefs, read_block
from photon.config.decoding import DECODE_ERRORS
from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.config.versioned_file import decoded
from photon.idregistry import registry_pb2 as pb
from photon.idregistry.api import DIGEST_BYTES, I64, Answer, Digester, Kind
from photon.idregistry.core import commands as c
from photon.idregistry.core.sharding import split
from photon.idregistry.operate.operator_client import OperatorClient
from photon.joiner.slot.place import DIRECTORY_OF
from photon.outputs.content import OutputMissing
from photon.outputs.damaged import FilledContent
from photon.outputs.log.format import Cleared, DamagedRange, gzip_name
from photon.outputs.output_places import SLOTS_DIRECTORY
from photon.outputs.published import SlotOutput, read_slot, slot_states
from photon.spark.backfill.known import BackfillPaths, known_backfills, read_job

BLOCK_BYTES = 4 << 20
IDS_AT_ONCE = 8_192
ALL_BYTES = sys.maxsize
_NAME = re.compile(r"(?P<slot>.+)-[0-9]{6,18}\.jsonl(\.gz)?")
_KINDS = {directory: kind for kind, directory in DIRECTORY_OF.items()}


class OutputUnreadable(PhotonError):
    """An output is missing, or a line is not an output record; no later line of its file was registered."""


@dataclass(frozen=True, slots=True)
class OutputFile:
    path: Path  # of its plain form; it may be stored as .gz
    name: str  # relative to the output's root, as named by the verifier
    slot: str
    kind: Kind
    cleared: int = 0  # bytes whose ids the verifier had cleared
    published: int = 0  # bytes that readers were told of
    end: int = ALL_BYTES  # nothing after this is read: a retired slot's ids were given back
    damaged: tuple[DamagedRange, ...] = ()


@dataclass(frozen=True, slots=True)
class OutputFiles:
    found: list[OutputFile]
    archived: list[OutputFile]  # final ones that are gone: people may move them away


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


def datacentre_files(disk: Disk, base: Path, datacentre: str, join: str, output: Path, state: Path) -> OutputFiles:
    """Returns the files of a datacentre's slots and backfills. ``base``: the deployment file's directory. Raises
    OutputUnreadable, PublishedDamaged, BackfillDamaged, OSError."""
    if not disk.exists(output):
        raise OutputUnreadable(f"{output}: the output of {datacentre} is not there; mount it, or name others with "
                               "--datacentre")  # fmt: skip
    places = [(output, state / SLOTS_DIRECTORY)]
    for path in known_backfills(disk, base, join, 0, ALL_BYTES):
        paths = BackfillPaths(path)
        job = read_job(disk, paths.job)
        if job is not None and job.datacentre == datacentre:
            places.append((paths.output, paths.state / SLOTS_DIRECTORY))
    each = [output_files(disk, *place) for place in places]
    return OutputFiles(
        [file for some in each for file in some.found], [file for some in each for file in some.archived]
    )


def output_files(disk: Disk, output: Path, slots: Path) -> OutputFiles:
    """Returns the published files of the slots below ``slots``, and other files unless their slot is retired.

    Raises OutputUnreadable if a published file is gone, PublishedDamaged, OSError.
    """
    found, archived = dict[Path, OutputFile](), list[OutputFile]()
    retired = set[str]()
    for state in slot_states(disk, slots):
        slot = read_slot(disk, state)
        if slot.retired:
            retired.add(slot.slot)
        for file in _published(disk, slot, slot.output or output, _cleared(disk, state)):
            if _is_there(disk, file.path):
                found[file.path] = file
            elif file.name in slot.removable:
                archived.append(file)
            elif file.published:
                raise OutputUnreadable(f"{file.path}: was published, but is gone, even as .gz; mount or restore it")
    for kind, directory in DIRECTORY_OF.items():
        for name in disk.names(output / directory):
            match = _NAME.fullmatch(name)
            path = output / directory / name.removesuffix(".gz")
            if match is not None and match["slot"] not in retired and path not in found:
                plain = f"{directory}/{path.name}"
                found[path] = OutputFile(path, plain, match["slot"], kind, 0 if disk.exists(path) else ALL_BYTES)
    return OutputFiles([found[path] for path in sorted(found)], archived)


def _published(disk: Disk, slot: SlotOutput, root: Path, cleared: Mapping[str, int]) -> Iterator[OutputFile]:
    for file in slot.files:
        if (kind := _KINDS.get(file.kind)) is None:
            continue
        path = root / file.name
        all_cleared = file.final or not disk.exists(path)  # only a final file is compressed
        begin, end = file.readable(0)
        yield OutputFile(
            path, file.name, slot.slot, kind, ALL_BYTES if all_cleared else cleared.get(file.name, 0),
            file.length if begin < end else 0, file.length if slot.retired else ALL_BYTES, file.damaged,
        )  # fmt: skip


def _is_there(disk: Disk, path: Path) -> bool:
    return disk.exists(path) or disk.exists(path.with_name(gzip_name(path.name)))


def _cleared(disk: Disk, slot_state: Path) -> Mapping[str, int]:
    """Length up to which the verifier had cleared the ids of each growing file of a slot. Empty if unknown."""
    try:
        return decoded(disk.read(slot_state / "verifier" / "cleared.json"), Cleared).files
    except (OSError, *DECODE_ERRORS):
        return {}


def blocks(disk: Disk, file: OutputFile) -> Iterator[tuple[bytes, bool]]:
    """Yields (whole lines, True if they were cleared). Skips a torn last line. Raises OutputUnreadable, OSError."""
    content = FilledContent(disk, file.path, 0, file.damaged)
    at, rest = 0, b""
    while True:
        below = max(file.cleared - content.at, 0)
        most = min(BLOCK_BYTES, below or BLOCK_BYTES, file.end - content.at)
        try:
            part = content.read(most)
        except OutputMissing as missing:
            raise OutputUnreadable(f"{missing.path}: {missing.why}; mount or restore it") from None
        if not part:
            break
        data = rest + part
        end = data.rfind(b"\n") + 1
        lines = re.sub(rb"(?m)^\n", b"", data[:end]) if file.damaged else data[:end]
        if lines:
            yield lines, at + end <= file.cleared
        at += end
        rest = data[end:]
    if content.at < file.published:
        raise OutputUnreadable(
            f"{file.path}: has {content.at} bytes, but {file.published} were published; restore the file"
        )


def register_file(
    disk: Disk,
    client: OperatorClient,
    ranges: Sequence[c.Range],
    digester: Digester,
    datacentre: str,
    file: OutputFile,
    done: Registered,
) -> None:
    """Registers a file's ids; adds to the counts in ``done``. Raises OutputUnreadable, OSError, the client's
    errors."""
    for refs, was_cleared in _refs(disk, file, done):
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


def counted(disk: Disk, files: Sequence[OutputFile]) -> Registered:
    """Counts the lines that ``register_file`` would register, without any request. Raises like ``blocks``."""
    done = Registered()
    for file in files:
        for _ in _refs(disk, file, done):
            pass
    return done


def _refs(disk: Disk, file: OutputFile, done: Registered) -> Iterator[tuple[OutputRefs, bool]]:
    for block, was_cleared in blocks(disk, file):
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
    """Yields (rows, the request that registers them)."""
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
