"""Each alert of deploy/prometheus fires by its real cause, in a running deployment, and no other one does.

Two joins under ``photon up`` with traffic, and a real Prometheus. After a quiet phase of ``PHOTON_QUIET_S`` seconds
faults happen in lanes, which run at the same time; with ``PHOTON_ALERTS`` only those that should fire one of these
alerts. The table that it prints stands in docs/operations/README.md.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sqlite3
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from photon.supervision.control import Request, ask
from photon.supervision.ports import free_ports
from photon.supervision.states import ServiceState
from photon.tables import Tables
from tests.integration.commands import Detached, until
from tests.integration.hostile.small_disk import mounted
from tests.unit.deploy.alerts import CASES, STEP_S

RULES = Path(__file__).parents[3] / "deploy" / "prometheus"
QUIET_S = float(os.environ.get("PHOTON_QUIET_S", "3600"))
SLACK_S = 120.0  # scrapes, and processes that wait for a core
WAIT_S = 300.0
OLD_S = 120  # a click's query in the join ``odd``
SLOW_S = 20
TIMEOUT_S = 4 * 3600
FIRES_S = {alert: max(case.fires_s for case in CASES if case.alert == alert) for alert in {c.alert for c in CASES}}
RESOLVES_S = {alert: max(c.resolves_s for c in CASES if c.alert == alert) for alert in FIRES_S}

DEPLOYMENT = """\
key_file = "key"
[output]
copies = 2
[registry]
shards = 1
tolerate = 1
[tables]
file = "tables.db"
[observe.seen]
file = "seen.py"
addresses = ["127.0.0.1:{}"]
[compute.spend]
file = "spend.py"
state = "compute/spend"
address = "127.0.0.1:{}"
[sink.lake]
into = "lake/to"
datacentre = "east"
address = "127.0.0.1:{}"
"""
JOIN = """\
[join.{}]
written_within = "5m"
primary = {{ format = "jsonl", key = "q" }}
foreign = {{ format = "jsonl", key = "q", id = "id", time = {{ field = "t", unit = "us" }} }}
"""
REPLICA = """\
[registry.replicas.{0}]
address = "127.0.0.1:{1}"
directory = "{0}/registry"
datacentre = "{2}"
"""
DATACENTRE = """\
[datacentre.{0}]
join = "{1}"
primary = "{0}/queries"
foreign = "{0}/clicks"
address = "127.0.0.1:{2}"
status = "127.0.0.1:{3}"
"""
JOINS = {"clicks": ("east", "west"), "odd": ("north", "south")}
SEEN = """
from pathlib import Path
from photon.tables import Tables, observer

tables = Tables.open("tables.db")

@observer(tables, table="clicks", column="query")
def seen(txn, click):
    if Path("observers-raise").exists():
        raise ValueError("told to")
    txn.table("queries").row(click.get("query")).set("click", click.key)
"""
SPEND = """
from pathlib import Path
from photon.computing import Computation, Topology

class Spend(Computation):
    def process_record(self, ctx, record):
        if Path(FLAG).exists():
            raise ValueError("told to")
        ctx.produce("spend", {"id": record.value["event_id"]})

