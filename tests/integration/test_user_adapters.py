"""An adapter of users that keeps the interpreter, or ends its process, stops no vote, page or other datacentre."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path

from photon.config.loader import load
from photon.lab.demo.check import records
from photon.supervision.deployment import Deployment
from photon.supervision.ports import free_row
from tests.deployments import datacentre, replica, write
from tests.integration.commands import photon, soon
from tests.integration.supervised import supervised
from tests.integration.test_status import _get

PAIRS, LOOPS, CRASHES = 40, 10, 20
LIMIT_S = 1.0
WAIT_S = 240.0
CALLING = ("eventstore east", "joiner east-1", "verifier east", "dispatcher east")
JOIN = f"""
[limits]
adapter_timeout = "{LIMIT_S}s"
[join.clicks]
adapter = "own.py:Clicks"
"""
ADAPTER = """
import json, os, re
from photon.adapters.contract import Adapter, ForeignHeader
class Clicks(Adapter):
    def foreign_header(self, record, file):
        said = json.loads(record)
        return ForeignHeader(said["q"].encode(), said["t"] * 10**9, said["c"].encode())
    def primary_key(self, record, file):
        said = json.loads(record)
        if said.get("do") == "loop" and not REPAIRED:
            re.match(r"(a+)+b", "a" * 64)  # no other thread runs meanwhile
        if said.get("do") == "crash" and not REPAIRED:
            os._exit(1)
        return said["q"].encode()
    def foreign_payload(self, record, file):
        return record
    primary_payload = foreign_payload
"""


class Site:
    """Replicas in the processes of east and west, and one of their own. East's primary log has two bad records, whose
    clicks only east reads."""

    def __init__(self, base: Path) -> None:
        self.base = base
        first = free_row(210)  # the parts are at ports above their datacentre's
        self.page = f"http://127.0.0.1:{first + 4}"
        free = (f"127.0.0.1:{first + above}" for above in (0, 1, 2, 3, 110))
        replicas = [replica(next(free), f"r{number}") for number in (1, 2, 3)]
        replicas[0] += "together = true\n"
        replicas[1] = replicas[1].replace("east", "west") + "together = true\n"
        wholes = [datacentre(free, name=name, base=f"{name}/", whole=True) for name in ("east", "west")]
        wholes[0] = wholes[0].replace('status = ""\n', "")
        self.repair(done=False)
        self.file = write(base, JOIN, *replicas, *wholes)
        bad = {LOOPS: "loop", CRASHES: "crash"}
        for name in ("east", "west"):
            for directory in ("queries", "clicks"):
                (base / name / directory).mkdir(parents=True)
            own = [{"q": f"q{n}", "do": bad.get(n) if name == "east" else None} for n in range(PAIRS)]
            (base / name / "queries" / "q.log").write_text("".join(json.dumps(each) + "\n" for each in own))
            clicks = [{"c": f"c{n}", "q": f"q{n}", "t": 1_760_000_000 + n} for n in range(PAIRS)]
            read = [each for n, each in enumerate(clicks) if name == "east" or n not in bad]
            (base / name / "clicks" / "c.log").write_text("".join(json.dumps(each) + "\n" for each in read))

    def repair(self, *, done: bool) -> None:
        (self.base / "own.py").write_text(ADAPTER.replace("REPAIRED", str(done)))

    def joined(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for name in ("east", "west"):
            found.update(record["event_id"] for record in records(self.base / name / "output" / "joined"))
        return found

    def silent(self) -> set[str]:
        """Processes that the page names in an alarm and in its metrics."""
        status, metrics = (_get(f"{self.page}/{name}") for name in ("status.json", "metrics"))
        assert (status[0], metrics[0]) == (200, 200)
        alarms = {each["where"] for each in json.loads(status[1])["alarms"] if "does not answer" in each["what"]}
        down = re.findall(r'photon_up{.*process="(.*)",service="(.*)"} 0', metrics[1].decode())
        return alarms & {f"{service} {process}" for process, service in down}

    def leaders(self) -> list[tuple[str, int]]:
        """Leader and term of each group of the registry."""
        done = photon("status", "registry", "--config", self.file, "-o", "json")
        assert done.code == 0, done.err
        return [(each["leader"], each["term"]) for each in json.loads(done.out)["groups"]]

    def set_aside(self) -> list[str]:
        """Offsets in the primary log, and why."""
        done = photon("status", "eventstore", "--config", self.file, "--datacentre", "east")
        return re.findall(r"q\.log .* offset (.*)", done.out)


async def test_bad_code_stops_its_own_part_only(tmp_path: Path) -> None:
    site = Site(tmp_path)
    deployment = Deployment(site.file, load(site.file, environment={}), tmp_path / "run")
    async with supervised(deployment) as supervisor:
        await supervisor.start(deployment.services())
        await soon(lambda: _get(f"{site.page}/status.json")[0] == 200, WAIT_S, "the page is there")
        await soon(lambda: site.silent() == {"eventstore east"}, WAIT_S, "the page names the part")
        await soon(lambda: len(site.joined()) == PAIRS - 2, WAIT_S, "west joins all that both have")
        leaders = site.leaders()
        await soon(lambda: len(site.set_aside()) == 2, WAIT_S, "both records are set aside")
        looped, crashed = site.set_aside()
        assert looped.endswith("crashed: it blocked all other threads for twice limits.adapter_timeout")
        assert crashed.endswith("crashed: exit 1")
        queries = (tmp_path / "east/queries/q.log").read_bytes()
        assert [queries[int(each.partition(":")[0]) :].split(b'"')[3] for each in (looped, crashed)] == [
            b"q10",
            b"q20",
        ]
        assert {each.name for each in supervisor.states() if each.restarts} == {"eventstore east"}

        site.repair(done=True)
        shutil.rmtree(tmp_path / "east/state/eventstore/user-code")
        for name in CALLING:
            supervisor.restart(name)
        await soon(lambda: len(site.joined()) == PAIRS, WAIT_S, "those that waited are joined too")
        assert site.leaders() == leaders
    assert site.joined() == {f"c{n}": 1 for n in range(PAIRS)}
