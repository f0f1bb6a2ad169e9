"""A backfill's output below a URL: read as other outputs there are, shown last, by one run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from photon.config.clock import SystemClock
from photon.config.errors import UsageError
from photon.idregistry.api import Slot
from photon.library import Output
from photon.objects.api import ObjectChanged
from photon.objects.disk import UrlDisk
from photon.spark.backfill.batch_names import BackfillPaths, BatchName
from photon.spark.backfill.driver import BackfillFailed, Driver
from photon.spark.backfill.manifest import (
    MANIFEST_VERSION,
    BackfillFile,
    Manifest,
    begun,
    known_backfills,
    remember,
    write,
)
from photon.spark.backfill.parts import PartWriter, encoder
from photon.spark.backfill.run import alone
from photon.spark.backfill.staging import Part
from photon.spark.verify.reading import backfilled
from tests.unit.objects.conftest import bucket  # noqa: F401
from tests.unit.objects.fakes import MemoryBucket
from tests.unit.spark.backfill.rows import rows_of
from tests.unit.spark.backfill.test_files import JOB, NAME, events

REGISTRY: Any = None
"""Nothing here asks it."""


@pytest.fixture
def places(bucket: MemoryBucket, request: pytest.FixtureRequest) -> BackfillPaths:  # noqa: F811
    return BackfillPaths.at(f"s3://{request.node.name}/november")


def driver_of(places: BackfillPaths, disk: UrlDisk) -> Driver:
    async def pause(seconds: float) -> None:
        return None

    driver = Driver(
        disk, places, Slot("s", "d"), REGISTRY, SystemClock(), encode=encoder("jsonl"), suffix="jsonl",
        draw_nonce=bytes, pause=pause,
    )  # fmt: skip
    driver.incarnations = [3]
    return driver


def written(disk: UrlDisk, places: BackfillPaths, writer: str, batch: BatchName = NAME) -> list[Part]:
    rows = rows_of(events(5), batch.token)
    return PartWriter(disk, places, writer, encoder("jsonl"), "jsonl").write(str(batch), rows, np.arange(5))


def manifest_of(parts: list[Part]) -> Manifest:
    files = [
        BackfillFile(
            each.name, each.kind, each.hour, each.records, each.bytes, each.crc32, str(NAME), each.uncompressed_bytes
        )
        for each in parts
    ]
    return Manifest(MANIFEST_VERSION, "s", 3, files, {})


def test_what_is_shown_is_read_and_what_was_discarded_goes(places: BackfillPaths, tmp_path: Path) -> None:
    disk = UrlDisk()
    driver = driver_of(places, disk)
    begun(disk, places.job, JOB)
    remember(disk, tmp_path, places.output, JOB)
    parts, discarded = written(disk, places, "attempt"), written(disk, places, "000003")
    assert not {each.name for each in parts} & {each.name for each in discarded}
    with pytest.raises(UsageError, match=r"has no manifest\.jsonl"):
        Output.of_join(str(places.output))
    manifest = manifest_of(parts)
    write(disk, places.manifest, manifest)
    driver.show(manifest)
    driver.show(manifest)  # killed behind it, and run again
    asyncio.run(driver.tidy(manifest))
    found = list(Output.of_join(str(places.output)).batches(kinds=["joined", "filtered", "unmatched", "rejected"]))
    lines = sorted(b"".join(batch.data for batch in found).splitlines(keepends=True))
    assert lines == sorted(rows_of(events(5), NAME.token).lines)
    assert not any(disk.exists(places.output / each.name) for each in discarded)
    [known] = known_backfills(disk, tmp_path, JOB.join, JOB.from_ns, JOB.to_ns)
    assert known.path == places.output
    assert sum(each.end for each in backfilled(places.output, JOB.join)) == sum(map(len, lines))


def test_a_prefix_shows_one_output(places: BackfillPaths, bucket: MemoryBucket) -> None:  # noqa: F811
    driver_of(places, disk := UrlDisk()).show(manifest_of(written(disk, places, "attempt")))
    disk = UrlDisk()
    with pytest.raises(ObjectChanged):
        driver_of(places, disk).show(manifest_of(written(disk, places, "attempt", BatchName(4, 1, 1))))
    with pytest.raises(UsageError, match="holds other objects already"):
        begun(UrlDisk(), places.job, JOB)


def test_who_is_overtaken_ends_with_one_line(places: BackfillPaths) -> None:
    disk, other = UrlDisk(), UrlDisk()
    begun(disk, places.job, JOB)
    other.read(places.job)
    other.replace(places.job, b"another")
    with pytest.raises(BackfillFailed, match="another photon spark backfill works on it"), alone(places):
        disk.replace(places.job, b"mine")