topology = Topology("spend")
clicks = topology.joined("photon.toml", join="clicks")
topology.add(Spend(), {clicks: lambda record: record.value["event_id"]}, ["spend"])
topology.publish("spend", "streams/spend")
"""


class Site(Detached):
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        super().__init__(directory / "photon.toml")
        ports = iter(free_ports(15))
        text = DEPLOYMENT.format(*(next(ports) for _ in range(3))) + "".join(map(JOIN.format, JOINS))
        for replica, where in (("r1", "east"), ("r2", "west"), ("r3", "")):
            text += REPLICA.format(replica, next(ports), where)
        self.pages: dict[str, str] = {}
        for join, datacentres in JOINS.items():
            for name in datacentres:
                address, status = next(ports), next(ports)
                self.pages[name] = f"127.0.0.1:{status}"
                text += DATACENTRE.format(name, join, address, status)
                for logs in ("queries", "clicks"):
                    (directory / name / logs).mkdir(parents=True)
        text = text.replace("[datacentre.west]\n", f'[datacentre.west]\napart.copies = "127.0.0.1:{next(ports)}"\n')
        self.file.write_text(text)
        (directory / "key").write_bytes(os.urandom(32))
        (directory / "seen.py").write_text(SEEN)
        (directory / "spend.py").write_text(SPEND.replace("FLAG", repr(str(directory / "computations-raise"))))
        self.lock = threading.Lock()

    def ask(self, do: str, *names: str, **more: Any) -> dict[str, ServiceState]:
        with self.lock:
            request = Request(do=do, names=names, **more)  # type: ignore[arg-type]
            return {each.name: each for each in ask(self.directory / ".photon-run", request).services}

    def hold(self, *names: str) -> None:
        self.ask("kill", *names, hold=True)
        until(lambda: all(self.ask("ps")[name].state == "held" for name in names), WAIT_S, f"{names} are held")

    def release(self, *names: str) -> None:
        self.ask("release", *names)
        until(lambda: all(self.ask("ps")[name].state == "up" for name in names), WAIT_S, f"{names} are up")

    def restart(self, *names: str, **settings: str) -> None:
        """With settings of their own, as ``limits__cache="64KiB"``."""
        before = {name: each.pid for name, each in self.ask("ps").items()}
        self.ask("restart", *names, environment={f"PHOTON_SET_{key}": value for key, value in settings.items()})

        def again() -> bool:
            now = self.ask("ps")
            return all(now[name].state == "up" and now[name].pid != before[name] for name in names)

        until(again, WAIT_S, f"{names} are restarted")

    def pid(self, name: str) -> int:
        pid = self.ask("ps")[name].pid
        assert pid is not None
        return pid


class Traffic:
    """Some events a second until it is stopped. A click of ``odd`` has an old query, its records are long."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.slow = False
        self.ended = threading.Event()
        self.failed: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def write(self, side: str, records: Sequence[dict[str, Any]], *datacentres: str, name: str = "") -> None:
        data = b"".join(json.dumps(each).encode() + b"\n" for each in records)
        for datacentre in datacentres:
            path = self.site.directory / datacentre / side / f"{name or int(time.time() // 300)}.log"
            with open(path, "ab", buffering=0) as file:
                file.write(data)

    def click(self, number: str, query: str, at_s: float = 0.0) -> dict[str, Any]:
        return {"id": number, "q": query, "t": int((at_s or time.time()) * 1e6), "text": "x" * 200}

    def _run(self) -> None:
        try:
            with Tables.open(self.site.directory / "tables.db") as tables:
                second = 0
                while not self.ended.wait(1.0):
                    self._second(second)
                    if second % 10 == 0:
                        with suppress(Exception), tables.transaction() as txn:  # its file may be held
                            txn.table("clicks").row(f"c{second}").set("query", f"q{second}")
                    second += 1
        except BaseException as error:
            self.failed = error

    def _second(self, second: int) -> None:
        self.write("queries", [{"q": f"q{second}-{n}"} for n in range(2)], *JOINS["clicks"])
        self.write("clicks", [self.click(f"c{second}-{n}", f"q{second}-{n}") for n in range(2)], *JOINS["clicks"])
        queries = [{"q": f"q{second}-{n}", "text": os.urandom(1000).hex()} for n in range(2)]
        clicks = []
        if second >= OLD_S:
            clicks = [self.click(f"c{second}-{n}", f"q{second - OLD_S}-{n}") for n in range(2)]
        if self.slow and second % 5 == 0:
            clicks.append(self.click(f"s{second}", f"s{second}"))
        if second % 5 == SLOW_S % 5:
            queries.append({"q": f"s{second - SLOW_S}"})
        self.write("queries", queries, *JOINS["odd"])
        self.write("clicks", clicks, *JOINS["odd"])


