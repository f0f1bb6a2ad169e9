"""Night after night into one directory: each costs only the new part, and still finds every error, wherever it is."""

from __future__ import annotations

import gzip
import json
import os
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from photon.adapters.configured import ConfiguredAdapter
from photon.config.disk import RealDisk
from photon.joiner.slot.finals import Finals
from photon.joiner.slot.place import DIRECTORIES
from photon.lab.demo.generator import Disorder, Generator
from photon.outputs.log.writer import LogWriter
from photon.spark import exports
from photon.spark.schemas import REGISTRY
from photon.spark.sources import PipelineSources, RegistrySource
from photon.spark.verify.job import within
from photon.spark.verify.reading import VerifyTask
from photon.spark.verify.run import VerifyOutcome, run
from tests.spark.small_deployment import FOREIGN, PRIMARY, SITES, Deployment, Written, _join, event_of, plant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = 20_600  # the first one, since 1970
US_PER_DAY = 86_400_000_000
FILES_A_DAY = 8
FILE_US = US_PER_DAY // FILES_A_DAY
MADE_AT = "2026-11-21T03:00:00.000000Z"


@dataclass
class Nights(Deployment):
    """Logs of some hours each, and output files of the same hours, which are final; ``lines`` are not written yet."""

    days: int = 0

    def write_outputs(self) -> None:
        groups: dict[tuple[str, str, int], list[bytes]] = {}
        for each in self.lines:
            groups.setdefault((each.site, each.kind, _file_of(each)), []).append(each.line)
        published: dict[str, dict[str, int]] = {site: {} for site in SITES}
        for (site, kind, number), lines in groups.items():
            output = self.root / site / "output"
            slot = "dispatcher" if kind == "rejected" else f"{site}-1"
            name = f"{kind}/{slot}-{number:06}.jsonl"
            (output / kind).mkdir(parents=True, exist_ok=True)
            while (output / (name + ".gz")).exists() or (output / name).exists():
                name = f"{kind}/{slot}-{int(name[-12:-6]) + 5000:06}.jsonl"
            (output / name).write_bytes(b"".join(lines))
            if kind == "rejected":
                published[site][name] = len(b"".join(lines))
            else:
                state = self.root / site / "state" / "slots" / slot
                finals = Finals(LogWriter(RealDisk(), output, state, slot, DIRECTORIES), compress=True)
                finals.load()
                finals.finish(name)
        for site in SITES:
            for slot, kind in ((f"{site}-1", "slots"), ("dispatcher", "exports")):
                state = self.root / site / "state" / kind / slot
                state.mkdir(parents=True, exist_ok=True)
                path = state / "durable.json"
                files = json.loads(path.read_bytes())["files"] if path.exists() else {}
                files |= published[site] if slot == "dispatcher" else {}
                path.write_text(json.dumps({"version": 1, "slot": slot, "files": files, "rolled": sorted(files)}))
        self.lines = []


def _file_of(written: Written) -> int:
    """The number of the log of its event, from 1 on."""
    try:
        return int(json.loads(written.line)["source"]["file"][2:5]) + 1
    except ValueError:  # torn
        return 900


