"""A real HBase on one machine, from Maven artifacts: for a laptop, the tests and a container. Standard library only.

    python deploy/hbase/standalone.py up      start it in the background and leave it running
    python deploy/hbase/standalone.py down    stop it; --wipe deletes its data
    python deploy/hbase/standalone.py run     run it in the foreground until SIGTERM (what a container does)
    python deploy/hbase/standalone.py fetch   only fetch the artifacts, as an image's build does
    python deploy/hbase/standalone.py check   exit 0 if both Thrift servers answer, as a container's health check asks

Three JVMs: ``master`` (HMaster, region server and ZooKeeper in one), ``thrift`` (what happybase speaks) and ``admin``
(Thrift 2, which alone can create a table that is split from its first row). Files are below one directory:

    conf/   data/   zookeeper/   NAME.log   NAME.pid   ports.json

Jars are cached between runs in PHOTON_HBASE_CACHE, by default ~/.cache/photon. Maven's own settings say where it
fetches them. Standalone on a plain directory has no durable write-ahead log: the last writes are lost when the JVM
is killed. That suffices for tests; run HBase on HDFS in production.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
START_SECONDS_MAX = 120.0  # longest time until a part answers; 5 s is usual
STOP_SECONDS_MAX = 60.0
FETCH_SECONDS_MAX = 600.0
POLL_SECONDS = 0.1
CALL_SECONDS = 5.0

_MODULES = [
    *(f"--add-opens=java.base/{name}=ALL-UNNAMED"
      for name in ("java.lang", "java.nio", "sun.nio.ch", "java.lang.reflect", "java.util")),
    "--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
]  # fmt: skip
_SMALL = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
_LOGGING = """\
log4j.rootLogger=WARN,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{2}: %m%n
"""


class CannotRun(Exception):
    """HBase cannot be run. The message is one line: what failed, where, and what to do."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports on 127.0.0.1, or on ``host`` for those that clients use."""

    thrift: int = 9090
    admin: int = 9091
    zookeeper: int = 2181
    master: int = 16000
    region_server: int = 16020
    host: str = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Part:
    """One JVM."""

    name: str
    arguments: Sequence[str]
    heap: str
    port: int


def missing() -> str:
    """Returns the programs that this machine lacks to run it; empty if there are none."""
    lacking = [name for name in ("java", "mvn") if shutil.which(name) is None]
    return f"{' and '.join(lacking)} not found: install a Java runtime (17) and Maven" if lacking else ""


