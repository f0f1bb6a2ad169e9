"""The findings that a person has accepted: JSON Lines, kept with the other state that verifications carry over.

An acknowledgement applies to one finding as it was: the event, the class, the place in the output and the evidence. A
finding that differs in any of these is new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from hashlib import md5
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from photon.config.decoding import DECODE_ERRORS
from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.config.versioned_file import decoded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAME = "acknowledged.jsonl"
KEPT = ".verified"  # next to the report's directory, with a directory for each join
MARK = "acknowledged"
_TOLD = ("class", "datacentre", "output_file", "output_offset", "evidence")
_SEPARATOR = "\x1f"


class _Head(msgspec.Struct, frozen=True, tag_field="photon_acknowledged", tag=1):
    """The file's first line."""


class Acknowledged(msgspec.Struct, frozen=True):
    """An acknowledgement. ``finding``: the digest of the accepted finding; ``at``: its time, UTC."""

    finding: str
    kind: str
    event: str
    output: str
    who: str
    why: str
    at: str


class AcknowledgedDamaged(PhotonError):
    """The file of acknowledgements cannot be read. The message is one line."""


def kept_below(directory: Path, join: str) -> Path:
    """Returns the directory for the state that a join's verifications carry over. ``directory``: the reports'
    directory, or ``--work``."""
    return (directory / KEPT / join).absolute()


def read_acknowledged(disk: Disk, kept: Path) -> list[Acknowledged]:
    """Reads acknowledgements in the order in which they were written. Raises AcknowledgedDamaged, OSError."""
    path = kept / NAME
    if not disk.exists(path):
        return []
    lines = disk.read(path).split(b"\n")[:-1]  # a torn last line was never acknowledged
    try:
        if lines:
            decoded(lines[0], _Head)
        return [msgspec.json.decode(line, type=Acknowledged) for line in lines[1:]]
    except DECODE_ERRORS as error:
        raise AcknowledgedDamaged(f"{path}: is damaged ({error}); restore it, or remove it") from None


def add_acknowledged(disk: Disk, kept: Path, new: Sequence[Acknowledged]) -> None:
    """Adds acknowledgements durably. Raises OSError."""
    path = kept / NAME
    disk.make_dir(kept)
    if disk.exists(path) and (data := disk.read(path)) and not data.endswith(b"\n"):
        disk.truncate(path, data.rfind(b"\n") + 1)
    with closing(disk.append(path)) as file:
        head = [] if file.size else [msgspec.json.encode(_Head())]
        file.write(b"".join(line + b"\n" for line in [*head, *map(msgspec.json.encode, new)]))
        file.sync()
    disk.sync_dir(kept)


def finding_key(row: Mapping[str, Any]) -> str:
    """Returns the digest of a row of PROBLEM. A line without an id is named by its log and offset."""
    digest = row["digest"]
    event = digest.hex() if digest is not None else f"{row['log'] or ''}:{row['offset'] or 0}"
    told = [event, *("" if row[name] is None else str(row[name]) for name in _TOLD)]
    return md5(_SEPARATOR.join(told).encode(), usedforsecurity=False).hexdigest()


def marked(problems: DataFrame, known: Sequence[Acknowledged]) -> DataFrame:
    """Adds the column MARK: true if the finding is acknowledged in ``known``."""
    from pyspark.sql import functions as sql

    if not known:
        return problems.withColumn(MARK, sql.lit(False))
    place = sql.concat_ws(":", sql.coalesce("log", sql.lit("")), sql.coalesce("offset", sql.lit(0)))
    event = sql.coalesce(sql.lower(sql.hex("digest")), place)
    told = [event, *(sql.coalesce(sql.col(name).cast("string"), sql.lit("")) for name in _TOLD)]
    key = sql.md5(sql.concat_ws(_SEPARATOR, *told))
    keys = problems.sparkSession.createDataFrame([(each,) for each in {k.finding for k in known}], "known string")
    found = problems.withColumn("finding", key).join(
        sql.broadcast(keys), sql.col("finding") == sql.col("known"), "left"
    )
    return found.withColumn(MARK, sql.col("known").isNotNull()).drop("finding", "known")