def made(root: Path, seed: int, days: int, clicks: int) -> Nights:
    """``clicks`` a day. No output is written yet."""
    generator = Generator(
        seed, clicks=clicks * days, seconds=days * 86_400, queries_per_click=8, epoch_us=DAY * US_PER_DAY,
        disorder=Disorder(unmatched=0.05, duplicated=0.03, malformed=0.02),
    )  # fmt: skip
    rnd = random.Random(seed)
    lines = sorted(generator.lines(), key=lambda line: line.at_us)
    for site in SITES:
        files: dict[Path, bytearray] = {}
        for line in lines:
            if line.primary or rnd.random() < 0.97:
                side = "queries/q" if line.primary else "clicks/c"
                number = min(line.at_us // FILE_US, days * FILES_A_DAY - 1)
                files.setdefault(root / site / f"{side}-{number:03}.log", bytearray()).extend(line.data)
        for path, data in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            end_ns = (DAY * US_PER_DAY + (int(path.stem[2:]) + 1) * FILE_US) * 1000
            os.utime(path, ns=(end_ns, end_ns))
    nights = Nights(root, days=days)
    _join(nights, ConfiguredAdapter({"primary": PRIMARY, "foreign": FOREIGN, "where": "join.clicks"}), rnd)
    return nights


def lines_since(nights: Nights, day: int) -> list[Written]:
    """Removes the lines of this day and later ones, and their logs from the directories."""
    later = [each for each in nights.lines if _file_of(each) > day * FILES_A_DAY]
    nights.lines = [each for each in nights.lines if _file_of(each) <= day * FILES_A_DAY]
    for path in (path for site in SITES for path in (nights.root / site).glob("*/?-*.log")):
        if int(path.stem[2:]) >= day * FILES_A_DAY:
            path.rename(path.with_name("." + path.name))
    return later


def show_logs(nights: Nights) -> None:
    for path in (path for site in SITES for path in (nights.root / site).glob("*/.?-*.log")):
        path.rename(path.with_name(path.name[1:]))


class Verifier:
    """Runs one night of days 0 to ``days``."""

    def __init__(self, spark: SparkSession, nights: Nights, patch: pytest.MonkeyPatch) -> None:
        self.spark, self.nights = spark, nights
        self.export = nights.root / "export"
        self.export.mkdir()
        patch.setattr(exports, "registry", self._registry)
        # The dispatchers' read positions; empty: their states are elsewhere.
        self.places: list[tuple[str, str, int, str]] = []

    def _registry(self, *_: object, **__: object) -> Any:
        ids = self._shown
        return self.spark.createDataFrame([entry.row() for entry in ids], REGISTRY)

    def night(self, days: int, *, full: bool = False, name: str = "report") -> VerifyOutcome:
        nights = self.nights
        end_ns = (DAY + days) * US_PER_DAY * 1000
        self._shown = [each for each in nights.registry.values() if each.time_ns < end_ns]
        sources = PipelineSources(nights.source(), nights.logs("clicks"), nights.logs("queries"), nights.outputs())
        task = VerifyTask(sources, "f" * 32, DAY * 24, (DAY + days) * 24, MADE_AT, full=full,
                          registry=RegistrySource(directory=str(self.export)), places=self.places,
                          places_of=SITES if self.places else ())  # fmt: skip
        return run(self.spark, task, nights.root / name, print)

    def problems(self, name: str = "report") -> Counter[tuple[str, str]]:
        rows = ds.dataset(self.nights.root / name / "problems", format="parquet", partitioning="hive").to_table()
        return Counter((row["class"], (row["event_id"] or b"").decode()) for row in rows.to_pylist())


def read(found: VerifyOutcome) -> int:
    return sum(each["read"] for each in found.verdict.inputs)


def shuffled(events: Path, since: int) -> tuple[int, int]:
    """Bytes shuffled since this place in Spark's event log, and its current end."""
    data = b"".join(path.read_bytes() for path in sorted(events.rglob("events_*")))
    total = 0
    for line in data[since:].splitlines():
        if b'"SparkListenerTaskEnd"' in line:
            metrics = json.loads(line).get("Task Metrics") or {}
            total += metrics.get("Shuffle Write Metrics", {}).get("Shuffle Bytes Written", 0)
    return total, len(data)


def test_a_night_costs_its_day(
    spark: SparkSession, tmp_path: Path, spark_event_log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten days are known, and one is new."""
    known = made(tmp_path / "known", 1, days=11, clicks=480)
    later = lines_since(known, 10)
    known.write_outputs()
    verifier = Verifier(spark, known, monkeypatch)
    _, begin = shuffled(spark_event_log, 0)
    assert verifier.night(10).verdict.exit == 0
    show_logs(known)
    known.lines = later
    known.write_outputs()
    ten, begin = shuffled(spark_event_log, begin)
    found = verifier.night(11, name="another")
    night, begin = shuffled(spark_event_log, begin)
    assert (found.verdict.exit, len(found.verdict.reused)) == (0, 10), found.figures.examples
    assert found.verdict.counts["correct"] >= len(known.registry)

    alone = made(tmp_path / "alone", 2, days=1, clicks=480)
    alone.write_outputs()
    one = Verifier(spark, alone, monkeypatch).night(1)
    day, _ = shuffled(spark_event_log, begin)
    assert one.verdict.exit == 0
    print(f"read {read(found)} of {read(one)}, shuffled {night} of {day} and {ten}")
    print(found.verdict.inputs, one.verdict.inputs)
    assert read(found) <= 1.5 * read(one)
    assert night <= 1.5 * max(day, ten / 10)  # a day alone is few enough to be joined without a shuffle


def test_what_is_wrong_is_found_by_the_next_night(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the new day, and in days that were right before; externally invisible errors by a full run."""
    nights = made(tmp_path, 3, days=4, clicks=150)
    later = lines_since(nights, 3)
    right = [each for each in nights.lines if each.kind == "joined"]
    lacking = [each for each in nights.lines if each.kind == "unmatched"]
    nights.write_outputs()
    verifier = Verifier(spark, nights, monkeypatch)
    assert verifier.night(3).verdict.exit == 0

    show_logs(nights)
    nights.lines = later
    plant(nights, 5, each=1)
    planted = Counter(nights.expected)
    found = verifier.night(4, name="planted")
    assert verifier.problems("planted") == planted
    assert len(found.verdict.reused) == 3

    # A second record of an event of the first day; the primary event that one of the second day lacked.
    twice, late = right[3], json.loads(lacking[-1].line)
    nights.lines = [twice]
    nights.write_outputs()
    wanted = {"query_id": late["key"], "bid": 1}
    for site in SITES:
        (nights.root / site / "queries" / "late.log").write_text(json.dumps(wanted) + "\n")
    found = verifier.night(4, name="changed")
    lost = Counter({("duplicated", event_of(twice)): 1, ("primary-exists", late["event_id"]): 1})
    assert verifier.problems("changed") == planted + lost
    assert len(found.verdict.reused) == 1

    # A byte of the day that is still good has rotted, and nothing tells.
    (good,) = found.verdict.reused
    day = next(day for day in range(3) if good == _date(day))
    event = _rot(nights, day)
    verifier.night(4, name="rotten", full=True)
    assert verifier.problems("rotten") == planted + lost + Counter({("wrongly-joined", event): 1})


def _date(day: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp((DAY + day) * 86_400, UTC).strftime("%Y-%m-%d")


def _rot(nights: Nights, day: int) -> str:
    """A byte of the first record a final file of the day; times and size stay."""
    path = next((nights.root / SITES[0] / "output" / "joined").glob(f"*{day * FILES_A_DAY + 2:06}.jsonl.gz"))
    before = path.stat()
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    lines[0] = lines[0].replace(b'"bid":', b'"bie":', 1)
    path.write_bytes(gzip.compress(b"".join(lines)))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return str(json.loads(lines[0])["event_id"])


def test_many_hours_apart_are_one_condition(spark: SparkSession) -> None:
    hours = spark.range(2000).withColumnRenamed("id", "hour")
    assert hours.where(within([(hour, hour + 1) for hour in range(0, 2000, 2)])).count() == 1000
    assert hours.where(within([(hour, hour + 1) for hour in range(2000)])).count() == 2000
    assert hours.where(within([])).count() == 0