# -- artifacts -----------------------------------------------------------------------------------------------------
def cache_directory() -> Path:
    """The directory that keeps jars between runs."""
    named = os.environ.get("PHOTON_HBASE_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "photon"


def fetch(cache: Path | None = None, pom: Path = HERE / "pom.xml", name: str = "HBase") -> Path:
    """Returns the directory of the jars; asks Maven only for missing ones. Raises CannotRun."""
    digest = hashlib.blake2b(pom.read_bytes(), digest_size=6).hexdigest()
    target = (cache or cache_directory()) / f"{name.lower()}-jars-{digest}"
    if target.is_dir():
        return target
    if lacking := missing():
        raise CannotRun(lacking)
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    command = ["mvn", "-B", "-q", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={part}"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=FETCH_SECONDS_MAX, check=False
        )
        if done.returncode:
            said = (done.stdout + done.stderr).strip().splitlines()
            raise CannotRun(f"Maven could not fetch {name}: {said[0] if said else f'exit {done.returncode}'}")
        with contextlib.suppress(OSError):  # another run was faster
            part.rename(target)
    except subprocess.TimeoutExpired:
        raise CannotRun(f"Maven did not fetch {name} within {FETCH_SECONDS_MAX:.0f} s") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return target


# -- configuration -------------------------------------------------------------------------------------------------
def site(directory: Path, ports: Ports, more: Mapping[str, str]) -> str:
    """Makes hbase-site.xml. Settings in ``more`` come last."""
    settings = {
        "hbase.rootdir": (directory / "data").as_uri(),
        "hbase.tmp.dir": str(directory / "tmp"),
        "hbase.cluster.distributed": "false",
        "hbase.unsafe.stream.capability.enforce": "false",
        "hbase.wal.provider": "filesystem",
        "hbase.zookeeper.property.dataDir": str(directory / "zookeeper"),
        "hbase.zookeeper.property.clientPort": str(ports.zookeeper),
        "hbase.zookeeper.property.clientPortAddress": "127.0.0.1",
        "hbase.zookeeper.quorum": "127.0.0.1",
        # the dead server of a killed JVM is noticed, and its successor waited for, in a second or two
        "zookeeper.session.timeout": "4000",
        "hbase.zookeeper.property.tickTime": "1000",
        "hbase.master.wait.on.regionservers.mintostart": "1",
        "hbase.master.wait.on.regionservers.timeout": "1000",
        "hbase.master.wait.on.regionservers.interval": "200",
        "hbase.master.port": str(ports.master),
        "hbase.master.info.port": "-1",
        "hbase.regionserver.port": str(ports.region_server),
        "hbase.regionserver.info.port": "-1",
        "hbase.thrift.info.port": "-1",
        "hbase.thrift.minWorkerThreads": "32",
        "hbase.thrift.maxWorkerThreads": "32",
        "hbase.regionserver.handler.count": "8",
        "hbase.master.ipc.address": "127.0.0.1",
        "hbase.regionserver.ipc.address": "127.0.0.1",
        "hbase.master.hostname": "localhost",
        "hbase.regionserver.hostname": "localhost",
        # a client of a restarting region server gets an error soon, and retries by itself
        "hbase.client.retries.number": "4",
        "hbase.client.operation.timeout": "10000",
        "hbase.rpc.timeout": "5000",
        **more,
    }
    lines = [f"  <property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items()]
    return "\n".join(['<?xml version="1.0"?>', "<configuration>", *lines, "</configuration>", ""])


class Standalone:
    """One HBase whose files are below ``directory``."""

    def __init__(
        self, directory: Path, jars: Path, ports: Ports, start_seconds_max: float = START_SECONDS_MAX
    ) -> None:
        self.directory = directory.absolute()
        self.start_seconds_max = start_seconds_max
        self._jars = jars
        self.ports = ports
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self.parts = {
            part.name: part
            for part in (
                Part("master", ("org.apache.hadoop.hbase.master.HMaster", "start"), "256m", ports.master),
                Part("thrift", ("org.apache.hadoop.hbase.thrift.ThriftServer", "-p", str(ports.thrift),
                                "-b", ports.host, "start"), "128m", ports.thrift),
                Part("admin", ("org.apache.hadoop.hbase.thrift2.ThriftServer", "-p", str(ports.admin),
                               "-b", ports.host, "start"), "64m", ports.admin),
            )
        }  # fmt: skip

    def configure(self, **more: str) -> None:
        """Writes conf/ and notes the ports. ``more``: settings of HBase, with _ for dots."""
        conf = self.directory / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        (conf / "hbase-site.xml").write_text(
            site(self.directory, self.ports, {name.replace("_", "."): value for name, value in more.items()})
        )
        (conf / "log4j.properties").write_text(_LOGGING)
        (self.directory / "ports.json").write_text(json.dumps(asdict(self.ports)))

    def start(self, names: Sequence[str] = ("master", "thrift", "admin"), *, wait: bool = True) -> None:
        """Starts parts and waits until they answer. Raises CannotRun."""
        for name in names:
            if self.pid(name) is not None:
                raise CannotRun(f"{self.directory}: its {name} is already running; stop it first (make hbase-down)")
            self._spawn(self.parts[name])
        if wait:
            self.wait_until_answering(names)

    def _spawn(self, part: Part) -> None:
        if shutil.which("java") is None:
            raise CannotRun(missing())
        with contextlib.closing(socket.socket()) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", part.port))
            except OSError:
                raise CannotRun(
                    f"port {part.port}, which HBase's {part.name} needs, is in use; choose other ports (--help)"
                ) from None
        command = [
            "java", f"-Xmx{part.heap}", "-Xms32m", *_SMALL, *_MODULES, self._mark(),
            f"-Djava.io.tmpdir={self._tmp()}",
            "-cp", f"{self._jars}/*:{self.directory / 'conf'}", *part.arguments,
        ]  # fmt: skip
        with open(self.directory / f"{part.name}.log", "ab") as log:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory, start_new_session=True
            )
        self._started[part.name] = child
        (self.directory / f"{part.name}.pid").write_text(str(child.pid))

    def _tmp(self) -> Path:
        tmp = self.directory / "tmp"
        tmp.mkdir(exist_ok=True)
        return tmp

    def _mark(self) -> str:
        """Marks each JVM's command line with its owner."""
        return f"-Dphoton.hbase={self.directory}"

    def wait_until_answering(self, names: Sequence[str] = ("master", "thrift", "admin")) -> None:
        """Waits until both Thrift servers answer, which takes a master and its region server. Raises CannotRun."""
        deadline = time.monotonic() + self.start_seconds_max
        waiting = [name for name in ("thrift", "admin") if name in names or self.pid(name) is not None]
        while waiting:
            for name in names:
                if self.pid(name) is None:
                    raise CannotRun(f"HBase's {name} ended while starting; see {self.directory / name}.log")
            if answers("127.0.0.1", self.parts[waiting[0]].port, _QUESTIONS[waiting[0]]):
                waiting.pop(0)
            elif time.monotonic() > deadline:
                raise CannotRun(
                    f"HBase did not answer within {self.start_seconds_max:.0f} s; see {self.directory}/*.log"
                )
            else:
                time.sleep(POLL_SECONDS)

    def pid(self, name: str) -> int | None:
        """Returns the pid of a running part; `None` if it does not run, or another process now has its pid."""
        child = self._started.get(name)
        if child is not None:  # its command line may not be there yet
            return child.pid if child.poll() is None else None
        try:
            pid = int((self.directory / f"{name}.pid").read_text())
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        return pid if self._mark().encode() in line.split(b"\0") else None

    def kill(self, name: str, sign: signal.Signals = signal.SIGKILL) -> None:
        """Ends a part and waits until it is gone. SIGKILL loses data that HBase has not yet written."""
        pid = self.pid(name)
        if pid is not None:
            deadline = time.monotonic() + STOP_SECONDS_MAX
            os.kill(pid, sign)
            while self.pid(name) is not None:
                if time.monotonic() > deadline:
                    os.kill(pid, signal.SIGKILL)
                time.sleep(POLL_SECONDS / 4)
        self._started.pop(name, None)
        (self.directory / f"{name}.pid").unlink(missing_ok=True)

    def stop(self, sign: signal.Signals = signal.SIGTERM) -> None:
        """Ends all parts: clients first, so that nobody waits for a master that is gone."""
        for name in ("admin", "thrift", "master"):
            self.kill(name, signal.SIGKILL if name != "master" else sign)


# -- is it there? --------------------------------------------------------------------------------------------------
_QUESTIONS = {
    # Thrift 1: getRow("hbase:meta", "x", {}), which takes a region server that serves the catalogue
    "thrift": ("getRow", b"\x0b\0\x01\0\0\0\x0ahbase:meta\x0b\0\x02\0\0\0\x01x\x0d\0\x03\x0b\x0b\0\0\0\0\0"),
    # Thrift 2: listNamespaceDescriptors(), which a master refuses until it has finished its start
    "admin": ("listNamespaceDescriptors", b"\0"),
}


def answers(host: str, port: int, call: tuple[str, bytes] = _QUESTIONS["thrift"]) -> bool:
    """True if a Thrift server (binary protocol, unframed) there answers a call without an error."""
    name, arguments = call
    message = struct.pack(">II", 0x80010001, len(name)) + name.encode() + struct.pack(">I", 1) + arguments
    try:
        with socket.create_connection((host, port), CALL_SECONDS) as connection:
            connection.settimeout(CALL_SECONDS)
            connection.sendall(message)
            reply = b""
            while len(reply) < 8 + len(name) + 4 + 3:
                more = connection.recv(4096)
                if not more:
                    return False
                reply += more
    except OSError:
        return False
    # a reply (not an exception) whose first field is the result (0), not a declared error (1)
    return reply[3] == 2 and reply[8 + len(name) + 4 + 1 : 8 + len(name) + 4 + 3] == b"\0\0"


# -- command line --------------------------------------------------------------------------------------------------
def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=["up", "down", "run", "fetch", "check"])
    parser.add_argument("--directory", type=Path, help="directory for its data (default: CACHE/hbase)")
    parser.add_argument("--wipe", action="store_true", help="down: delete the stored data")
    parser.add_argument("--patience", type=float, default=START_SECONDS_MAX, help="seconds to wait for its start")
    for name, value in asdict(Ports()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value, help=f"default {value}")
    return parser.parse_args()


