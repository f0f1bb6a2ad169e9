"""Sample records of both sides: from log files, cut as in a running join, or from lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from photon.adapters.contract import Adapter, AdapterError, Framing, LogFile
from photon.adapters.formats.delimited import LINE_END_MARK
from photon.adapters.logs.framings import headed_pieces, open_anywhere
from photon.adapters.logs.identity import HEAD_BYTES, read_head
from photon.adapters.logs.links import LinkOutside, log_path
from photon.adapters.logs.own_framing import OwnSource

RECORDS = 200
SAMPLE_BYTES = 64 << 20  # most bytes read from a file
CUT_BYTES = 4 << 10  # at the start of a file, which ``check_framing`` cuts at every position


@dataclass(frozen=True, slots=True)
class Sample:
    record: bytes
    file: LogFile
    # Line of the uncompressed file, from 1; the number of the record if lines are made from the file's bytes.
    line: int = 0
    offset: int = 0


@dataclass(slots=True)
class SampleFile:
    """The samples from one file. ``fault``: why nothing after them can be read; empty if all is well."""

    path: str
    samples: list[Sample] = field(default_factory=list)
    fault: str = ""
    begin: bytes = b""  # first bytes of the file, uncompressed, if the framing is the adapter's own


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples an adapter is tested on: good records, all of which it should read, in the order of their logs."""

    primary: Sequence[Sample] = ()
    foreign: Sequence[Sample] = ()
    # Side, path and first bytes of each file cut by the adapter's own framing.
    begins: Sequence[tuple[str, str, bytes]] = ()

    @classmethod
    def read(
        cls, adapter: Adapter, *, primary: Path | None = None, foreign: Path | None = None, limit: int = RECORDS
    ) -> Samples:
        """Reads the first ``limit`` records of a log file of each side; plain, gz or zst.

        A directory stands for the files in it. Raises AdapterError.
        """
        sides: dict[str, list[Sample]] = {}
        begins = []
        for side, path in (("primary", primary), ("foreign", foreign)):
            samples: list[Sample] = []
            for file in [] if path is None else _files(path):
                named = file == path
                found = read_samples(adapter, side, file, limit - len(samples), named=named)
                if found.fault and not found.samples:
                    raise AdapterError(found.fault, found.path, f"name a file of the {side} logs")
                samples += found.samples
                if found.begin:
                    begins.append((side, found.path, found.begin))
            sides[side] = samples
        return cls(sides["primary"], sides["foreign"], begins)

    @classmethod
    def of(
        cls, *, primary: Iterable[bytes] = (), foreign: Iterable[bytes] = (), file: LogFile | None = None
    ) -> Samples:
        """Makes samples from records without line ends. ``file``: the log that they seem to be in."""
        primaries, foreigners = (
            [Sample(record, file or LogFile(f"{side}.log"), at) for at, record in enumerate(records, 1)]
            for side, records in (("primary", primary), ("foreign", foreign))
        )
        return cls(primaries, foreigners)


def framing_of(adapter: Adapter, side: str) -> tuple[Framing, bool]:
    """Returns (framing of ``primary`` or ``foreign`` files, True if each begins with a header record)."""
    if side == "primary":
        return adapter.primary_framing, adapter.primary_has_header
    return adapter.foreign_framing, adapter.foreign_has_header


def read_samples(adapter: Adapter, side: str, path: Path, limit: int = RECORDS, *, named: bool = True) -> SampleFile:
    """Reads the first records of a ``primary`` or ``foreign`` file. Raises AdapterError if it cannot be read.

    ``named``: the user named it, so a link is followed.
    """
    framing, has_header = framing_of(adapter, side)
    if path.is_dir():
        inner = next(iter(_files(path)), None)
        todo = f"name one file in it{'' if inner is None else f', for instance {inner}'}"
        raise AdapterError("is a directory", str(path), todo)
    if not path.is_file():
        raise AdapterError("no such file", str(path), f"name one file of the {side} logs")
    found = SampleFile(str(path))
    links = list(adapter.primary_links if side == "primary" else adapter.foreign_links)
    links += [str(path.resolve().parent)] if named else []
    try:
        source = open_anywhere(log_path(path.parent, path.name, links), framing)
    except LinkOutside as outside:
        raise AdapterError(str(outside), str(path), "name another file") from None
    try:
        if isinstance(source, OwnSource):
            found.begin = source.raw(CUT_BYTES)
        data = b""
        while len(data) < SAMPLE_BYTES and data.count(b"\n") <= limit * 4 + 1000:
            more = source.read(len(data), 1 << 20)
            if not more:
                break
            data += more
        found.fault = source.damage() or ("the file ends in the middle of a record" if source.cut_short() else "")
        head = read_head(path.name, data[:HEAD_BYTES], has_header=has_header, final=True, framing=framing)
        if head is None:
            found.fault = found.fault or "holds no record"
            return found
        whole = data if data.endswith(b"\n") else data + b"\n"
        pieces = headed_pieces(source, head.data_start, whole[head.data_start :], framing, head.header)
    finally:
        source.close()
    for piece, header in pieces:
        before = data[: piece.offset]
        number = 1 + before.count(b"\n") + before.count(LINE_END_MARK)
        _cut(LogFile(path.name, header), piece.offset, piece.data, number, found.samples, limit)
    return found


def _files(path: Path) -> list[Path]:
    """Returns the path, or the files in it if it is a directory, without hidden ones."""
    if not path.is_dir():
        return [path]
    return sorted(each for each in path.iterdir() if each.is_file() and not each.name.startswith("."))


def _cut(file: LogFile, offset: int, lines: bytes, number: int, samples: list[Sample], limit: int) -> None:
    for line in lines.split(b"\n")[:-1]:
        record = line.removesuffix(b"\r")
        if len(samples) >= limit:
            return
        if record:
            samples.append(Sample(record, file, number, offset))
        number += 1 + line.count(LINE_END_MARK)
        offset += len(line) + 1
