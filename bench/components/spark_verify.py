"""``python -m bench.components.spark_verify``: nightly verification of generated sets, and plain Spark's join.

Three runs a set, each in a process of its own on local[2]: ``plain`` is the join that a person writes with
DataFrames, ``fresh`` the verification's fresh join of the same raw logs, with the same result, and ``verify`` all of
a verification. Its output is built as a joiner builds it, so that no join has to run before. The registry's entries
come as Parquet: reading an export is not in the figures, all else is. Wall time says little on a busy machine:
compare CPU seconds, of Python and Java together, and the load beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.components.join import _resident, generate
from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import Joined, LogFile
from photon.adapters.envelope import Envelope
from photon.eventstore.api import PrimaryRecord
from photon.idregistry.api import Digester
from photon.joiner.api import ForeignEvent
from photon.joiner.verdicts import ABSENT_REASON
from photon.spark.sources import LogSource, OutputSource, PipelineSources, RegistrySource
from tests.lines import joined_lines, undone_lines
from tests.spark.small_deployment import FOREIGN, HOUR_NS, KEY, PRIMARY, Deployment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FROM_HOUR = 1_760_000_000 // 3600
TO_HOUR = FROM_HOUR + 24 * 14
AT_NS = 1_760_100_000_000_000_000
MADE_AT = "2026-11-21T03:00:00.000000Z"


def records(directory: Path) -> Iterator[tuple[LogFile, int, bytes]]:
    """(file, offset, record) of all logs."""
    for path in sorted(directory.iterdir()):
        file, offset = LogFile(path.name), 0
        with path.open("rb") as lines:
            for line in lines:
                yield file, offset, line.rstrip(b"\n")
                offset += len(line)


def prepare(root: Path, clicks: int) -> None:
    """Logs, outputs and entries of one datacentre."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    written, _ = generate(root / "logs", clicks)
    adapter = ConfiguredAdapter({"primary": PRIMARY, "foreign": FOREIGN, "where": "join.clicks"})
    wanted = {adapter.foreign_header(record, file).key for file, _, record in records(written.foreign)}
    primaries: dict[bytes, PrimaryRecord] = {}
    for file, offset, record in records(written.primary):
        key = adapter.primary_key(record, file)
        if key in wanted:
            primaries.setdefault(key, PrimaryRecord(record, file, offset))
    digester, envelope = Digester(KEY, "clicks"), Envelope()
    files = {kind: (root / "output" / kind / "east-1-000001.jsonl") for kind in ("joined", "unmatched")}
    for path in files.values():
        path.parent.mkdir(parents=True)
    rows: list[dict[str, Any]] = []
    seen: set[bytes] = set()
    with files["joined"].open("wb") as joined, files["unmatched"].open("wb") as unmatched:
        for number, (file, offset, record) in enumerate(records(written.foreign)):
            header = adapter.foreign_header(record, file)
            assert header.event_id is not None
            if header.event_id in seen:
                continue
            seen.add(header.event_id)
            digest, token = digester.digest(header.event_id), (1 << 40) | (number // 1000)
            event = ForeignEvent(header.event_id, digest, header.event_time_ns, header.key, record, file, offset, 0)
            found = primaries.get(header.key)
            if found is None:
                unmatched.writelines(undone_lines(envelope, [event], [ABSENT_REASON], token=token, at_ns=AT_NS))
            else:
                payload = adapter.join(record, file, found.record, found.file)
                assert isinstance(payload, Joined)
                joined.writelines(joined_lines(envelope, [event], [found], [payload], token=token, at_ns=AT_NS))
            rows.append({"digest": digest, "event_time_ns": header.event_time_ns, "token": f"{token:016x}",
                         "hour": header.event_time_ns // HOUR_NS, "kind": "unmatched" if found is None else "joined",
                         "shard": 1, "state": "cleared", "tag": 0, "generation": 0, "incarnation": 1,
                         "datacentre": "east", "slot": "east-1", "slot_retired": False})  # fmt: skip
    state = root / "state" / "slots" / "east-1"
    state.mkdir(parents=True)
    lengths = ",".join(f'"{kind}/{path.name}":{path.stat().st_size}' for kind, path in files.items())
    (state / "durable.json").write_text(f'{{"version":1,"slot":"east-1","files":{{{lengths}}},"rolled":[]}}')
    (root / "entries").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), root / "entries" / "entries.parquet")


