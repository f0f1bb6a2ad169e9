"""What happens to a deployment in containers, with the longest gap in its joins: what ``make operate-test`` tells."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deploy.docker.stack import CONFIG, DATACENTRES, ROOT, Failed, Stack
from photon import __version__
from tests.kafka.broker import Broker

POLL_S = 0.5
FLOW_S = 180.0
STILL_S = 5.0  # joins stand still when none has come within this time
OLD, NEW = "r3", "r6"
FILLED, DISK_BYTES = "registry-r2", 160 << 20
# docs/kafka.md: the image has no client.
KAFKA = 'USER root\nRUN python -m ensurepip && python -m pip install "confluent-kafka>=2.6,<3"\nUSER 10001:10001\n'
TABLE = re.compile(r"(?<=<!-- Written by `make operate-test DOCS=1`. -->\n\n).*?(?=\n\n)", re.S)
IMAGE = f"photon-join:{__version__}"


class Gaps(threading.Thread):
    """Watches how many events each datacentre has joined."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(daemon=True)
        self._stack = stack
        self._done = threading.Event()
        self._most = dict.fromkeys(DATACENTRES, 0)
        self._grew = dict.fromkeys(DATACENTRES, time.monotonic())
        self.longest = 0.0

    def __enter__(self) -> Gaps:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self.join()

    def run(self) -> None:
        while not self._done.wait(POLL_S):
            for each in DATACENTRES:
                if (joined := self._stack.joined(each)) > self._most[each]:
                    self._most[each], self._grew[each] = joined, time.monotonic()
            self.longest = max(self.longest, self.still_s(*DATACENTRES))

    def still_s(self, *datacentres: str) -> float:
        """For how long none of them has joined anything."""
        return time.monotonic() - max(self._grew[each] for each in datacentres)


@dataclass
class Row:
    what: str
    took_s: float
    back_s: float
    gap_s: float
    verdict: str


