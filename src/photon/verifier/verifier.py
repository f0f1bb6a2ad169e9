"""The continuous verifier: reads the durable part of the outputs as they grow and clears tokens (protocol rule 8).

It shares no code with the joiner that wrote them. It knows only the files that the slot publishes: durable.json (file
-> durable length) and the lines themselves. For each id it asks the registry to compare and clear the line's token,
so that a late clear cannot affect an id that was reopened meanwhile. Its position is ``cleared.json``, replaced after
the clears it covers; after a crash between the two, the same clears are repeated, which is harmless. The slot reads
the same file: it no longer needs a rolled file that is fully cleared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np

from photon.adapters.envelope_reader import EnvelopeError, OutputRefs, read_block
from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.config.stopping import until
from photon.config.structured import get_logger
from photon.config.versioned_file import read_versioned
from photon.idregistry.api import DIGEST_BYTES, Answer, Digester, Registry
from photon.outputs.log.format import Cleared, DamagedRange, Durable
from photon.outputs.published import PublishedDamaged, read_damaged, readable

log = get_logger(__name__)

_NEWLINE = 10
EXAMPLES_MAX = 20  # lines named in a report; the counts are complete


@dataclass(frozen=True, slots=True)
class VerifierLimits:
    """Sizes in bytes and ids, times in seconds."""

    block_bytes: int = 1 << 20
    clear_ids: int = 8192
    clear_timeout_s: float = 5.0
    period_s: float = 1.0
    # Bytes of each growing file read once more at a start, to find twins of the lines that follow.
    again_bytes: int = 4 << 20


@dataclass(slots=True)
class VerifierReport:
    cleared: int = 0
    refused: int = 0  # records whose token does not own their id: doubled, or written without a registration
    unreadable: int = 0
    unknown: int = 0  # clears without an answer; the next pass asks again
    behind_bytes: int = 0  # durable output not cleared yet at the end of the pass
    examples: list[str] = field(default_factory=list)

    def add(self, other: VerifierReport) -> None:
        """Adds another pass's counts; takes its ``behind_bytes``."""
        self.cleared += other.cleared
        self.refused += other.refused
        self.unreadable += other.unreadable
        self.unknown += other.unknown
        self.behind_bytes = other.behind_bytes
        self.examples = (self.examples + other.examples)[:EXAMPLES_MAX]


@dataclass(slots=True, eq=False)
class VerifierDamaged(PhotonError):
    """A file that the verifier relies on cannot be read."""

    path: Path
    why: str

    def __str__(self) -> str:
        return f"{self.path}: unreadable ({self.why}); remove it to verify the slot's output again from its beginning"


@dataclass(slots=True, eq=False)
class OutputShort(PhotonError):
    """An output file lacks bytes that were published."""

    path: Path
    size: int
    published: int

    def __str__(self) -> str:
        return (
            f"{self.path}: has {self.size} bytes, but {self.published} were published; restore it, or retire its slot"
        )


class Findings(Protocol):
    """Receives lines as they are read. Some come again after a crash, or if the registry did not answer."""

    def read(self, file: str, offsets: Sequence[int], ids: Sequence[bytes], digests: bytes) -> None: ...

    def cleared(self, file: str, offsets: Sequence[int], times_ns: Sequence[int]) -> None:
        """Receives lines once all of them are finished, in order; again only after a crash, or when a range of the
        file is left out."""

    def unreadable(self, file: str, offset: int, line: bytes) -> None: ...

    def refused(self, file: str, offset: int, event_id: bytes, token: int) -> None:
        """Receives a line whose token does not own its id."""


@dataclass(slots=True)
class _Block:
    refs: OutputRefs
    offsets: list[int]

    @classmethod
    def empty(cls) -> _Block:
        return cls(OutputRefs([], [], []), [])

    def add(self, later: _Block) -> None:
        refs, more = self.refs, later.refs
        refs.event_ids += more.event_ids
        refs.tokens += more.tokens
        refs.event_times_ns += more.event_times_ns
        self.offsets += later.offsets


