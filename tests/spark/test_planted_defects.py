"""Every kind of defect at once in a joined day: each is named with its place, repaired or accepted, and read over."""

from __future__ import annotations

import asyncio
import html
import json
import re
import shutil
import subprocess
import sys
import zlib
from collections import Counter, defaultdict
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.dataset as ds
import pytest

from photon.cli.heads import Deployed
from photon.cli.spark.verify import _export
from photon.config.loader import load
from photon.fleet.access import output_here
from photon.fleet.ledger import accounts, read_ledger
from photon.lab.demo.deployment import DemoDeployment, Shape
from photon.library import Output
from photon.operations.spark_verify import Wish, nightly
from photon.spark import register
from photon.spark.verify.causes import Cause
from photon.spark.verify.run import VerifyOutcome
from tests.integration.commands import photon, soon
from tests.integration.supervised import only_registry, supervised
from tests.spark.planted_day import BLOCKS, HOURS, LOGS, SITES, Day, Effect, Line
from tests.spark.planted_rows import FILES, ROWS, stale_manifest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLICKS = 1_200
# The order of the blocks. The newest files stay as they are: a joiner does not start if they are shorter than the
# registry has witnessed.
FED = (*(block for block in range(BLOCKS) if block != LOGS), LOGS)
LACKING = 4  # clicks of each hour whose queries are missing
_EVENT = re.compile(rb'(?m)^.*?"event_id" ?: ?"([^"]+)"')
_OUTPUT = """
[output]
roll_age = "2s"
compress = "gzip"
"""


class Pipelines:
    """Two datacentres that have joined a day, and its nights."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.made = DemoDeployment(root, Shape(joiners=1, round_trip_s=None, together=True))
        self.file = self.made.deployment.file
        self.file.write_text(self.file.read_text() + _OUTPUT)
        self.settings = load(self.file, environment={})
        self.day = datetime.now(UTC).date() - timedelta(days=1)
        self.logs, self.events = _logs(root, self.day)

    async def join(self) -> None:
        """One block of hours after the other, so that each has its own file. The first half of each log is joined
        in one datacentre before the other one has any of it, so that both have a share, however slow one of them is.
        """
        east, west = SITES
        fed, read = 0, Counter[str]()
        for block in FED:
            hours = slice(block * HOURS, (block + 1) * HOURS)
            for log in self.logs["queries"][hours]:
                for site in SITES:
                    shutil.copy(log, self.root / site / "queries")
            logs = {log.name: log.read_bytes().splitlines(keepends=True) for log in self.logs["clicks"][hours]}
            for site, begin, end in ((east, 0.0, 0.5), (west, 0.0, 1.0), (east, 0.5, 1.0)):
                for name, lines in logs.items():
                    part = lines[int(begin * len(lines)) : int(end * len(lines))]
                    with (self.root / site / "clicks" / name).open("ab") as file:
                        file.writelines(part)
                    read[site] += len(part)
                await self._has_read(site, read[site])
            fed += sum(self.events[hours])
            await soon(lambda fed=fed: len(set(self.final_events())) == fed, 60, f"block {block} is final")

    async def _has_read(self, site: str, lines: int) -> None:
        def settled() -> bool:
            ledger = read_ledger(self.root / site / "state")
            return (ledger["read"], ledger["pending"]) == (lines, 0)

        await soon(settled, 60, f"{site} has read {lines} lines")

    def reread(self) -> Counter[int]:
        """Hour since 1970 -> events that any datacentre has read again."""
        found = Counter[int]()
        for each in accounts(self.settings, self.root):
            for hour, line in each.whole.hours.items() if each.whole is not None else ():
                found[hour] += line.apart()["reread"]
        return found

    def final_events(self) -> list[str]:
        """Events of each whole line in a final file that can be decompressed."""
        found = []
        for path in self.root.glob("*/output/*/*-1-*.jsonl.gz"):
            whole = zlib.decompressobj(31).decompress(path.read_bytes())
            found += _EVENT.findall(whole[: whole.rfind(b"\n") + 1])
        return [each.decode() for each in found]

    async def verify(self, name: str) -> VerifyOutcome:
        begin = int(datetime.combine(self.day, datetime.min.time(), UTC).timestamp()) * 10**9
        wish = Wish(self.root / "reports" / name, begin, begin + 86_400 * 10**9, config=self.file)
        export = partial(_export, Deployed(self.file, (), None, "table"))
        return await asyncio.to_thread(nightly, self.settings, self.root, wish, export, print)

    def problems(self, name: str) -> list[dict[str, Any]]:
        rows = ds.dataset(self.root / "reports" / name / "problems", format="parquet", partitioning="hive").to_table()
        return [row | {"event": (row["event_id"] or b"").decode("utf-8", "replace")} for row in rows.to_pylist()]


def _logs(root: Path, day: date) -> tuple[dict[str, list[Path]], list[int]]:
    """Logs by side, an hour each, and the number of events of each hour. The queries of some clicks are left out."""
    done = photon("feed", "day", "--into", root / "feed", "--day", str(day), "--clicks", str(CLICKS))
    assert done.code == 0, done.err
    logs = {side: sorted((root / "feed" / side).glob("*.log")) for side in ("queries", "clicks")}
    clicks = [[json.loads(line) for line in path.read_bytes().splitlines()] for path in logs["clicks"]]
    lacking = {each["query_id"] for hour in clicks for each in hour[5 :: len(hour) // LACKING]}
    for path in logs["queries"]:
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(line for line in lines if json.loads(line)["query_id"] not in lacking))
    return logs, [len({each["click_id"] for each in hour}) for hour in clicks]


def hour_of(event: str) -> int:
    """Hours since 1970: an event's id ends with its time in us."""
    return int(event.rpartition(":")[2]) // 3_600_000_000


