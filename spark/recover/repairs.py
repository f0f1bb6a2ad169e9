"""The repairs log: every id that a repair asked the registry to give up, and the registry's answer.

It outlives reports. Verification reads it because the unmatched line of an event that the operator gave up stays in
the output permanently, and the event's joined line is then no duplicate. Repair reads it so as not to request an id
twice after a report's export if the registry cannot compare it.

The log is a directory of Parquet files, one for each batch, ``REPORT-PASS-NUMBER.parquet``: written durably before
the registry is asked, and again with the answers. Each file names its format in its metadata.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from photon.config.disk import Disk
from photon.spark.classes import Class
from photon.spark.recover.journal import RepairsDamaged
from photon.spark.recover.planning import ReportedProblem

DIRECTORY = "repairs"  # next to the deployment file
VERSION = b"1"
_MARK = b"photon.repairs"
_NAME = re.compile(r"(?P<report>[0-9a-f]{32})-(?P<pass>losses|unmatched)-(?P<number>[0-9]{6})\.parquet")

# State of a row: not answered yet, or the registry's answer
ASKED, REOPENED, CHANGED, UNANSWERED = "asked", "reopened", "changed", "unanswered"
GIVEN_UP = (ASKED, REOPENED, UNANSWERED)  # answers with which the id was given up, or may have been

# ``token`` is null without an entry. ``output_file`` and ``output_offset``: of the verdict's line.
SCHEMA = pa.schema(
    [
        ("digest", pa.binary()),
        ("event_id", pa.binary()),
        ("event_time_ns", pa.int64()),
        ("class", pa.string()),
        ("token", pa.string()),
        ("generation", pa.int64()),
        ("datacentre", pa.string()),
        ("output_file", pa.string()),
        ("output_offset", pa.int64()),
        ("asked_ns", pa.int64()),
        ("answer", pa.string()),
    ],
    metadata={_MARK: VERSION},
)


@dataclass(frozen=True, slots=True)
class RepairBatchName:
    """Names a batch by report, pass and number."""

    report: str
    stage: str
    number: int

    @property
    def file(self) -> str:
        return f"{self.report}-{self.stage}-{self.number:06}.parquet"


@dataclass(frozen=True, slots=True)
class EarlierAnswers:
    """The answers to earlier requests. ``asked``: digests; ``reopened``: digest, token and generation of each entry
    that the registry gave up."""

    asked: frozenset[bytes]
    reopened: frozenset[tuple[bytes, str | None, int]]

    def gave_up(self, finding: ReportedProblem) -> bool:
        """True if the entry that the finding names was given up, so that the registry's current entry is a later
        one."""
        return (finding.digest, _token(finding), finding.generation) in self.reopened


class Repairs:
    """The repairs log of one deployment."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._directory = directory

    def write(
        self, name: RepairBatchName, findings: Sequence[ReportedProblem], answers: Sequence[str], asked_ns: int
    ) -> None:
        """Writes a batch durably. Raises OSError."""
        columns: Mapping[str, Sequence[object]] = {
            "digest": [each.digest for each in findings],
            "event_id": [each.event_id for each in findings],
            "event_time_ns": [each.event_time_ns for each in findings],
            "class": [str(each.kind) for each in findings],
            "token": [_token(each) for each in findings],
            "generation": [each.generation for each in findings],
            "datacentre": [each.datacentre for each in findings],
            "output_file": [each.output_file for each in findings],
            "output_offset": [each.output_offset for each in findings],
            "asked_ns": [asked_ns] * len(findings),
            "answer": list(answers),
        }
        self._put(name, columns)

    def _put(self, name: RepairBatchName, columns: Mapping[str, Sequence[object]]) -> None:
        arrays = [pa.array(columns[field.name], field.type) for field in SCHEMA]
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA), sink, compression="zstd")
        self._disk.make_dir(self._directory)
        self._disk.replace(self._directory / name.file, sink.getvalue().to_pybytes())

    def answers(self, name: RepairBatchName) -> Mapping[bytes, str]:
        """Returns an earlier batch's answers by digest; empty if the batch was never requested. Raises
        RepairsDamaged, OSError."""
        if not self._disk.exists(self._directory / name.file):
            return {}
        table = self._read(name.file, ("digest", "answer"))
        return dict(zip(table["digest"].to_pylist(), table["answer"].to_pylist(), strict=True))

    def since(self, since_ns: int) -> EarlierAnswers:
        """Returns the ids requested since ``since_ns`` by repairs of any report, and the answers. Raises
        RepairsDamaged, OSError."""
        asked, reopened = set[bytes](), set[tuple[bytes, str | None, int]]()
        for table in self._tables(("digest", "token", "generation", "asked_ns", "answer")):
            own = table.filter(pc.and_(pc.is_valid(table["digest"]), pc.greater_equal(table["asked_ns"], since_ns)))
            asked.update(own["digest"].to_pylist())
            own = own.filter(pc.equal(own["answer"], REOPENED))
            columns = (own[name].to_pylist() for name in ("digest", "token", "generation"))
            reopened.update(zip(*columns, strict=True))
        return EarlierAnswers(frozenset(asked), frozenset(reopened))

    def given_up_unmatched(self) -> pa.Table:
        """Returns, in SCHEMA, the lines of unmatched events that were, or may have been, given up. Such events may be
        joined by now, which a verification must take into account. Raises RepairsDamaged, OSError."""
        return self._of((Class.PRIMARY_EXISTS,), GIVEN_UP)

    def _of(self, classes: Sequence[Class], answers: Sequence[str]) -> pa.Table:
        found = [SCHEMA.empty_table()]
        for table in self._tables(None):
            own = pc.is_in(table["class"], pa.array([str(each) for each in classes]))
            found.append(table.filter(pc.and_(own, pc.is_in(table["answer"], pa.array(answers)))))
        return pa.concat_tables(found)

    def _tables(self, columns: Sequence[str] | None) -> Iterator[pa.Table]:
        for name in self._disk.names(self._directory):
            if _NAME.fullmatch(name):
                yield self._read(name, columns)

    def _read(self, name: str, columns: Sequence[str] | None) -> pa.Table:
        path = self._directory / name
        try:
            file = pq.ParquetFile(pa.BufferReader(self._disk.read(path)))
            version = (file.schema_arrow.metadata or {}).get(_MARK)
            if version != VERSION:
                raise RepairsDamaged(
                    f"{path}: is not a repairs log of version {VERSION.decode()}; restore it from a copy"
                )
            return file.read(columns=None if columns is None else list(columns))
        except (pa.ArrowException, KeyError) as error:
            said = " ".join(str(error).split())
            raise RepairsDamaged(f"{path}: is damaged ({said}); restore it from a copy") from None


def _token(finding: ReportedProblem) -> str | None:
    return None if finding.token is None else f"{finding.token:016x}"