@dataclass
class Operating:
    """``settings``: a directory of its own, with the deployment file that runs; ``filled``: FILLED can be."""

    stack: Stack
    settings: Path
    filled: bool = False
    rows: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.gaps = Gaps(self.stack)
        self.returned: float | None = None  # when what was lost began to come back; None: at the end

    def happens(self, does: Callable[[], None]) -> Row:
        """And joins flow again in both datacentres. The first line of its docstring says what it was."""
        began, verdict, self.returned = time.monotonic(), "joins flow", None
        with Gaps(self.stack) as self.gaps:
            try:
                does()
                self.returned = self.returned or time.monotonic()
                self.stack.wait_for_joins()
            except (Failed, AssertionError) as error:
                verdict = f"FAILED: {error}"
        now = time.monotonic()
        what = (does.__doc__ or "").splitlines()[0].rstrip(".")
        self.rows.append(Row(what, now - began, now - (self.returned or now), self.gaps.longest, verdict))
        print(self.line(self.rows[-1]), verdict, f"at a load of {os.getloadavg()[0]:.0f}", flush=True)
        return self.rows[-1]

    @staticmethod
    def line(row: Row) -> str:
        return f"| {row.what} | {row.took_s:.0f} s | {row.back_s:.0f} s | {row.gap_s:.1f} s |"

    def table(self) -> str:
        head = "| what happened | took | back | longest gap |"
        return "\n".join([head, "| --- | --- | --- | --- |", *map(self.line, self.rows)])

    def write(self, page: Path) -> None:
        page.write_text(TABLE.sub(lambda _: self.table(), page.read_text()))

    # -- what a person would do ---------------------------------------------------------------------------------
    def start(self, *services: str) -> None:
        self.returned = time.monotonic()
        self.stack.run("start", *services)

    def stands_still(self, *datacentres: str) -> None:
        def still() -> str:
            return "" if self.gaps.still_s(*datacentres) >= STILL_S else "joins flow"

        self.stack.wait(f"joins stand still in {', '.join(datacentres)}", still, FLOW_S)

    def photon(self, *words: str, of: str = "east") -> str:
        return self.stack.operator(of, "photon", *words, *CONFIG)

    def kill(self, *services: str) -> None:
        self.stack.run("kill", *services)

    def of(self, datacentre: str) -> list[str]:
        """Services that are lost with it."""
        found = self.stack.run("ps", "--services").split()
        at = {"east": ("registry-r1", "registry-r2"), "west": ("registry-r4", "registry-r5")}[datacentre]
        return [each for each in found if each.endswith(f"-{datacentre}") or each in at]

    def edit(self, changes: Mapping[str, str], containers: Mapping[str, str]) -> None:
        """Words of the deployment file, and of docker-compose.yml."""
        for file, words in ((self.settings / "photon.toml", changes), (self.stack.file, containers)):
            text = file.read_text()
            for old, new in words.items():
                assert old in text, old
                text = text.replace(old, new)
            file.write_text(text)

    def leader_is_killed(self) -> None:
        """Leader of a shard killed."""
        groups = json.loads(self.photon("status", "registry", "-o", "json"))["groups"]
        leader = next(each["leader"] for each in groups if each["group"] == 1)
        self.kill(f"registry-{leader}")
        self.stack.wait_for_joins()
        self.start(f"registry-{leader}")

    def region_is_killed(self) -> None:
        """Region killed: two replicas and its pipeline."""
        lost = self.of("west")
        self.kill(*lost)
        self.stack.wait_for_joins("east")
        self.start(*lost)

    def volume_is_deleted_and_its_replica_replaced(self) -> None:
        """Volume deleted, its replica replaced by another (docs/operations/replace-a-replica.md)."""
        self.kill(f"registry-{OLD}")
        self.stack.run("rm", "-f", f"registry-{OLD}")
        self.stack.docker("volume", "rm", f"{self.stack.project}_registry-{OLD}")
        self.edit(
            {f"replicas.{OLD}]": f"replicas.{NEW}]", f"registry-{OLD}:7003": f"registry-{NEW}:7006"},
            {f"registry-{OLD}": f"registry-{NEW}", f"registry, {OLD}": f"registry, {NEW}", "7003": "7006"},
        )
        self.stack.run("build", "certs")
        self.stack.run("up", "--no-deps", "certs")
        volume = f"{self.stack.project}_registry-{NEW}:/registry"
        command = ("photon", "registry", "replace", OLD, NEW, *CONFIG)
        self.stack.run("run", "--rm", "--no-deps", "-T", "-v", volume, "operator-west", *command, "--yes")
        self.stack.run("up", "-d", "--no-deps", "wan", f"registry-{NEW}")
        for each in ("r1", "r2", "r4", "r5"):
            self.stack.run("restart", f"registry-{each}")
        self.photon("registry", "replace", OLD, NEW, "--wait")
        self.stack.reload()
        self.photon("registry", "verify")

    def regions_are_cut(self) -> None:
        """Region cut from all others until its joins stood still."""
        self.photon("wan", "set", "east", "--cut", "--from-all")
        self.stands_still("east")
        self.stack.wait_for_joins("west")
        self.photon("wan", "set", "--heal")

    def majority_is_lost(self) -> None:
        """Majority lost: three of five replicas, until joins stood still."""
        lost = ("registry-r1", "registry-r2", "registry-r4")
        self.kill(*lost)
        self.stands_still(*DATACENTRES)
        self.start(*lost)

    def settings_are_changed(self) -> None:
        """A key of one datacentre changed, `make reload`."""
        self.edit(
            {'address = "datacentre.east:7100"': 'address = "datacentre.east:7101"'},
            {"datacentre.east:7100": "datacentre.east:7101"},
        )
        self.stack.reload()

    def certificates_are_rotated(self) -> None:
        """Certificates of all processes issued again, each process restarted."""
        issue = (
            f"PHOTON_SET_tls__directory=/certs photon certs for {CONFIG[1]} --ca /certs/ca --each-in /certs --force"
        )
        self.stack.run("run", "--rm", "--no-deps", "-T", "certs", issue)
        self.stack.restart_each()

    def image_is_upgraded(self) -> None:
        """Image upgraded: each process made again with another one of the same name."""
        self.made_anew('LABEL operated="again"\n')
        self.stack.restart_each()

    def made_anew(self, lines: str) -> None:
        """The image, with these lines of a Dockerfile."""
        command = ["docker", "build", "-q", "-t", IMAGE, "-"]
        subprocess.run(command, input=f"FROM {IMAGE}\n{lines}", text=True, check=True)

    def kafka_broker_is_killed(self) -> None:
        """Kafka broker killed: `photon sink kafka` in a container waits, each record of east is in the topic once.

        The broker runs next to the containers, at this machine's address in east's network.
        """
        self.made_anew(KAFKA)
        network = ("network", "inspect", "-f", "{{(index .IPAM.Config 0).Gateway}}", f"{self.stack.project}_east")
        directory, sink = self.settings / "kafka", f"{self.stack.project}-sink"
        directory.mkdir()
        broker = Broker(directory, self.stack.docker(*network).strip())
        try:
            broker.start()
            into = broker.make("joined")
            pours = ("photon", "sink", "kafka", *CONFIG, "--datacentre", "east", "--into", into)
            self.stack.run("run", "-d", "--no-deps", "--name", sink, "operator-east", *pours, "--follow")
            self._grows(broker)
            broker.kill()
            self.stack.wait_for_joins()
            self.stack.wait("the sink waits", lambda: "" if self._waits(sink) else "it does not say so", FLOW_S)
            self.returned = time.monotonic()
            broker.start()
            self._grows(broker)
            self.stack.docker("kill", sink)
            read = read_ids(self.stack, "east")
            self.stack.operator("east", *pours)
            written = [each.key().decode() for each in broker.read("joined")]
            assert len(written) == len(set(written)), "a record is in the topic twice"
            assert set(read) <= set(written), "a record is not in the topic"
        finally:
            broker.kill()
            subprocess.run(["docker", "rm", "-f", sink], capture_output=True, check=False)

    def _waits(self, sink: str) -> bool:
        logs = subprocess.run(["docker", "logs", sink], capture_output=True, text=True, check=True)
        return "Kafka" in logs.stderr

    def _grows(self, broker: Broker) -> None:
        before = sum(1 for _ in broker.read("joined"))
        self.stack.wait(
            "records come into the topic",
            lambda: "" if sum(1 for _ in broker.read("joined")) > before else "none",
            FLOW_S,
        )

    def volume_is_filled(self) -> None:
        """A replica's volume filled, then emptied: it takes no part, then goes on by itself."""
        self.inside(FILLED, "head -c 200M /dev/zero > /registry/fill || true")
        self.stack.wait(f"{FILLED} takes no part", lambda: "" if self.says(FILLED, "full") else "it does", FLOW_S)
        self.stack.wait_for_joins()
        self.inside(FILLED, "rm /registry/fill")
        self.photon("status", "registry", "--wait")

    def says(self, service: str, *words: str) -> int:
        """How many lines of its log have all of these words."""
        lines = self.stack.run("logs", "--no-color", service).splitlines()
        return sum(all(each in line for each in words) for line in lines)

    def inside(self, service: str, script: str) -> None:
        self.stack.run("exec", "-T", service, "sh", "-euc", script)

    def alerts_are_told(self) -> None:
        """Alerts: a killed replica told within 60 s, a silent datacentre within 30 s."""
        profile = ("--profile", "monitoring")
        self.stack.run(*profile, "build", "prometheus")
        self.stack.run(*profile, "up", "-d", "prometheus")
        self.stack.wait("prometheus sees both datacentres", self._targets, FLOW_S)
        for service, alert, most_s in (
            ("registry-r5", "PhotonProcessDown", 60.0),
            ("datacentre-west", "PhotonStatusDown", 30.0),
        ):
            told = self._told(alert)
            self.kill(service)
            began = time.monotonic()
            while self._told(alert) == told and time.monotonic() - began < FLOW_S:
                time.sleep(POLL_S)
            took = time.monotonic() - began
            self.start(service)
            print(f"{alert} told after {took:.0f} s")
            assert took <= most_s, f"{alert} after {took:.0f} s"

    def _targets(self) -> str:
        url = f"http://127.0.0.1:{os.environ['PHOTON_PROMETHEUS']}/api/v1/query?query=up"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                found = json.load(answer)["data"]["result"]
        except (OSError, ValueError) as error:
            return str(error)
        return "" if [each["value"][1] for each in found] == ["1"] * len(DATACENTRES) else f"up: {found}"

    def _told(self, alert: str) -> int:
        return self.says("alerts", alert, '"firing"')

    def backup_is_restored(self) -> None:
        """Registry emptied and restored from a backup (docs/operations/restore-a-backup.md).

        The outputs hold what was registered after the backup.
        """
        self.photon("registry", "backup", "/state/backup")
        replicas = [each for each in self.stack.run("ps", "--services").split() if each.startswith("registry-")]
        callers = [f"datacentre-{where}" for where in DATACENTRES]
        self.stack.run("stop", *callers, *replicas)
        for each in replicas:
            restore = (
                f"photon registry restore {' '.join(CONFIG)} --replica {each.partition('-')[2]} /state/backup --yes"
            )
            script = f"rm -rf /registry/*; exec {restore}"
            volume = f"{self.stack.project}_{each}:/registry"
            self.stack.run("run", "--rm", "--no-deps", "-T", "-v", volume, "operator-east", "sh", "-euc", script)
        self.stack.run("start", *replicas)
        self.photon("status", "registry", "--wait")
        for where in DATACENTRES:
            self.photon("registry", "restore", "--register-again", "--datacentre", where, "--yes", of=where)
        self.photon("registry", "restore", "--open", "--yes")
        self.start(*callers)