@pytest.mark.timeout(900)
async def test_every_kind_of_defect_is_found_repaired_or_accepted(spark: SparkSession, tmp_path: Path) -> None:
    here = Pipelines(tmp_path)
    services = here.made.deployment.services()
    async with supervised(here.made.deployment) as supervisor:
        await supervisor.start(services)
        await here.join()
        await only_registry(supervisor, here.made.deployment)
        day = Day(tmp_path)
        kept = tmp_path / "kept"
        shutil.copytree(tmp_path / "west" / "clicks", kept)
        shutil.copy(day.manifest("west"), kept)
        effects = {row.name: row.plant(day) for row in ROWS}
        day.write()
        effects |= {row.name: row.plant(day) for row in FILES}
        found, rows = await here.verify("planted"), here.problems("planted")
        _check(found, rows, day, effects)
        _check_words(found, rows, here, day, effects)

        _put_back(here, kept, effects)
        for name in (each.name for each in services if not each.name.startswith("registry")):
            supervisor.release(name)
        await supervisor.ready(60)
        repaired = [each for row in [*ROWS, *FILES] if row.repaired for each in effects.pop(row.name).found]
        for row in FILES:
            if effects.get(row.name) and row.put_back:
                del effects[row.name]
        report = ("--report", tmp_path / "reports" / "planted", "--config", here.file)
        done = await asyncio.to_thread(photon, "spark", "recover", *report, "--yes", "-o", "json")
        assert (done.code, done.json["attention"]) == (3, {"unmarked": 1}), "the file that was compressed again"
        lost = {each.event for each in repaired if each.kind.startswith("lost")}
        await soon(lambda: lost <= set(here.final_events()), 90, "what was lost is joined again")
        back = Counter(hour_of(each.event) for each in repaired if each.kind == "lost-cleared")
        await soon(lambda: back <= here.reread(), 60, "all is counted, in each hour")
        await only_registry(supervisor, here.made.deployment)
        _check(await here.verify("repaired"), here.problems("repaired"), day, effects)

        accepted = ("--who", "ana", "--why", "planted")
        for kind in sorted({each.kind for effect in effects.values() for each in effect.found}):
            done = photon("spark", "acknowledge", tmp_path / "reports" / "repaired", "--all-of", kind, *accepted)
            assert done.code == 0, done.err
        last = (await here.verify("accepted")).verdict
        assert (last.exit, last.problems) == (0, 0)
        _every_reader_reads_on(spark, here)


def _every_reader_reads_on(spark: SparkSession, here: Pipelines) -> None:
    """All of them read the same records."""
    register(spark)
    frame = spark.read.format("photon").option("path", str(here.file))
    by_site = {row["datacentre"]: row["count"] for row in frame.load().groupBy("datacentre").count().collect()}
    for site in SITES:
        where = ("--config", here.file, "--datacentre", site)
        read = [sys.executable, "-m", "photon", "read", *map(str, where)]  # of bytes that are no UTF-8, too
        lines = subprocess.run(read, check=True, timeout=120, capture_output=True).stdout.count(b"\n")
        place = output_here(here.settings, here.root, site)
        assert sum(batch.data.count(b"\n") for batch in Output(place).batches()) == lines
        sunk = photon("sink", "parquet", *where, "--into", here.root / f"sink-{site}", "-o", "json")
        assert sunk.code == 0, sunk.err
        assert sunk.json["records"] == lines
        assert by_site[site] == lines