class Prometheus:
    def __init__(self, directory: Path, targets: list[str]) -> None:
        directory.mkdir()
        shutil.copy(RULES / "photon.rules.yml", directory)
        text = (RULES / "prometheus.yml").read_text()
        before, _, _ = text.partition("alerting:")
        job = {"job_name": "photon", "static_configs": [{"targets": targets}]}
        (directory / "prometheus.yml").write_text(f"{before}scrape_configs: {json.dumps([job])}\n")
        [port] = free_ports(1)
        self.url = f"http://127.0.0.1:{port}/api/v1/"
        command = ["prometheus", f"--config.file={directory}/prometheus.yml",
                   f"--storage.tsdb.path={directory}/data", f"--web.listen-address=127.0.0.1:{port}"]  # fmt: skip
        with (directory / "log").open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def ask(self, path: str, **parameters: object) -> Any:
        with urllib.request.urlopen(f"{self.url}{path}?{urllib.parse.urlencode(parameters)}", timeout=60) as answer:
            return json.load(answer)["data"]

    def value(self, query: str) -> float | None:
        found = self.ask("query", query=query)["result"]
        return float(found[0]["value"][1]) if found else None

    def all_up(self) -> bool:
        try:
            return self.value("min(up)") == 1 and self.value("min(photon_up)") == 1
        except OSError:
            return False

    def firings(self, since_s: float, till_s: float) -> list[Firing]:
        found = self.ask("query_range", query='ALERTS{alertstate="firing"}', start=since_s, end=till_s, step=STEP_S)
        firings = []
        for each in found["result"]:
            labels = {k: v for k, v in each["metric"].items() if k not in ("__name__", "alertstate", "severity")}
            times = [at for at, _ in each["values"]]
            begins = [at for before, at in zip([0.0, *times], times, strict=False) if at - before > 1.5 * STEP_S]
            ends = [at for at, after in zip(times, [*times[1:], 1e12], strict=True) if after - at > 1.5 * STEP_S]
            firings += [
                Firing(labels["alertname"], labels, begin, end + STEP_S if end < till_s - 2 * STEP_S else None)
                for begin, end in zip(begins, ends, strict=True)
            ]
        return firings


@dataclass(frozen=True, slots=True)
class Firing:
    alert: str
    labels: dict[str, str]
    began_s: float
    ended_s: float | None  # None: it still fires


@dataclass
class Fault:
    """``alerts``: each with one of its labels' values, empty: any. ``leads_s``: from the fault until the alert's
    condition holds. ``also``: others that it explains."""

    what: str
    alerts: dict[str, str]
    begin: Callable[[], None]
    end: Callable[[], None] = lambda: None
    leads_s: float = 0.0
    also: tuple[str, ...] = ()
    began_s: float = 0.0
    ended_s: float = 0.0
    failed: str = ""

    def mine(self, firings: list[Firing], alert: str) -> list[Firing]:
        value = self.alerts[alert]
        return [
            each for each in firings
            if each.alert == alert and (not value or value in each.labels.values()) and each.began_s >= self.began_s
        ]  # fmt: skip

    def within_s(self, alert: str) -> float:
        return FIRES_S[alert] + self.leads_s + SLACK_S

    def run(self, prometheus: Prometheus) -> None:
        self.began_s = time.time()
        print(f"{time.strftime('%X')} {self.what}", flush=True)
        self.begin()
        longest_s = max(map(self.within_s, self.alerts))
        while time.time() < self.began_s + longest_s:
            firings = prometheus.firings(self.began_s, time.time())
            if all(self.mine(firings, alert) for alert in self.alerts):
                break
            time.sleep(STEP_S)
        self.ended_s = time.time()
        print(f"{time.strftime('%X')} ends: {self.what}", flush=True)
        self.end()
        while time.time() < self.ended_s + SLACK_S:
            firings = [each for each in prometheus.firings(self.began_s, time.time()) if each.ended_s is None]
            if not any(self.mine(firings, alert) for alert in self.alerts if RESOLVES_S[alert] < SLACK_S):
                break
            time.sleep(STEP_S)


def rows(faults: list[Fault], firings: list[Firing]) -> list[tuple[str, str, float | None, float | None]]:
    """(what, alert, fired after, resolved after), seconds."""
    table = []
    for fault in faults:
        for alert in fault.alerts:
            mine = sorted(fault.mine(firings, alert), key=lambda each: each.began_s)
            fired_s = mine[0].began_s - fault.began_s if mine else None
            ended_s = mine[0].ended_s if mine else None
            table.append((fault.what, alert, fired_s, None if ended_s is None else max(0, ended_s - fault.ended_s)))
    return table


def unexplained(faults: list[Fault], firings: list[Firing]) -> list[Firing]:
    def explains(fault: Fault, firing: Firing) -> bool:
        if not fault.began_s or firing.began_s < fault.began_s:
            return False
        if firing.alert in fault.also:
            return True
        return firing.alert in fault.alerts and firing in fault.mine(firings, firing.alert)

    return [each for each in firings if not any(explains(fault, each) for fault in faults)]


