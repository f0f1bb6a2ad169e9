"""Names of a backfill's files on the shared file system, and the tokens that belong to them.

A batch is named by (incarnation, Spark's task attempt id, number within the attempt), and its token consists of the
same three: no two attempts of a task ever share one, speculative or not (rule 2).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from photon.config.errors import PhotonError
from photon.idregistry.api import BATCH_BITS, Kind, token_of
from photon.objects.paths import ObjectPath, placed
from photon.outputs.log.format import FINAL_SUFFIX, PLAIN_SUFFIX, name_of

ATTEMPT_BITS = 24
NUMBER_BITS = BATCH_BITS - ATTEMPT_BITS
HOUR_NS = 3_600_000_000_000
HOUR_PREFIX = "hour="
SLOT_PREFIX = "backfill-"  # prefix of the slot names that backfills register under
STATE_DIRECTORY = ".backfill"
STAGED_SUFFIX = ".batch"
RESULT_SUFFIX = ".result"
ATTEMPT_WRITER = "attempt"  # writer of a result or part: the attempt itself, or else the incarnation that repeated it
DIRECTORY_OF_KIND = {
    Kind.JOINED: "joined",
    Kind.FILTERED: "filtered",
    Kind.UNMATCHED: "unmatched",
    Kind.REJECTED: "rejected",
}
KIND_OF_DIRECTORY = {directory: kind for kind, directory in DIRECTORY_OF_KIND.items()}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TooManyBatches(PhotonError):
    """A run has used up its tokens."""


class BatchName(NamedTuple):
    """One batch of one attempt of one task."""

    incarnation: int
    attempt: int
    number: int

    @property
    def token(self) -> int:
        """Raises TooManyBatches."""
        if self.attempt >> ATTEMPT_BITS or self.number >> NUMBER_BITS:
            raise TooManyBatches(
                f"task attempt {self.attempt}, batch {self.number}: a run has at most {1 << ATTEMPT_BITS} attempts "
                f"of {1 << NUMBER_BITS} batches; take a shorter range"
            )
        return token_of(self.incarnation, self.of_run)

    @property
    def of_run(self) -> int:
        """The batch's number, unique within its incarnation."""
        return self.attempt << NUMBER_BITS | self.number

    def __str__(self) -> str:
        return f"{self.incarnation:06x}-{self.attempt:06x}-{self.number:04x}"

    @classmethod
    def parse(cls, text: str) -> BatchName:
        """Raises ValueError."""
        incarnation, attempt, number = text.split("-")
        return cls(int(incarnation, 16), int(attempt, 16), int(number, 16))


class BackfillPaths(NamedTuple):
    """A backfill's file locations: all in the output directory, which driver and executors share."""

    output: Path

    @classmethod
    def at(cls, output: str | Path) -> BackfillPaths:
        """``output``: a URL, or a path. Raises UsageError."""
        return cls(placed(Path(), output))

    @property
    def state(self) -> Path:
        """Photon's own files, during the run and after it."""
        return self.output / STATE_DIRECTORY

    @property
    def staging(self) -> Path:
        """Unpublished records and the attempts' results; empty once everything is published and cleared."""
        return self.state / "staging"

    @property
    def url(self) -> bool:
        """True if the output is below a URL. Files there have the names that readers expect (``outputs/mirrored.py``)
        from the start."""
        return isinstance(self.output, ObjectPath)

    @property
    def manifest(self) -> Path:
        """The manifest of the visible files; below a URL it is also shown as MANIFEST."""
        return (self.state if self.url else self.output) / "manifest.json"

    @property
    def job(self) -> Path:
        """The job that this directory was created for."""
        return self.state / "job.json"

    @property
    def runs(self) -> Path:
        """Incarnations of all runs."""
        return self.state / "runs.json"

    @property
    def slot(self) -> Path:
        """The slot's identity file, as in ``joiner/slot/identity.py``."""
        return self.state / "slot.json"

    def staged(self, batch: BatchName) -> Path:
        """A batch's redo log."""
        return self.staging / f"{batch}{STAGED_SUFFIX}"

    def result(self, batch: BatchName, writer: str) -> Path:
        """The batch's outcome. Each writer has its own name, so two writers of one batch never touch the same
        temporary file."""
        return self.staging / f"{batch}.{writer}{RESULT_SUFFIX}"


def hour_directory(hour: int) -> str:
    """``hour=2026-11-20T09`` for whole hours since 1970, UTC."""
    return f"{HOUR_PREFIX}{_EPOCH + timedelta(hours=hour):%Y-%m-%dT%H}"


def object_name(kind: str, hour: int, batch: BatchName, writer: str) -> str:
    """Name of a part below a URL: a final file of a slot for each hour, run and writer. Cursors stay small, and no
    two writers ever touch the same object."""
    slot = f"{SLOT_PREFIX}{hour_directory(hour).removeprefix(HOUR_PREFIX)}-{batch.incarnation:06x}.{writer}"
    return name_of(kind, slot, batch.of_run).removesuffix(PLAIN_SUFFIX) + FINAL_SUFFIX