def _put_back(here: Pipelines, kept: Path, effects: dict[str, Effect]) -> None:
    """Repairs everything that no repair of events fixes: by the commands of the report, or from a copy."""
    verdict = json.loads((here.root / "reports" / "planted" / "verdict.json").read_bytes())
    run = {effects[name].cause[:2] for name in (".gz with a wrong checksum", "file that no manifest names")}  # type: ignore[index]
    for each in verdict["causes"]:
        if (each["kind"], each["what"]) in run:
            subprocess.run(["bash", "-c", each["command"]], check=True, timeout=60)
    manifest = here.root / "west" / "state" / "slots" / "west-1" / "manifest.jsonl"
    (name,) = (effects[row.name].cause[1] for row in FILES if row.plant is stale_manifest)  # type: ignore[index]
    entries = (kept / "manifest.jsonl").read_bytes().splitlines(keepends=True)
    with manifest.open("ab") as file:
        file.writelines(each for each in entries if name.encode() in each)
    (packed,) = (here.root / "west" / "clicks").glob("*.log.gz")
    packed.unlink()
    shutil.copy2(kept / packed.name.removesuffix(".gz"), packed.parent)


def _check(found: VerifyOutcome, rows: list[dict[str, Any]], day: Day, effects: dict[str, Effect]) -> None:
    """All effects of the defects, and nothing else."""
    wanted = Counter((each.kind, each.event) for effect in effects.values() for each in effect.found)
    told = Counter((row["class"], row["event"]) for row in rows)
    by_row: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        by_row.setdefault((row["class"], row["event"]), []).append(row)
    wrong = {}
    for name, effect in effects.items():
        for each in effect.found:
            own = by_row.get((each.kind, each.event), [])
            if not any(all(_is_told(day, place, row) for place in each.places) for row in own):
                wrong.setdefault(name, []).append(
                    (each.kind, each.event, [row for row in rows if row["event"] == each.event])
                )
    assert not wrong, json.dumps(wrong, indent=1, default=str)
    assert told == wanted, (told - wanted, wanted - told)
    causes = Counter[tuple[str, str]]()
    for cause in found.figures.causes:
        causes[str(cause.kind), cause.what] += cause.events
    assert causes == {effect.cause[:2]: effect.cause[2] for effect in effects.values() if effect.cause}
    assert found.figures.unexplained() == []


def _check_words(
    found: VerifyOutcome, rows: list[dict[str, Any]], here: Pipelines, day: Day, effects: dict[str, Effect]
) -> None:
    """What each cause says, and that its findings name it."""
    causes = {each.what: each for each in reversed(found.figures.causes)}

    def of(name: str) -> Cause:
        cause = effects[name].cause
        assert cause is not None
        return causes[cause[1]]

    copies, records = len(day.of("east", "joined", 7)), len(day.of("west", "unmatched", 7))
    for name, words in (
        (".gz with a wrong checksum", "checksum wrong, but all "),
        ("file that no manifest names", f"{copies} lines: {copies} are copies of records in the output, 0 "),
        ("manifest without its last entry", f"{records} lines: 0 are copies of records in the output, {records} "),
        ("foreign log deleted everywhere", "was read by the dispatcher and is gone in every"),
        ("foreign log deleted in one datacentre", "was read by the dispatcher and is gone in east only"),
        ("foreign .gz with a wrong checksum", "checksum wrong, all its lines are whole"),
    ):
        assert words in of(name).say
    for side in ("foreign", "primary"):
        gone = of(f"{side} log deleted everywhere")
        assert gone.say.startswith(f"{side} log {gone.what} ")
        assert gone.datacentre == "east, west"
    alone = {"file that no manifest names", "manifest without its last entry", "foreign .gz with a wrong checksum"}
    assert {each.what for each in found.figures.causes if each.alone} == {of(name).what for name in alone}
    assert (found.verdict.exit, found.verdict.problems) == (3, len(rows) + len(alone))
    said = json.loads((here.root / "reports" / "planted" / "verdict.json").read_bytes())["causes"]
    assert said == msgspec.to_builtins(found.figures.causes)
    shown = html.unescape((here.root / "reports" / "planted" / "report.html").read_text())
    assert all(each["command"] and each["command"] in shown for each in said)

    evidence = {row["event"]: json.loads(row["evidence"]) for row in rows if row["event"]}
    for name, member in (("member added", "members"), ("another reason", "reason")):
        assert evidence[effects[name].found[0].event]["fields"] == [member]
    by_cause = defaultdict[str | None, set[str]](set)
    for row in rows:
        if row["class"] == "lost-cleared":
            by_cause[evidence[row["event"]].get("cause")].add(row["event"])
    files = [effects[row.name] for row in FILES if str(effects[row.name].cause).startswith("('file-")]
    lost = [{each.event for each in effect.found if each.kind == "lost-cleared"} for effect in files]
    assert sorted(map(sorted, by_cause.values())) == sorted(map(sorted, [by_cause[None], *filter(None, lost)]))


def _is_told(day: Day, place: Line | str, row: dict[str, Any]) -> bool:
    """An event that stands in its log several times may be told by any of its lines."""
    text = day.place(place) if isinstance(place, Line) else place
    log = f"{row['log']}:{row['offset']}"
    own = (f"{row['output_file']}:{row['output_offset']}", log)
    return text in own or text in row["evidence"].replace(".gz:", ":") or day.same_click(text, log)