def plain(spark: SparkSession, root: Path) -> list[Any]:
    """By hand: each click with the query of its key."""
    from pyspark.sql import functions as sql

    def logs(name: str, fields: str) -> DataFrame:
        lines = spark.read.text((root / "logs" / name).as_uri())
        return lines.select(sql.encode("value", "UTF-8").alias(name), sql.from_json("value", fields).alias("of"))

    clicks = logs("clicks", "click_id string, query_id string, time_us bigint").select("clicks", "of.*")
    queries = logs("queries", "query_id string").select("queries", "of.query_id").dropDuplicates(["query_id"])
    joined = clicks.join(queries, "query_id", "left").selectExpr(
        "encode(click_id, 'UTF-8') AS event_id", "time_us * 1000 AS event_time_ns", "xxhash64(clicks) AS foreign",
        "if(queries IS NULL, NULL, xxhash64(queries)) AS primary",
    )  # fmt: skip
    return _summed(joined)


def fresh(spark: SparkSession, root: Path) -> list[Any]:
    """As the verification does it."""
    from pyspark import StorageLevel

    from photon.spark import logs
    from photon.spark.key_filter import filter_of
    from photon.spark.verify.fresh import lines_of
    from photon.spark.verify.job import VerifyQuestion, pairs
    from photon.spark.verify.narrow_rows import NARROW

    sources = _sources(root)
    make_adapter = partial(ConfiguredAdapter, {"primary": PRIMARY, "foreign": FOREIGN, "where": "join.clicks"})
    question = VerifyQuestion(FROM_HOUR, TO_HOUR, ("east",), make_adapter)
    foreign = logs.foreign(spark, sources.join, sources.foreign).selectExpr("*", "false AS unread")
    foreign = foreign.persist(StorageLevel.DISK_ONLY)
    primary = logs.primary(spark, sources.join, sources.primary, filter_of(foreign))
    lines = pairs(primary, foreign, question).mapInArrow(lines_of(make_adapter, FROM_HOUR, TO_HOUR), NARROW)
    return _summed(lines)


def _summed(lines: DataFrame) -> list[Any]:
    found = lines.selectExpr(
        "count(*)", "count(primary)", "sum(CAST(xxhash64(event_id, event_time_ns, foreign, primary) AS DECIMAL(20)))"
    )
    return [str(value) for value in found.collect()[0]]


def verify(spark: SparkSession, root: Path) -> list[Any]:
    from photon.spark import exports, schemas
    from photon.spark.verify.reading import VerifyTask
    from photon.spark.verify.run import run

    def entries(spark: Any, source: RegistrySource, **_: Any) -> Any:
        found = spark.read.parquet(Path(source.directory).as_uri())
        return found.selectExpr(*(f"CAST({name} AS {kind}) AS {name}" for name, kind in
                                  (column.split() for column in schemas.REGISTRY.split(", "))))  # fmt: skip

    exports.registry = entries
    registry = RegistrySource(directory=str(root / "entries"))
    task = VerifyTask(_sources(root), "f" * 32, FROM_HOUR, TO_HOUR, MADE_AT, registry=registry)
    found = run(spark, task, root / "report", print)
    print(found.verdict.counts)
    if found.verdict.problems:
        raise SystemExit("there are problems")
    return []


PARTS = {"plain": plain, "fresh": fresh, "verify": verify}