def _run_until_told(hbase: Standalone) -> None:
    told: list[int] = []
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, lambda number, frame: told.append(number))
    try:
        hbase.start()
        print(f"HBase answers happybase at port {hbase.ports.thrift}", flush=True)
        while not told:
            for name in hbase.parts:
                if hbase.pid(name) is None:
                    raise CannotRun(f"HBase's {name} ended; see {hbase.directory / name}.log")
            time.sleep(POLL_SECONDS)
    finally:
        hbase.stop()


def main() -> int:
    """Returns the exit code: 0 if it succeeded, 1 if it failed."""
    given = _parsed()
    directory = given.directory or cache_directory() / "hbase"
    ports = Ports(**{name: getattr(given, name) for name in asdict(Ports())})
    try:
        if given.command == "down":
            hbase = Standalone(directory, Path(), ports)
            hbase.stop()
            if given.wipe:
                shutil.rmtree(directory, ignore_errors=True)
            print(f"HBase is stopped; its data is {'deleted' if given.wipe else f'kept in {directory}'}")
            return 0
        if given.command == "check":
            asked = {"thrift": ports.thrift, "admin": ports.admin}
            return 0 if all(answers("127.0.0.1", port, _QUESTIONS[name]) for name, port in asked.items()) else 1
        jars = fetch()
        if given.command == "fetch":
            print(jars)
            return 0
        hbase = Standalone(directory, jars, ports, given.patience)
        hbase.configure()
        if given.command == "run":
            _run_until_told(hbase)
            return 0
        try:
            hbase.start()
        except CannotRun:
            if hbase._started:
                hbase.stop()
            raise
    except CannotRun as error:
        print(f"hbase: {error}", file=sys.stderr)
        return 1
    print(
        f"HBase answers happybase at 127.0.0.1:{ports.thrift}; Thrift 2 for `photon eventstore init`: {ports.admin}\n"
        f"Its data is in {directory}. It keeps running until you stop it: make hbase-down"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
