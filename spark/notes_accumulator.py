"""A Spark accumulator that brings the notes of tasks (``read_notes``) to the driver.

A slice that is read twice is noted twice; results computed from the notes do not depend on that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from pyspark.accumulators import AccumulatorParam

from photon.spark.read_notes import ReadNote

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import SparkSession


class _Concatenated(AccumulatorParam[list[bytes]]):
    def zero(self, value: list[bytes]) -> list[bytes]:
        return []

    def addInPlace(self, value1: list[bytes], value2: list[bytes]) -> list[bytes]:  # noqa: N802 Spark's name
        value1.extend(value2)
        return value1


class ReadNotes:
    """The driver's end. ``accumulator``: receives lists of encoded notes from tasks."""

    def __init__(self, spark: SparkSession) -> None:
        self.accumulator: Accumulator[list[bytes]] = spark.sparkContext.accumulator([], _Concatenated())

    def all(self) -> list[ReadNote]:
        """Returns one note per slice."""
        found = {}
        for data in self.accumulator.value:
            note = msgspec.msgpack.decode(data, type=ReadNote)
            found[note.what, note.datacentre, note.identity, note.begin] = note
        return list(found.values())
