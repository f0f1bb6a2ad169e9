"""``python -m bench.components.spark_verify``: nightly verification of generated sets, start-up of Spark included.

Each set is verified in a process of its own on local[2]; its output is built as a joiner builds it, so that no join
has to run before. The registry's entries come as Parquet: reading an export is not in the figures, all else is. Wall
time says little on a busy machine: compare CPU seconds, of Python and Java together, and the load beside them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.components.join import _resident, generate
from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import Joined, LogFile
from photon.adapters.envelope import Envelope
from photon.eventstore.api import PrimaryRecord
from photon.idregistry.api import Digester
from photon.joiner.api import ForeignEvent
from photon.joiner.verdicts import ABSENT_REASON
from photon.spark.sources import OutputSource, PipelineSources, RegistrySource
from tests.lines import joined_lines, undone_lines
from tests.spark.small_deployment import FOREIGN, HOUR_NS, KEY, PRIMARY, Deployment, LogSource

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


def child(root: Path) -> None:
    """Verifies one set; the parent measures."""
    from photon.spark import exports, schemas
    from photon.spark.session import session
    from photon.spark.verify.reading import VerifyTask
    from photon.spark.verify.run import run

    def entries(spark: Any, source: RegistrySource) -> Any:
        found = spark.read.parquet(Path(source.directory).as_uri())
        return found.selectExpr(*(f"CAST({name} AS {kind}) AS {name}" for name, kind in
                                  (column.split() for column in schemas.REGISTRY.split(", "))))  # fmt: skip

    exports.registry = entries  # type: ignore[assignment]
    sources = PipelineSources(
        Deployment(root).source(),
        [LogSource(datacentre="east", directory=str(root / "logs" / "clicks"))],
        [LogSource(datacentre="east", directory=str(root / "logs" / "queries"))],
        [OutputSource(datacentre="east", output=str(root / "output"), state=str(root / "state"))],
    )
    begin = 1_760_000_000 // 3600
    task = VerifyTask(
        sources, "f" * 32, begin, begin + 24 * 14, MADE_AT, registry=RegistrySource(directory=str(root / "entries"))
    )
    spark = session("bench", master="local[2]", settings={"spark.ui.enabled": "false", "spark.local.dir": str(root)})
    found = run(spark, task, root / "report", print)
    print(found.verdict.counts)
    if found.verdict.problems:
        raise SystemExit("there are problems")
    spark.stop()


def _cpu_s(pid: int) -> float:
    """CPU seconds of a process, those below it, and those that they have waited for."""
    ticks, pending = 0, [pid]
    while pending:
        each = pending.pop()
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            for task in Path(f"/proc/{each}/task").iterdir():
                pending += [int(child) for child in (task / "children").read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def measured(root: Path, clicks: int) -> None:
    """Prints a line of figures."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "bench.components.spark_verify", "--child", str(root)])
    peak, cpu = 0, 0.0
    while process.poll() is None:
        peak = max(peak, _resident(process.pid))
        cpu = max(cpu, _cpu_s(process.pid))  # Java is waited for by nobody: its time is read while it lives
        time.sleep(0.2)
    wall = time.perf_counter() - began
    if process.returncode:
        raise SystemExit(f"it ended with {process.returncode}")
    load = os.getloadavg()[0]
    print(f"{clicks:9,} clicks  {wall:7.1f} s wall  {cpu:7.1f} s CPU  {peak / 2**20:6,.0f} MiB peak  load {load:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clicks", type=int, nargs="+", default=[100_000])
    parser.add_argument("--child", type=Path)
    options = parser.parse_args()
    if options.child:
        return child(options.child)
    for clicks in options.clicks:
        root = Path(tempfile.mkdtemp(prefix="photon-verify-"))
        try:
            prepare(root, clicks)
            measured(root, clicks)
        finally:
            shutil.rmtree(root, ignore_errors=True)
    return None


if __name__ == "__main__":
    main()
