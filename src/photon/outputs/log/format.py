"""Declares the names of a published log's files, and the small files next to them, for writers and readers.

This is the only code that verifier and joiner share.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec

DURABLE_NAME = "durable.json"
MANIFEST_NAME = "manifest.jsonl"
RETIRED_NAME = "retired.json"
COPY_NAME = "copy.json"  # in a copy; a copy's files are in OUTPUT_NAME in the same directory
OUTPUT_NAME = "output"
DAMAGED_NAME = "damaged.json"
PLAIN_SUFFIX = ".jsonl"
FINAL_SUFFIX = ".jsonl.gz"


class Durable(msgspec.Struct, tag_field="version", tag=1):
    """``durable.json``: the lengths that readers, verifier and clears may rely on."""

    slot: str
    files: dict[str, int]  # file relative to the output root -> its durable and witnessed length in bytes
    rolled: list[str] = []  # those files that no longer grow
    # Durable lengths, for the slot itself, if they differ from ``files``; ``closed`` is to them what ``rolled`` is to
    # ``files``.
    durable: dict[str, int] | None = None
    closed: list[str] | None = None
    # Files that readers see beyond their copied part -> the copy's length: no more may be cleared (rule 14).
    clearable: dict[str, int] | None = None
    # The redo log's durable end at that time: a segment and its bytes. A log that ends before that is an older one.
    log: tuple[int, int] | None = None  # None means that there is no log


class ManifestEntry(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="version", tag=1):
    """A line of ``manifest.jsonl``, for one final file. In a copy it has only lengths."""

    file: str  # relative to the output root: ``joined/SLOT-000003.jsonl``, or that with ``.gz`` if it is compressed
    uncompressed_bytes: int
    bytes: int = 0  # as the file was stored
    records: int = 0
    crc32: int = 0  # of the uncompressed bytes
    first_ns: int | None = None  # event times; None means a record has none
    last_ns: int | None = None

    @property
    def name(self) -> str:
        """The name of the plain form, even if the file is compressed."""
        return self.file.removesuffix(".gz")

    @property
    def compressed(self) -> bool:
        return self.file.endswith(".gz")


class Retired(msgspec.Struct, frozen=True, tag_field="version", tag=1):
    """``retired.json``: see ``retired_bytes``."""

    slot: str
    files: dict[str, int] | None = None
    output: str | None = None


class DamagedRange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Published bytes that are permanently lost: their events were given back."""

    file: str  # plain name, as ``OutputFile.name``
    start: int  # uncompressed bytes
    end: int
    why: str
    at: str  # when it was marked: UTC, ISO 8601


class Damaged(msgspec.Struct, frozen=True, tag_field="version", tag=1):
    """``damaged.json``: published bytes that readers skip."""

    slot: str
    ranges: tuple[DamagedRange, ...]


class Cleared(msgspec.Struct, frozen=True, tag_field="version", tag=1):
    """``cleared.json``: the verifier's progress."""

    files: dict[str, int]  # file -> number of its first bytes whose ids are all cleared (or counted in ``trouble``)
    # File -> lines that are unreadable, or whose token does not own their id; such a file must not become final.
    trouble: dict[str, int] = {}


class Redone(msgspec.Struct, frozen=True, tag_field="version", tag=1):
    """``redone.json``: the incarnations of a slot that have nothing left in its redo log (rule 13; paper, section
    3.3.3).

    The lock's holder writes it once every batch of its predecessors, including ids carried over, has left the log by
    rule 4: dropped, or in synced output. If a reader of all of ``files`` finds an id still owned by one of these
    incarnations, it may give the id up, as its record exists nowhere. Nothing is written under their tokens after
    that, so greater lengths would only delay the reader.
    """

    slot: str
    upto: int  # the newest of these incarnations
    files: dict[str, int]  # output file not yet final, relative to the output root -> its durable bytes


# -- names -----------------------------------------------------------------------------------------------------------
def name_of(kind: str, slot: str, number: int, suffix: str = PLAIN_SUFFIX) -> str:
    """Returns the name of an output file, relative to the output."""
    return f"{kind}/{slot}-{number:06d}{suffix}"


def gzip_name(name: str) -> str:
    """Returns the name of a file's compressed form. ``name``: the plain name, with or without its directory."""
    return name.removesuffix(PLAIN_SUFFIX) + FINAL_SUFFIX


def slot_of(name: str) -> str:
    """Returns the slot in an output file's name, plain or compressed."""
    return name.rpartition("/")[2].rpartition("-")[0]


def numbers_of(names: Iterable[str], slot: str, suffix: str = PLAIN_SUFFIX) -> list[int]:
    """Returns the numbers of a slot's files, in order. ``names``: names in the directory of a kind."""
    own = (name.removesuffix(suffix) for name in names if name.startswith(f"{slot}-") and name.endswith(suffix))
    numbers = (name.removeprefix(f"{slot}-") for name in own)
    return sorted(int(number) for number in numbers if number.isdigit())


def number_of(name: str) -> int:
    """Returns the number in an output file's plain name."""
    return int(name.removesuffix(PLAIN_SUFFIX).rpartition("-")[2])


# -- contents --------------------------------------------------------------------------------------------------------
def retired_bytes(slot: str, files: dict[str, int] | None = None, output: Path | None = None) -> bytes:
    """Returns the content of ``retired.json``, which is written before anything is reopened (protocol rule 14).

    ``files``: all files of a sealed copy, as plain name -> uncompressed length; readers continue in them at their old
    offsets. ``None`` means that there is no copy: readers read nothing more of the slot, regardless of position.
    ``output``: the directory of the copy's files; ``None`` means the pipeline's own output.
    """
    return msgspec.json.encode(Retired(slot, files, None if output is None else str(output)))


def damaged_bytes(slot: str, ranges: Collection[DamagedRange]) -> bytes:
    """Returns the content of ``damaged.json``."""
    return msgspec.json.encode(Damaged(slot, tuple(ranges)))