def read_ids(stack: Stack, where: str, of: str = "") -> list[str]:
    """Ids that a reader of a datacentre's output gets."""
    read = ("photon", "read", *CONFIG, "--datacentre", of or where)
    ids = r"""sed -E 's/.*"event_id":"([^"]*)".*/\1/' /tmp/read"""
    found = stack.operator(where, "sh", "-euc", f"{' '.join(read)} > /tmp/read; {ids}").split()
    assert found
    return found


def make_compose(settings: Path, file: Path) -> None:
    """With a volume that can be filled, where there is one (``filling``)."""
    text, device = (ROOT / "docker-compose.yml").read_text(), settings / "device"
    if device.exists():
        options = f"{{driver_opts: {{type: ext4, device: {device.read_text()}}}}}"
        before, volume, after = text.partition(f" {FILLED}: {{}}")  # not that of its certificates
        assert volume
        text = f"{before} {FILLED}: {options}{after}"
    file.write_text(text)


@contextlib.contextmanager
def filling(directory: Path) -> Iterator[bool]:
    """A small disk for the replica FILLED; whether it could be made (root, a loop device)."""
    image = directory / "disk"
    image.write_bytes(b"")
    os.truncate(image, DISK_BYTES)
    script = (
        f"mkfs.ext4 -q -E root_owner=10001:10001 {image} && debugfs -w -R 'rmdir lost+found' {image} 2>/dev/null && "
        f"losetup -f --show {image}"
    )
    made = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    if made.returncode:
        yield False
        return
    (directory / "device").write_text(made.stdout.strip())
    try:
        yield True
    finally:
        subprocess.run(["losetup", "-d", made.stdout.strip()], check=False)


def prepared(directory: Path) -> None:
    """A deployment file and its compose file to be changed."""
    shutil.copy(ROOT / "deploy" / "compose" / "photon.toml", directory)
    directory.chmod(0o755)
    make_compose(directory, directory / "docker-compose.yml")
