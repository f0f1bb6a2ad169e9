"""What a repair accounts for is no finding any more, and nothing else is left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from photon.config.disk import RealDisk
from photon.spark import schemas
from photon.spark.classes import Class
from photon.spark.recover.known import without_repaired
from photon.spark.recover.planning import Finding
from photon.spark.recover.repairs import ASKED, CHANGED, REOPENED, BatchName, Repairs
from photon.spark.recover.report import Damage
from tests.unit.spark.recover.rows import lost

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPORT = "0" * 32
FILE = "unmatched/east-1-000000.jsonl"
NAMES = [column.split()[0] for column in schemas.OUTPUT.split(", ")]


def row(number: int, kind: str = "unmatched", file: str = FILE, **more: object) -> tuple[object, ...]:
    values: dict[str, object] = {
        "datacentre": "east", "kind": kind, "file": file, "offset": 100 * number, "digest": lost(number).digest,
    }  # fmt: skip
    return tuple((values | more).get(name) for name in NAMES)


def torn(file: str, offset: int, line: bytes) -> tuple[object, ...]:
    return row(0, "joined", file, offset=offset, line=line, torn="why", digest=None)


def given_up(number: int) -> Finding:
    return replace(lost(number, Class.PRIMARY_EXISTS), output_file=FILE, output_offset=100 * number)


def test_lines_that_were_given_up_and_places_that_are_known(spark: SparkSession, tmp_path: Path) -> None:
    repairs = Repairs(RealDisk(), tmp_path)
    rows = [
        row(1), row(1, "joined", "joined/west-1-000000.jsonl"),  # given up, and joined since
        row(2), row(2, "joined", "joined/west-1-000000.jsonl"),  # the registry would not
        row(3), row(3, "joined", "joined/west-1-000000.jsonl"),  # no answer, and joined since
        row(4),  # no answer, and not joined
        row(5), row(5, offset=9_000),  # given up, and unmatched again
        row(6), row(6, "joined", FILE.replace("un", ""), offset=600),  # nobody asked
        torn("joined/gone.jsonl", 0, b""), torn("joined/gone.jsonl", 500, b""),
        torn("joined/rotten.jsonl", 700, b"noise"), torn("joined/rotten.jsonl", 800, b"more noise"),
        torn("joined/other.jsonl", 0, b""),
    ]  # fmt: skip
    output = spark.createDataFrame(rows, schemas.OUTPUT)
    assert without_repaired(spark, output, repairs).count() == len(rows)
    repairs.write(
        BatchName(REPORT, "unmatched", 0),
        [given_up(number) for number in (1, 2, 3, 4, 5)],
        [REOPENED, CHANGED, ASKED, ASKED, REOPENED],
        1,
    )
    damages = [Damage("east", "joined/gone.jsonl", 0), Damage("east", "joined/rotten.jsonl", 700)]
    repairs.note_damages(BatchName(REPORT, "damage", 0), damages, 1)
    left = without_repaired(spark, output, repairs)
    assert left.columns == NAMES
    numbers = {lost(number).digest: number for number in range(1, 7)}
    found = sorted(
        (numbers[bytes(each["digest"])] if each["digest"] else 0, each["kind"], each["file"], each["offset"])
        for each in left.collect()
    )
    assert found == [
        (0, "joined", "joined/other.jsonl", 0),
        (0, "joined", "joined/rotten.jsonl", 800),
        (1, "joined", "joined/west-1-000000.jsonl", 100),
        (2, "joined", "joined/west-1-000000.jsonl", 200),
        (2, "unmatched", FILE, 200),
        (3, "joined", "joined/west-1-000000.jsonl", 300),
        (4, "unmatched", FILE, 400),
        (5, "unmatched", FILE, 9_000),
        (6, "joined", "matched/east-1-000000.jsonl", 600),
        (6, "unmatched", FILE, 600),
    ]