@dataclass(eq=False)
class Verifier:
    """Clears the published output of one slot.

    ``slot_state`` holds the slot's durable.json; the verifier keeps its own files in ``verifier/`` there.
    """

    disk: Disk
    slot_state: Path
    output: Path
    digester: Digester
    registry: Registry
    limits: VerifierLimits = field(default_factory=VerifierLimits)
    findings: Findings | None = None

    def __post_init__(self) -> None:
        self._durable_path = self.slot_state / "durable.json"
        self._cleared_path = self.slot_state / "verifier" / "cleared.json"
        self._positions: dict[str, int] | None = None
        self._trouble: dict[str, int] = {}
        self._damaged: dict[str, list[DamagedRange]] = {}  # file -> its ranges in the last pass
        self._begun = False
        self.total = VerifierReport()

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            report = await self.run_once()
            if report.refused or report.unreadable:
                log.error(
                    "the output has records that are unreadable, or do not own their ids in the registry",
                    refused=report.refused, unreadable=report.unreadable, first="".join(report.examples[:1]),
                )  # fmt: skip
            await until(stop, self.limits.period_s)

    async def run_once(self) -> VerifierReport:
        """Makes one pass over all durable output. Raises VerifierDamaged, PublishedDamaged."""
        report = VerifierReport()
        durable = self._read_durable()
        damaged = read_damaged(self.disk, self.slot_state)
        positions = self._load()
        for gone in [name for name in positions if name not in durable]:
            del positions[gone]
            self._trouble.pop(gone, None)
            self._damaged.pop(gone, None)
        if self.findings is not None and not self._begun:
            self._again({name: at for name, at in positions.items() if name in durable}, damaged)
        self._begun = True
        for name, length in durable.items():
            own = [each for each in damaged if each.file == name]
            # What was wrong in a range that is left out now must not count any more: the file is read again.
            if own != self._damaged.get(name, []) and self._trouble.pop(name, 0):
                positions.pop(name, None)
            self._damaged[name] = own
            await self._file(name, length, own, positions, report)
        report.behind_bytes = sum(length - positions.get(name, 0) for name, length in durable.items())
        self.total.add(report)
        return report

    # -- one file --------------------------------------------------------------------------------------------
    async def _file(
        self,
        name: str,
        length: int,
        damaged: Sequence[DamagedRange],
        positions: dict[str, int],
        report: VerifierReport,
    ) -> None:
        start = at = positions.get(name, 0)
        while at < length:
            begin, stop = readable(damaged, at, length)
            if begin > at:  # its events were given back
                positions[name] = at = begin
                continue
            parsed = _Block.empty()
            end = at
            while end < stop and len(parsed.offsets) < self.limits.clear_ids:
                block = self._block(name, end, stop)
                if not block:
                    raise OutputShort(self.output / name, end, length)
                parsed.add(self._parse(name, end, block, report))
                end += len(block)
                await asyncio.sleep(0)  # other tasks wait for this thread
            if not await self._clear(name, parsed, report):
                break
            if self.findings is not None:
                self.findings.cleared(name, parsed.offsets, parsed.refs.event_times_ns)
            positions[name] = at = end
        if at != start:
            self._save(positions)

    def _block(self, name: str, at: int, length: int) -> bytes:
        """Reads whole lines from ``at`` on, within the durable length; the rest of the file if it has no line end."""
        size = self.limits.block_bytes
        while True:
            block = self.disk.read(self.output / name, at, min(size, length - at))
            end = block.rfind(b"\n") + 1
            if end:
                return block[:end]
            if size >= length - at:
                return block
            size *= 2

    def _again(self, positions: dict[str, int], damaged: Sequence[DamagedRange]) -> None:
        """Passes the lines before these positions to ``findings`` again: after a restart the search for twins does
        not know them.
        """
        assert self.findings is not None
        for name, end in positions.items():
            gap = max((each.end for each in damaged if each.file == name and each.start < end), default=0)
            begin = max(end - self.limits.again_bytes, gap)
            if begin >= end:
                continue
            data = self.disk.read(self.output / name, begin, end - begin)
            skipped = data.find(b"\n") + 1 if begin > gap else 0
            block = _columns(begin + skipped, data[skipped:], lambda offset, line: None)
            ids = block.refs.event_ids
            self.findings.read(name, block.offsets, ids, self.digester.digests(ids))

    def _parse(self, name: str, at: int, block: bytes, report: VerifierReport) -> _Block:
        def bad(offset: int, line: bytes) -> None:
            report.unreadable += 1
            self._note(name, f"{name}:{offset}: not an output record", report)
            if self.findings is not None:
                self.findings.unreadable(name, offset, line)

        return _columns(at, block, bad)

    async def _clear(self, name: str, block: _Block, report: VerifierReport) -> bool:
        """Clears the ids of a block. False if some answers are missing, so that the block must be read again."""
        known = True
        refs = block.refs
        digests = self.digester.digests(refs.event_ids)
        if self.findings is not None:
            self.findings.read(name, block.offsets, refs.event_ids, digests)
        for start in range(0, len(refs.event_ids), self.limits.clear_ids):
            part = slice(start, start + self.limits.clear_ids)
            ids = refs.event_ids[part]
            answers = await self.registry.clear(
                digests[start * DIGEST_BYTES : (start + len(ids)) * DIGEST_BYTES],
                np.array(refs.event_times_ns[part], dtype=np.int64),
                np.array(refs.tokens[part], dtype=np.uint64),
                timeout=self.limits.clear_timeout_s,
            )
            unknown = int(np.count_nonzero(answers == Answer.UNKNOWN))
            refused = np.flatnonzero(answers == Answer.REFUSED).tolist()
            report.unknown += unknown
            report.cleared += len(ids) - unknown - len(refused)
            known = known and not unknown
            if not unknown:
                report.refused += len(refused)
                for row in refused:
                    text = f"{name}: id {ids[row]!r}: the registry knows another owner, or none"
                    self._note(name, text, report)
                    if self.findings is not None:
                        at = start + row
                        self.findings.refused(name, block.offsets[at], ids[row], refs.tokens[at])
        return known

    def _note(self, name: str, example: str, report: VerifierReport) -> None:
        self._trouble[name] = self._trouble.get(name, 0) + 1
        if len(report.examples) < EXAMPLES_MAX:
            report.examples.append(example)

    # -- small files -----------------------------------------------------------------------------------------
    def _read_durable(self) -> dict[str, int]:
        durable = read_versioned(self.disk, self._durable_path, Durable, PublishedDamaged)
        return {} if durable is None else durable.files | (durable.clearable or {})

    def _load(self) -> dict[str, int]:
        if self._positions is None:
            self._positions = {}
            self.disk.make_dir(self._cleared_path.parent)
            cleared = read_versioned(self.disk, self._cleared_path, Cleared, VerifierDamaged)
            if cleared is not None:
                self._positions = dict(cleared.files)
                self._trouble = dict(cleared.trouble)
        return self._positions

    def _save(self, positions: dict[str, int]) -> None:
        cleared = Cleared(positions, self._trouble)
        self.disk.replace(self._cleared_path, msgspec.json.encode(cleared))


def _columns(at: int, block: bytes, bad: Callable[[int, bytes], None]) -> _Block:
    """Parses the lines of a block that begins at ``at``. ``bad`` receives lines that are not output records."""
    try:
        refs = read_block(block, parse=True)
    except EnvelopeError:
        return _each(at, block, bad)
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == _NEWLINE) + (at + 1)
    if len(refs.event_ids) != len(ends):  # some are about records that are not events
        return _each(at, block, bad)
    return _Block(refs, [at, *ends[:-1].tolist()])


def _each(at: int, block: bytes, bad: Callable[[int, bytes], None]) -> _Block:
    """Parses a block line by line, so that one bad line does not hide the others."""
    found = _Block.empty()
    for line in split_lines(block):
        try:
            refs = read_block(line, parse=True)
        except EnvelopeError:
            bad(at, line)
        else:
            found.add(_Block(refs, [at] * len(refs.event_ids)))
        at += len(line)
    return found


def split_lines(block: bytes) -> list[bytes]:
    lines = block.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])