@dataclass
class Lanes:
    """What happens. Faults of a lane follow one another."""

    site: Site
    traffic: Traffic
    prometheus: Prometheus

    def all(self) -> list[list[Fault]]:
        """Those that ``PHOTON_ALERTS`` names; without it, all."""
        lanes = [self.replicas(), self.verifier(), self.odd(), self.logs(), self.slow(), self.east(),
                 self.computing(), self.tables(), self.sink(), self.page()]  # fmt: skip
        wanted = set(os.environ.get("PHOTON_ALERTS", "").split()) or FIRES_S.keys()
        return [[fault for fault in lane if wanted & fault.alerts.keys()] for lane in lanes]

    def replicas(self) -> list[Fault]:
        site, disk = self.site, self.site.directory / "r3"
        three = ("registry r1", "registry r2", "registry r3")

        def is_full() -> None:
            size(disk, f"{shutil.disk_usage(disk).used // 1024}k")

        def takes_memory() -> None:
            used = self.prometheus.value('max(photon_registry_memory_bytes{process="r3"})')
            assert used
            site.restart("registry r3", registry__memory_limit=str(int(used / 0.9)))

        def lose_two() -> None:
            site.restart("datacentre south", limits__redo_log="16KiB")
            site.restart(*three, tables__thrift='["127.0.0.1:9"]')
            site.hold(*three[:2])

        def find_two() -> None:
            site.release(*three[:2])
            site.restart("datacentre south")

        silent = (
            "PhotonProcessDown",
            "PhotonRegistryNoSpareReplica",
            "PhotonClockInDoubt",
            "PhotonRegistryAlarm",
            "PhotonDiskFilling",
        )
        still = (
            *silent,
            "PhotonShardWithoutLeader",
            "PhotonForeignLag",
            "PhotonVerifierAlarm",
            "PhotonComputingAlarm",
            "PhotonComputingStopped",
        )
        return [
            Fault("3 GB left for r3", {"PhotonDiskFilling": "r3"}, lambda: size(disk, "3g"),
                  lambda: size(disk, "20g")),
            Fault(
                "r3's disk full", {"PhotonRegistryDiskFull": "r3", "PhotonRegistryAlarm": "r3"},
                is_full, lambda: size(disk, "20g"), also=silent,
            ),
            Fault(
                "r3 with a low `registry.memory_limit`", {"PhotonRegistryMemory": "r3"},
                takes_memory, lambda: site.restart("registry r3"), also=silent,
            ),
            Fault(
                "r1 and r2 killed, `limits.redo_log` 16 KiB",
                {"PhotonProcessDown": "r1", "PhotonRegistryNoSpareReplica": "", "PhotonClockInDoubt": "r3",
                 "PhotonShardWithoutLeader": "1", "PhotonOracleWithoutLeader": "", "PhotonRedoLogFilling": "south-1"},
                lose_two, find_two, 60.0, still,
            ),
            Fault(
                "all replicas killed", {"PhotonShardWithoutLeader": "registry"},
                lambda: site.hold(*three), lambda: site.release(*three), also=still,
            ),
        ]  # fmt: skip

    def verifier(self) -> list[Fault]:
        site = self.site
        whole: dict[Path, bytes] = {}

        def halve() -> None:
            path = max((site.directory / "west" / "output").rglob("*.jsonl"), key=lambda each: each.stat().st_mtime)
            whole[path] = path.read_bytes()
            os.truncate(path, len(whole[path]) // 2)

        def mend() -> None:
            """The joiner has appended more."""
            site.hold("datacentre west")
            for path, data in whole.items():
                path.write_bytes(data + path.read_bytes()[len(data) // 2 :])
            site.release("datacentre west")

        return [
            Fault(
                "west's output file halved", {"PhotonVerifierAlarm": "west", "PhotonNotCleared": "west-1"},
                halve, mend, 60.0,
                ("PhotonProcessDown", "PhotonStatusDown", "PhotonOutputWithoutCopy", "PhotonComputingStopped",
                 "PhotonComputingAlarm"),
            )
        ]  # fmt: skip

    def odd(self) -> list[Fault]:
        both = ("datacentre north", "datacentre south")
        return [
            Fault(
                "`head_start` 0, 64 KiB of `limits.cache`, queries 2 min old",
                {"PhotonWastedJoins": "odd", "PhotonCacheCold": "odd"},
                lambda: self.site.restart(*both, dispatcher__head_start="0s", limits__cache="64KiB"),
                lambda: self.site.restart(*both),
                also=("PhotonWastedJoins", "PhotonCacheCold", "PhotonProcessDown", "PhotonStatusDown"),
            )
        ]

    def logs(self) -> list[Fault]:
        write, click, north = self.traffic.write, self.traffic.click, self.site.directory / "north" / "queries"
        kept = self.site.directory / "kept.log"

        def twice() -> None:
            write("queries", [{"q": "twice"}], *JOINS["odd"])
            write("clicks", [click("twice", "twice")], *JOINS["odd"])
            time.sleep(60)
            write("clicks", [click("twice", "twice", time.time() - 45)], *JOINS["odd"])

        def late() -> None:
            write("queries", [{"q": "late"}], *JOINS["odd"])
            write("clicks", [click("late", "late", time.time() - 900)], *JOINS["odd"])

        def delete() -> None:
            write("queries", [{"q": "gone", "text": "x" * 200_000}], "north", name="gone")
            time.sleep(30)
            (north / "gone.log").rename(kept)
            time.sleep(30)
            write("clicks", [click("gone", "gone")], "north")

        return [
            Fault("event with two times", {"PhotonRetimed": ""}, twice, leads_s=60, also=("PhotonRetimed",)),
            Fault("event 15 min old, `written_within` 5 min", {"PhotonLateRecords": ""}, late, leads_s=60,
                  also=("PhotonLateRecords",)),
            Fault("primary log deleted", {"PhotonPrimaryLogMissing": "north"}, delete,
                  lambda: kept.rename(north / "gone.log"), leads_s=90),
        ]  # fmt: skip

    def slow(self) -> list[Fault]:
        def turn(to: bool) -> None:
            self.traffic.slow = to

        return [
            Fault(f"queries {SLOW_S} s after their clicks", {"PhotonSlow": "odd"}, lambda: turn(True),
                  lambda: turn(False), leads_s=180, also=("PhotonSlow",))
        ]  # fmt: skip

    def east(self) -> list[Fault]:
        site = self.site

        def wait_in_vain() -> None:
            site.restart("datacentre east", limits__retry_store="256KiB", limits__read_ahead="64KiB")
            for at in (0, 2_000):  # the first fill the store, and reading stops at the others
                vain = [self.traffic.click(f"vain{n}", f"vain{n}") for n in range(at, at + 2_000)]
                self.traffic.write("clicks", vain, "east")
                time.sleep(30)

        def found() -> None:
            site.restart("datacentre east")
            self.traffic.write("queries", [{"q": f"vain{n}"} for n in range(4_000)], "east")

        def age() -> None:
            self.traffic.write("clicks", [self.traffic.click("aged", "aged")], "east")
            time.sleep(60)
            site.hold("datacentre east")
            for path in (site.directory / "east" / "state").glob("dispatcher*"):
                with suppress(sqlite3.DatabaseError), sqlite3.connect(path) as state:
                    state.execute("UPDATE retries SET first_read_ns = first_read_ns - 9000 * 1000000000")
            site.release("datacentre east")

        restarts = ("PhotonStatusDown", "PhotonProcessDown", "PhotonForeignLag")
        return [
            Fault(
                "keeper of east's copy killed", {"PhotonOutputWithoutCopy": "east"},
                lambda: site.hold("copies west"), lambda: site.release("copies west"), 90.0,
                ("PhotonProcessDown", "PhotonVerifierAlarm"),
            ),
            Fault(
                "4,000 clicks without queries, 256 KiB of `limits.retry_store`",
                {"PhotonRetryStoreFilling": "east", "PhotonForeignLag": "east"}, wait_in_vain, found, 400.0, restarts,
            ),
            Fault(
                "state with a click first read 2.5 h ago", {"PhotonOldestPending": "east"}, age,
                lambda: self.traffic.write("queries", [{"q": "aged"}], "east"), 120.0, restarts,
            ),
        ]  # fmt: skip

    def computing(self) -> list[Fault]:
        flag = self.site.directory / "computations-raise"
        return [
            Fault("a computation raises", {"PhotonComputingAlarm": "spend"}, flag.touch, flag.unlink, 60.0),
            Fault(
                "a computation's process killed", {"PhotonComputingStopped": "spend"},
                lambda: self.site.hold("compute spend"), lambda: self.site.release("compute spend"),
                also=("PhotonProcessDown",),
            ),
        ]  # fmt: skip

    def tables(self) -> list[Fault]:
        site, flag, name = self.site, self.site.directory / "observers-raise", "observe seen-1"

        def few_files() -> None:
            pid = site.pid(name)
            _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (int(len(os.listdir(f"/proc/{pid}/fd")) / 0.85), hard))

        def many_files() -> None:
            _, hard = resource.prlimit(site.pid(name), resource.RLIMIT_NOFILE)
            resource.prlimit(site.pid(name), resource.RLIMIT_NOFILE, (hard, hard))

        return [
            Fault("an observer raises", {"PhotonTablesDirty": ""}, flag.touch, flag.unlink, 330.0),
            Fault("open files limited", {"PhotonOpenFiles": "seen-1"}, few_files, many_files, 30.0),
        ]  # fmt: skip

    def sink(self) -> list[Fault]:
        disk = self.site.directory / "lake"
        return [
            Fault(
                "a sink's disk full", {"PhotonSinkStalled": "lake"},
                lambda: size(disk, f"{shutil.disk_usage(disk).used // 1024}k"), lambda: size(disk, "20g"), 700.0,
                ("PhotonDiskFilling",),
            )
        ]  # fmt: skip

    def page(self) -> list[Fault]:
        """After the others: it has their metrics."""
        site = self.site
        return [
            Fault(
                "west's process killed, with its status page", {"PhotonStatusDown": site.pages["west"]},
                lambda: site.hold("datacentre west"), lambda: site.release("datacentre west"),
                also=("PhotonProcessDown",),
            )
        ]  # fmt: skip


def size(disk: Path, most: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={most}", disk], check=True)


@pytest.mark.full
@pytest.mark.timeout(TIMEOUT_S)
def test_each_alert_fires_by_its_cause(tmp_path: Path) -> None:
    if not shutil.which("prometheus"):
        pytest.skip("no prometheus is there: apt-get install prometheus")
    with mounted(tmp_path / "r3", "20g"), mounted(tmp_path / "lake", "20g"):
        site = Site(tmp_path)
        prometheus = Prometheus(tmp_path / "prometheus", [*site.pages.values()])
        traffic = Traffic(site)
        try:
            print(sorted(site.up()))
            traffic.thread.start()
            until(prometheus.all_up, WAIT_S, "all is up")
            began_s = time.time()
            time.sleep(QUIET_S)
            quiet = prometheus.firings(began_s, time.time())
            print(f"after {QUIET_S:g} quiet seconds: {quiet}", flush=True)
            *lanes, last = Lanes(site, traffic, prometheus).all()
            faults = [fault for lane in (*lanes, last) for fault in lane]
            with ThreadPoolExecutor(len(lanes)) as pool:
                list(pool.map(lambda lane: carry_out(lane, prometheus), lanes))
            carry_out(last, prometheus)
            time.sleep(60)
            assert traffic.failed is None, traffic.failed
            firings = prometheus.firings(began_s, time.time())
        finally:
            traffic.ended.set()
            prometheus.process.terminate()
            prometheus.process.wait()
            site.down()
    missing = tell(faults, firings)
    assert not quiet
    assert not [(fault.what, fault.failed) for fault in faults if fault.failed]
    assert not missing
    assert not (others := unexplained(faults, firings)), others


def carry_out(lane: list[Fault], prometheus: Prometheus) -> None:
    for fault in lane:
        try:
            fault.run(prometheus)
        except Exception as error:  # the other faults go on
            fault.failed = repr(error)
            print(f"{time.strftime('%X')} FAILED: {fault.what}: {error!r}", flush=True)


def tell(faults: list[Fault], firings: list[Firing]) -> list[tuple[str, str]]:
    """Prints the table; returns the alerts that have not fired in time, each with its fault."""
    print("| what | alert | fired | resolved |\n| --- | --- | --- | --- |")
    missing = []
    limits = {(fault.what, alert): fault.within_s(alert) for fault in faults for alert in fault.alerts}
    for what, alert, fired_s, resolved_s in rows(faults, firings):
        cells = ["" if each is None else f"{each:.0f}" for each in (fired_s, resolved_s)]
        print(f"| {what} | {alert} | {cells[0]} | {cells[1]} |")
        if fired_s is None or fired_s > limits[what, alert]:
            missing.append((what, alert))
    for each in firings:
        print(each)
    return missing