def _sources(root: Path) -> PipelineSources:
    return PipelineSources(
        Deployment(root).source(),
        [LogSource(datacentre="east", directory=str(root / "logs" / "clicks"))],
        [LogSource(datacentre="east", directory=str(root / "logs" / "queries"))],
        [OutputSource(datacentre="east", output=str(root / "output"), state=str(root / "state"))],
    )


def child(root: Path, part: str) -> None:
    """Runs one part; the last line is its result, and CPU and wall seconds without the session's start."""
    from photon.spark.session import session

    spark = session("bench", master="local[2]", settings={"spark.ui.enabled": "false", "spark.local.dir": str(root)})
    began, cpu = time.perf_counter(), cpu_s(os.getpid())
    result = PARTS[part](spark, root)
    print(json.dumps([result, cpu_s(os.getpid()) - cpu, time.perf_counter() - began]))
    spark.stop()


def cpu_s(pid: int) -> float:
    """CPU seconds of a process, those below it, and those that they have waited for."""
    ticks, pending = 0, [pid]
    while pending:
        each = pending.pop()
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
            tasks = list(Path(f"/proc/{each}/task").iterdir())
        except (FileNotFoundError, ProcessLookupError):
            continue
        for task in tasks:  # Java's threads come and go
            with suppress(FileNotFoundError, ProcessLookupError):
                pending += [int(child) for child in (task / "children").read_text().split()]
    return ticks / os.sysconf("SC_CLK_TCK")


def measured(root: Path, part: str) -> tuple[list[Any], float]:
    """Result and CPU seconds without the session's start; prints a line of figures."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "bench.components.spark_verify", "--child", str(root), part]
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=said)
        peak, cpu = 0, 0.0
        while process.poll() is None:
            peak = max(peak, _resident(process.pid))
            cpu = max(cpu, cpu_s(process.pid))  # Java is waited for by nobody: its time is read while it lives
            time.sleep(0.2)
        wall = time.perf_counter() - began
        said.seek(0)
        lines = said.read().splitlines()
    if process.returncode:
        raise SystemExit(f"{part} ended with {process.returncode}: {lines}")
    result, own_cpu, own_wall = json.loads(lines[-1])
    print(f"{part:7} {wall:7.1f} s wall {cpu:7.1f} s CPU, without start {own_wall:7.1f} s wall {own_cpu:7.1f} s CPU  "
          f"{peak / 2**20:6,.0f} MiB peak  load {os.getloadavg()[0]:.1f}", flush=True)  # fmt: skip
    return result, own_cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clicks", type=int, nargs="+", default=[100_000])
    parser.add_argument("--parts", nargs="+", choices=tuple(PARTS), default=list(PARTS))
    parser.add_argument("--kept", type=Path, help="where sets are made, and kept for another run")
    parser.add_argument("--child", nargs=2)
    options = parser.parse_args()
    if options.child:
        return child(Path(options.child[0]), options.child[1])
    for clicks in options.clicks:
        root = Path(tempfile.mkdtemp(prefix="photon-verify-")) if options.kept is None else options.kept / str(clicks)
        try:
            if not (root / "entries").exists():
                prepare(root, clicks)
            print(f"{clicks:,} clicks")
            of = {part: measured(root, part) for part in options.parts}
            if of.keys() >= {"plain", "fresh"}:
                if of["plain"][0] != of["fresh"][0]:
                    raise SystemExit(f"plain Spark {of['plain'][0]}, the fresh join {of['fresh'][0]}")
                print(f"both {of['plain'][0]}; CPU of the fresh join to plain Spark's: "
                      f"{of['fresh'][1] / of['plain'][1]:.2f}")  # fmt: skip
        finally:
            shutil.rmtree(root if options.kept is None else root / "report", ignore_errors=True)
            shutil.rmtree(root / ".verified", ignore_errors=True)
    return None


if __name__ == "__main__":
    main()
