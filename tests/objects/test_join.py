"""Joins of logs in object storage, by the real command against a real server, with every kind of fault between."""

from __future__ import annotations

import asyncio
import gzip
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import orjson
import pytest
import zstandard

from photon.config.metrics import metrics_pb2 as pb
from photon.config.metrics.families import decode, text_of
from photon.config.metrics.service import METRICS_SERVICE
from photon.config.tls import open_channel
from photon.lab.demo.check import check, records
from photon.supervision.ports import free_ports
from tests.integration.commands import interrupt, photon, running, until
from tests.integration.join_logs import CONFIG, Logs
from tests.objects.server import Site

WITHIN_S = 60.0


class ObjectLogs(Logs):
    """The lines of ``Logs`` as objects: plain ones without a last line end, gzip, zstd; some begin alike."""

    def __init__(self, base: Path, site: Site, **options: int) -> None:
        super().__init__(base, **options)  # type: ignore[arg-type]
        self._site = site
        self.primary, self.foreign = Path(), Path()
        self._number = 0

    def arguments(self, *more: str | Path, config: bool = True) -> list[str | Path]:
        given = super().arguments(*more, config=config)
        given[given.index("--primary") + 1] = f"{self._site.url}/queries"
        given[given.index("--foreign") + 1] = f"{self._site.url}/clicks"
        return given

    def objects(self, pieces: int) -> Iterator[tuple[str, bytes]]:
        """(key, content) of all lines, cut into so many objects a side."""
        for side, name in ((True, "queries"), (False, "clicks")):
            lines = [line.data for line in self.lines if line.primary is side]
            for number in range(pieces):
                part = b"".join(lines[number * len(lines) // pieces : (number + 1) * len(lines) // pieces])
                # as if rolled: of files on a disk log.1 and log.2 would be one log's
                yield _packed(f"{name}/h{number % 3}/log.{number}", part, number)
        self._written = len(self.lines)

    def write(self, share: float = 1.0) -> None:
        """All was put by the test."""


def _packed(key: str, data: bytes, number: int) -> tuple[str, bytes]:
    if number % 3 == 1:
        return f"{key}.gz", gzip.compress(data)
    if number % 3 == 2:
        return f"{key}.zst", zstandard.compress(data)
    return key, data.removesuffix(b"\n")


def test_once_through_faults(site: Site, tmp_path: Path) -> None:
    """A tenth of all requests refused, a tenth cut, listings slow and unsorted: the same as from files."""
    logs = ObjectLogs(tmp_path, site, clicks=400)
    for key, data in logs.objects(9):
        site.put(key, data)
    faults = site.faults
    faults.refused, faults.cut, faults.slow_s, faults.unsorted = 0.1, 0.1, 0.05, True
    logs.write()
    result = logs.once("--max-rejected", "1000")
    assert result.code == 0, result.err
    logs.exact(result.json)
    assert re.search(
        r"object storage: \d+ lists, \d+ reads, \d+ of them retries.* reads and writes per GiB; .* lists per hour",
        result.err,
    )
    assert faults.seen.keys() == {"passed", "refused", "cut"}
    before = faults.seen.total()
    logs.exact(logs.finish())  # nothing is read a second time: it lists, twice a side and for the first records
    faults.refused = faults.cut = 0.0
    assert faults.seen.total() - before < 40, faults.seen


def test_followed_with_kills(site: Site, tmp_path: Path) -> None:
    """Objects come in any order, some are listed late, behind ones with later keys; the command is killed thrice."""
    logs = ObjectLogs(tmp_path, site, clicks=400, seed=2)
    site.faults.refused, site.faults.cut, site.faults.unsorted = 0.03, 0.03, True
    objects = list(logs.objects(12))
    site.faults.random.shuffle(objects)
    for key, _ in objects[::5]:
        site.faults.late[key] = time.monotonic() + 6.0
    third = len(objects) // 3
    for begin in (0, third, 2 * third):
        with logs.following() as running:
            for key, data in objects[begin : begin + third]:
                site.put(key, data)
            seen = logs.joined()
            until(lambda seen=seen: logs.joined() > seen, WITHIN_S, "more is joined")  # type: ignore[misc]
            running.kill()
    time.sleep(max(0.0, max(site.faults.late.values()) - time.monotonic()))
    logs.exact(logs.finish())


def test_a_late_object_is_not_lost(site: Site, tmp_path: Path) -> None:
    """While it follows: an object appears in front of all that was listed."""
    logs = ObjectLogs(tmp_path, site, clicks=60, seed=3)
    objects = list(logs.objects(3))
    first = min(key for key, _ in objects if key.startswith("clicks"))
    for key, data in objects:
        if key != first:
            site.put(key, data)
    with logs.following() as running:
        until(lambda: logs.joined() > 0, WITHIN_S, "the others are joined")
        time.sleep(3.0)  # behind the last key is listed meanwhile
        some = logs.joined()
        site.put(first, dict(objects)[first])
        until(lambda: logs.joined() > some, WITHIN_S, "the late one is joined")
        assert running.interrupt().code == 0
    logs.exact(logs.finish())


DEPLOYMENT = """
key_file = "key"
[join.clicks]
unmatched_after = "4s"
{join}[registry.replicas.r1]
address = "127.0.0.1:{0}"
directory = "r1"
[datacentre.east]
join = "clicks"
primary = "{url}/queries"
foreign = "{url}/clicks"
output = "output"
state = "state"
address = "127.0.0.1:{6}"
apart.dispatcher = "127.0.0.1:{1}"
apart.eventstore = "127.0.0.1:{2}"
apart.verifier = "127.0.0.1:{3}"
status = "127.0.0.1:{4}"
[sink.lake]
into = "{url}/lake"
address = "127.0.0.1:{5}"
"""


@pytest.mark.parametrize("on_spark", [False, pytest.param(True, marks=pytest.mark.full)])
def test_a_deployment(site: Site, tmp_path: Path, on_spark: bool) -> None:
    """Dispatcher, event store and verifier as processes of their own: every record is compared with its source, and
    by Spark with a fresh join of the objects."""
    logs = ObjectLogs(tmp_path, site, clicks=200, seed=4)
    for key, data in logs.objects(6):
        site.put(key, data)
    site.faults.refused = site.faults.cut = 0.03
    file = tmp_path / "photon.toml"
    ports = free_ports(7)
    file.write_text(DEPLOYMENT.format(*ports, url=site.url, join=CONFIG))
    (tmp_path / "key").write_bytes(bytes(range(32)))
    (tmp_path / "key").chmod(0o600)
    output = tmp_path / "output"
    with running("up", file, log=tmp_path / "up.log") as up:
        wanted = len(logs.truth.joined) + len(logs.truth.unmatched)
        until(
            lambda: sum(1 for kind in ("joined", "unmatched") for _ in records(output / kind)) >= wanted,
            WITHIN_S,
            "all are published",
        )
        (sink,) = (each for each in _processes(file) if each["name"] == "sink lake")
        os.kill(sink["pid"], signal.SIGKILL)  # up starts it again
        until(lambda: _all_checked(_metrics(ports[3])), WITHIN_S, "the verifier has compared them")
        assert all("photon_objects_requests_total" in _metrics(port) for port in ports[1:4])
        backup = photon("registry", "backup", "--config", file, f"{site.url}/backups/one", "-o", "json")
        assert backup.code == 0, backup.err
        if on_spark:
            report = (
                "--from",
                "2025-10-09",
                "--to",
                "2025-10-10",
                "--report",
                tmp_path / "report",
                "--master",
                "local[2]",
            )
            verdict = photon("spark", "verify", "--config", file, *report, "-o", "json", timeout=300.0)
            assert verdict.code == 0, verdict.err
        said = photon("doctor", "--config", file)
        assert said.code in (0, 3), said.err
        assert interrupt(up, timeout=60.0) == 0
    assert check([output], logs.truth).problems == []
    there = photon("read", f"{site.url}/lake")
    assert there.code == 0, there.err
    joined = [each["event_id"] for each in records(output / "joined")]
    assert sorted(orjson.loads(line)["event_id"] for line in there.out.splitlines()) == sorted(joined)
    new = tmp_path / "new"
    new.mkdir()
    for each in (file, tmp_path / "key"):
        shutil.copy2(each, new / each.name)
    back = photon(
        "registry", "restore", "--config", new / file.name, f"{site.url}/backups/one", "--yes", "-o", "json"
    )
    assert back.code == 0, back.err
    assert back.json["ids"] == sum(group["ids"] for group in backup.json["groups"]) >= wanted


def _processes(file: Path) -> list[dict[str, Any]]:
    said = photon("status", "processes", "--config", file, "-o", "json")
    assert said.code == 0, said.err
    found: list[dict[str, Any]] = orjson.loads(said.out)["processes"]
    return found


def _all_checked(text: str) -> bool:
    """Whether the verifier has found every record to be as its sources say. Fails where one is not."""
    sizes = {
        what: float(value)
        for what, value in re.findall(r'photon_verifier_(published|checked|cleared)_bytes{slot="east-1"} (\S+)', text)
    }
    assert not re.search(r"photon_verifier_alarms{.*} [1-9]", text), text
    return bool(sizes) and sizes["published"] == sizes["checked"] == sizes["cleared"] > 0


def _metrics(port: int) -> str:
    """Of a process; empty where it does not answer yet."""

    async def read() -> str:
        async with open_channel(f"127.0.0.1:{port}") as channel:
            try:
                reply = await METRICS_SERVICE.stub(channel).Read(pb.MetricsRequest(), timeout=5.0)
            except grpc.aio.AioRpcError:
                return ""
            return text_of([({}, decode(reply.samples))]).decode()

    return asyncio.run(read())


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://nowhere/logs", "s3://nowhere/logs: no such directory"),
        ("ftp://host/logs", "ftp://host/logs: URLs of this kind cannot be read"),
    ],
)
def test_refused_in_one_line(site: Site, tmp_path: Path, url: str, said: str) -> None:
    """What cannot be read by URL ends with exit code 2."""
    logs = ObjectLogs(tmp_path, site)
    arguments: Sequence[str | Path] = ("--primary", url)
    result = logs.once(*arguments)
    assert result.code == 2
    assert said in result.err
    assert len(result.err.splitlines()) == 1
