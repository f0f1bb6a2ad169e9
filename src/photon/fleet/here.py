"""Examines this machine and its part of a deployment for ``photon doctor``: files, disks, limits, ports, packages.

Changes nothing, except for a small file that it writes to measure fsync, and removes.
"""

from __future__ import annotations

import errno
import os
import re
import resource
import secrets
import socket
import stat
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path

from photon import __version__
from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.containment import Fault, Guard
from photon.adapters.contract import Adapter, LogFile
from photon.adapters.inference.rows import is_absent
from photon.adapters.join_adapters import adapter_of
from photon.adapters.logs.discovery import compile_patterns, discover
from photon.adapters.logs.mounts import is_network, read_type
from photon.adapters.logs.problems import ProblemKind, ProblemReporter
from photon.adapters.logs.sampling import sample
from photon.config.certificate_files import load as load_pair
from photon.config.certificates import CertificateError, facts, read_certificate
from photon.config.disk import Disk, RealDisk
from photon.config.errors import PhotonError
from photon.config.extras import check_extras
from photon.config.kernel_time import kernel_time
from photon.config.settings import SIDES, Settings, Side
from photon.dispatcher.database import STATE_NAME, opened
from photon.dispatcher.partitions import there
from photon.fleet import hbase
from photon.fleet.access import output_of
from photon.fleet.processes import Process, identities, listening
from photon.idregistry.client.deployment_key import key_path, read_key
from photon.objects.paths import ObjectPath, placed
from photon.outputs import OutputPlace, SlotOutput, read_slot
from photon.outputs.damaged import unreadable
from photon.outputs.output_places import EXPORTS_DIRECTORY
from photon.outputs.published import GONE
from photon.tables.configured import open_tables
from photon.tables.standing import look, old_locks
from photon.tables.tables import Tables

DISTRIBUTION = "photon-join"
SYNCS = 3
PROBE_BYTES = 4096
WALK_MAX = 100_000  # maximum number of files counted in a log directory
UNREADABLE_MAX = 20
SAMPLE_BYTES, SAMPLE_RECORDS = 1 << 20, 2000  # sample size on each side, to find absent keys
ABSENT_SHOWN = 5
STUCK_S = 3.0  # pause between two checks of the cells that wait for observers
TABLES_PATIENCE_S = 2.0
CELLS_MAX = 50_000  # maximum number of cells of each table checked for old locks
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*([^;]*)(?:;(.*))?")
LOOPBACK = ("127.", "localhost", "[::1]", "::1")


@dataclass(frozen=True, slots=True)
class Package:
    """A package that this installation needs, and the installed version."""

    name: str
    wanted: str
    found: str  # empty if it is not installed
    fits: bool


@dataclass(frozen=True, slots=True)
class Machine:
    python: str
    python_fits: bool
    version: str  # Photon's
    packages: Sequence[Package]
    files_soft: int  # RLIMIT_NOFILE
    files_hard: int
    synchronised: bool | None  # True if the kernel's clock is; `None` if unknown


@dataclass(frozen=True, slots=True)
class Directory:
    datacentre: str
    what: str  # state, output, registry REPLICA or compute NAME
    path: str
    exists: bool
    tried: str  # the measured directory: the path, or its nearest existing parent
    problem: str = ""  # why the directory is not writable
    free: int = 0
    size: int = 0
    device: int = 0
    file_system: str = ""
    network: bool = False
    sync_s: float = 0.0  # time of the slowest of a few small writes with fsync


@dataclass(frozen=True, slots=True)
class Logs:
    datacentre: str
    side: str
    path: str
    patterns: Sequence[str]
    problem: str = ""  # why the directory cannot be listed
    matched: int = 0
    others: int = 0  # number of files in it that no pattern matches
    unreadable: Sequence[str] = ()
    join: str = ""
    # Text that usually means "no value" -> number of sampled records with this key.
    absent_keys: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Port:
    """An address at which a process of the deployment listens."""

    who: str
    address: str
    state: str  # ours, free, taken, elsewhere (not an address of this machine)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate of ``[tls]``, and its key."""

    identity: str
    path: str
    there: bool
    problem: str = ""  # why the certificate is unusable
    ends: datetime | None = None
    key_mode: int = 0  # permission bits of the key file


@dataclass(frozen=True, slots=True)
class OwnFile:
    """The deployment's key, or a state file that this release cannot use."""

    path: str
    problem: str = ""
    mode: int = 0


@dataclass(frozen=True, slots=True)
class OutputRange:
    """Published bytes of one output file that cannot be read."""

    path: str
    start: int
    end: int
    why: str
    marked: str = ""  # when it was marked, so that readers skip it; empty means that they stop there
    moved: bool = False  # a final file is gone: archived, or lost


@dataclass(frozen=True, slots=True)
class TablesHere:
    """The state of the ``[tables]`` store. If ``problem`` is set, the store did not answer and the rest is
    unknown."""

    where: str
    problem: str = ""
    oracle_problem: str = ""  # why no timestamps are handed out
    stuck: int = 0  # number of cells waiting for observers, if the oldest one was the same in both checks
    stuck_at: str = ""
    old_locks: Sequence[str] = ()  # cells locked by a dead client, or for a long time
    looked_at: int = 0  # number of cells checked for locks
    safe_point_s: float | None = None  # seconds since the safe point moved; `None` if never
    keep_s: float = 0.0
    observed: bool = False  # the deployment runs observers, which move the safe point


@dataclass(frozen=True, slots=True)
class Here:
    """Facts about this machine. Without a deployment file, only ``machine`` and ``mistakes`` are set."""

    machine: Machine
    datacentres: Sequence[str] = ()  # those on this machine, as far as can be told
    mistakes: Sequence[str] = ()  # mistakes in the configuration, one line each
    directories: Sequence[Directory] = ()
    logs: Sequence[Logs] = ()
    ports: Sequence[Port] = ()
    pairs: Sequence[KeyPair] = ()
    key: OwnFile | None = None
    states: Sequence[OwnFile] = ()
    tables: TablesHere | None = None  # `None` without [tables], or if the store does not exist yet
    ranges: Sequence[OutputRange] = ()


def of_deployment(
    settings: Settings, base: Path, named: Sequence[str], wanted: Mapping[str, Process], ours: Sequence[str]
) -> Here:
    """Examines this machine for a deployment. ``named``, ``wanted``, ``ours``: see ``look.whole`` and ``ports``."""
    here, now = list(named) or datacentres_here(settings, base), datetime.now(UTC)
    return Here(
        machine(), here, [*adapter_mistakes(settings, base), *topology_mistakes(settings, base)],
        directories(settings, base, here), logs(settings, base, here), ports(wanted, ours),
        pairs(settings, base, now), key(settings, base), states(settings, base, here), tables(settings, base),
        output_ranges(settings, base, here),
    )  # fmt: skip


def machine() -> Machine:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    kernel = kernel_time()
    return Machine(
        python=".".join(map(str, sys.version_info[:3])),
        python_fits=sys.version_info >= (3, 11),
        version=__version__,
        packages=list(_packages()),
        files_soft=_limit(soft),
        files_hard=_limit(hard),
        synchronised=None if kernel is None else kernel.synchronised,
    )


def _limit(value: int) -> int:
    return 1 << 30 if value == resource.RLIM_INFINITY else value


def _packages() -> Iterator[Package]:
    """Yields the requirements of the installed distribution; none if Photon is not installed as a distribution."""
    try:
        wanted = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return
    for line in wanted:
        match = _REQUIREMENT.fullmatch(line)
        if match is None or "extra ==" in (match[3] or ""):
            continue
        name, versions = match[1], match[2].strip().strip("()")
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            found = ""
        yield Package(name, versions, found, _fits(found, versions))


def _fits(found: str, versions: str) -> bool:
    """Returns True if a version meets the bounds. Compares only version numbers, which is enough for our bounds."""
    have = _numbers(found)
    for bound in filter(None, (part.strip() for part in versions.split(","))):
        sign = bound[: len(bound) - len(bound.lstrip("<>=!~"))]
        at = _numbers(bound.lstrip("<>=!~"))
        length = max(len(have), len(at))
        one, other = ((*each, *[0] * (length - len(each))) for each in (have, at))
        if (sign == ">=" and one < other) or (sign == "<" and one >= other) or (sign == "==" and one != other):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(each) for each in re.findall(r"\d+", version.split("+")[0])[:3])


# -- location of the deployment --------------------------------------------------------------------------------------
def one_machine(settings: Settings) -> bool:
    """Returns True if all processes are on this machine, so that no other clock is involved."""
    return all(address.startswith(LOOPBACK) for address in listening(settings))


def datacentres_here(settings: Settings, base: Path) -> list[str]:
    """Returns the datacentres that seem to have processes on this machine, judged by loopback addresses and
    directories."""
    return [
        name
        for name, pipeline in settings.datacentre.items()
        if pipeline.eventstore.startswith(LOOPBACK)
        or any(
            not isinstance(path := placed(base, each), ObjectPath) and path.is_dir()
            for each in (pipeline.state, pipeline.output, pipeline.primary, pipeline.foreign)
        )
    ]


def directories(settings: Settings, base: Path, here: Sequence[str]) -> list[Directory]:
    found = []
    for name in here:
        pipeline = settings.datacentre[name]
        found += [
            _directory(name, what, base / path)
            for what, path in (("state", pipeline.state), ("output", pipeline.output))
        ]
    for name, replica in settings.registry.replicas.items():
        path = base / replica.directory
        if path.is_dir() or replica.address.startswith(LOOPBACK):
            found.append(_directory("", f"registry {name}", path))
    return found + [
        _directory("", f"compute {name}", path)
        for name, each in settings.compute.items()
        if (path := base / each.state).is_dir()
    ]


def _directory(datacentre: str, what: str, path: Path) -> Directory:
    """Measures a directory or, if it is missing, its nearest existing parent."""
    exists, tried = path.is_dir(), path
    while not tried.is_dir() and tried != tried.parent:
        if tried.exists():
            return Directory(datacentre, what, str(path), False, str(tried), f"{tried} is not a directory")
        tried = tried.parent
    try:
        disk = os.statvfs(tried)
        free = disk.f_bavail * disk.f_frsize
        try:
            slowest = _sync(tried)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            free, slowest = 0, 0.0
    except OSError as error:
        why = f"cannot write in {tried} ({error.strerror or error})"
        return Directory(datacentre, what, str(path), exists, str(tried), why)
    kind = read_type(tried)
    return Directory(
        datacentre, what, str(path), exists, str(tried), "", free,
        disk.f_blocks * disk.f_frsize, tried.stat().st_dev, kind, is_network(kind), slowest,
    )  # fmt: skip


def _sync(directory: Path) -> float:
    """Returns the time of the slowest of a few small durable writes, in seconds. Raises OSError."""
    path = directory / f".photon-doctor-{os.getpid()}-{secrets.token_hex(4)}"
    slowest = 0.0
    try:
        with open(path, "xb", buffering=0) as file:
            for _ in range(SYNCS):
                begun = time.monotonic()
                file.write(bytes(PROBE_BYTES))
                os.fsync(file.fileno())
                slowest = max(slowest, time.monotonic() - begun)
    finally:
        path.unlink(missing_ok=True)
    return slowest


def tables(settings: Settings, base: Path, sleep: Callable[[float], object] = time.sleep) -> TablesHere | None:
    """Examines the tables; a second time if cells wait for observers. Returns `None` without ``[tables]``."""
    configured = settings.tables
    if configured is None or (not configured.thrift and not (base / configured.file).is_file()):
        return None
    where = f"HBase, table {configured.table}" if configured.thrift else configured.file
    try:
        with open_tables(settings, base) as opened:
            opened.around.limits.patience_s = TABLES_PATIENCE_S
            return _tables(opened, where, observed=bool(settings.observe), sleep=sleep)
    except PhotonError as error:
        return TablesHere(where, str(error))


def _tables(opened: Tables, where: str, *, observed: bool, sleep: Callable[[float], object]) -> TablesHere:
    around = opened.around
    standing = look(around, opened.system)
    if standing.problem:
        return TablesHere(where, standing.problem)
    before = standing
    if before.dirty:
        sleep(STUCK_S)
        standing = look(around, opened.system)
    stuck = standing.dirty if standing.oldest and standing.oldest == before.oldest else 0
    locked, looked = old_locks(around, CELLS_MAX)
    try:
        around.oracle.timestamp()
        problem = ""
    except PhotonError as error:
        problem = str(error)
    age_s = max(around.wall_ms() - standing.moved_ms, 0) / 1000 if standing.moved_ms else None
    return TablesHere(
        where, "", problem, stuck, standing.where, ["/".join(each) for each in locked], looked,
        age_s, around.limits.keep_s, observed,
    )  # fmt: skip


def logs(settings: Settings, base: Path, here: Sequence[str]) -> list[Logs]:
    found = []
    for name in here:
        pipeline = settings.datacentre[name]
        join = settings.join[pipeline.join]
        for side in reversed(SIDES):
            files = join.primary_files if side == "primary" else join.foreign_files
            directory = placed(base, pipeline.logs(side))
            if side not in settings.relayed(name) or directory.is_dir():  # a relay creates it at its first start
                table = join.primary if side == "primary" else join.foreign
                looked = _logs(name, side, directory, files, (table or {}).get("follow_links", ()))
                absent = {} if looked.problem else _absent_keys(settings, base, pipeline.join, side, directory)
                found.append(replace(looked, join=pipeline.join, absent_keys=absent))
    return found


def _absent_keys(settings: Settings, base: Path, join: str, side: Side, path: Path) -> dict[str, int]:
    """Counts sampled records whose key is a mark for an absent value. Skips unreadable records, which other checks
    report. Never runs user code, because a record could kill this process."""
    try:
        adapter = adapter_of(settings, join, base)
        if type(adapter) is not ConfiguredAdapter:
            return {}
        own = settings.join[join]
        files = own.primary_files if side == "primary" else own.foreign_files
        links = adapter.primary_links if side == "primary" else adapter.foreign_links
        seen = sample(path, compile_patterns(files), size=SAMPLE_BYTES, records=SAMPLE_RECORDS, links=links)
    except (PhotonError, OSError):
        return {}
    primary = side == "primary"
    framing = adapter.primary_framing if primary else adapter.foreign_framing
    has_header = adapter.primary_has_header if primary else adapter.foreign_has_header
    found: Counter[str] = Counter()
    if framing.kind != "lines":
        return {}
    for name, records in seen.records.items():
        file = LogFile(name, records[0].removesuffix(b"\r") if has_header or framing.first_line else b"")
        lines = [line.removesuffix(b"\r") for line in records[has_header:]]
        keys = Guard(adapter).many(partial(_keys, adapter, lines, file, primary=primary))
        texts = [] if isinstance(keys, Fault) else [key.decode("utf-8", "replace") for key in keys if key]
        found.update(part for text in texts for part in text.split("|") if is_absent(part))
    return dict(found.most_common(ABSENT_SHOWN))


def _keys(adapter: Adapter, lines: Sequence[bytes], file: LogFile, *, primary: bool) -> list[bytes | None]:
    if primary:
        return adapter.primary_keys_of(lines, file)
    headers = adapter.header_columns(lines, file)
    return [None if row in headers.others else key for row, key in enumerate(headers.keys)]


def _logs(datacentre: str, side: str, path: Path, patterns: Sequence[str], links: Sequence[str]) -> Logs:
    try:
        problems = ProblemReporter(None)
        matched = discover(path, compile_patterns(patterns), problems, links=links)
    except OSError as error:
        return Logs(datacentre, side, str(path), patterns, problem=error.strerror or str(error))
    if isinstance(path, ObjectPath):
        return Logs(datacentre, side, str(path), patterns, "", len(matched), 0, [])
    unreadable = [each.path for each in problems.unsolved((ProblemKind.UNREADABLE,))]
    unreadable += [each.path for each in matched if not os.access(path / each.path, os.R_OK)]
    ignored = max(_files(path) - len(matched), 0)
    return Logs(datacentre, side, str(path), patterns, "", len(matched), ignored, unreadable[:UNREADABLE_MAX])


def _files(directory: Path) -> int:
    count = 0
    for _, _, names in os.walk(directory):
        count += len(names)
        if count >= WALK_MAX:
            break
    return count


def adapter_mistakes(settings: Settings, base: Path) -> list[str]:
    found = []
    for name in settings.join:
        try:
            adapter_of(settings, name, base)
        except PhotonError as error:
            found.append(str(error))
    for check in (hbase.check, check_extras):
        try:
            check(settings)
        except PhotonError as error:
            found.append(str(error))
    return found


def topology_mistakes(settings: Settings, base: Path) -> list[str]:
    """Lists computation files that cannot be compiled. Does not run them; ``photon compute run`` does."""
    found = []
    for name, each in settings.compute.items():
        path = base / each.file
        try:
            compile(path.read_bytes(), str(path), "exec")
        except OSError as error:
            found.append(f"compute.{name}.file: {path}: {error.strerror}")
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None)
            found.append(f"compute.{name}.file: {path}{f', line {line}' if line else ''}: {error}")
    return found


# -- ports, secrets, states ------------------------------------------------------------------------------------------
def ports(wanted: Mapping[str, Process], ours: Sequence[str]) -> list[Port]:
    """Checks ports. ``wanted``: host:port -> the process that should listen there. ``ours``: addresses at which the
    right processes answered. Kinds that give no such answer (status, copies) count as ours if any process
    answered."""
    return [
        _port(each.label, address, answers=address in ours or (bool(ours) and each.kind in ("status", "copies")))
        for address, each in wanted.items()
    ]


def _port(who: str, address: str, *, answers: bool) -> Port:
    host, _, number = address.rpartition(":")
    try:
        family, kind, _, _, place = socket.getaddrinfo(host.strip("[]"), int(number), type=socket.SOCK_STREAM)[0]
    except (OSError, ValueError) as error:
        return Port(who, address, "ours" if answers else "elsewhere", str(error))
    if answers:
        return Port(who, address, "ours")
    with socket.socket(family, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(place)
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return Port(who, address, "taken")
            if error.errno == errno.EACCES:
                return Port(who, address, "taken", "this user may not listen on this port")
            return Port(who, address, "elsewhere", error.strerror or str(error))
    return Port(who, address, "free")


def pairs(settings: Settings, base: Path, now: datetime) -> list[KeyPair]:
    """Returns the certificates in this machine's directory, starting with the authority's."""
    if settings.tls is None:
        return []
    directory = base / settings.tls.directory
    return [_pair(directory, identity, now) for identity in ("ca", *identities(settings))]


def _pair(directory: Path, identity: str, now: datetime) -> KeyPair:
    path, key = directory / f"{identity}.crt", directory / f"{identity}.key"
    if not path.exists():
        return KeyPair(identity, str(path), False)
    try:
        said = facts(read_certificate(path.read_bytes(), str(path)))
        problem = "" if identity == "ca" else _unusable(directory, identity, now)
    except (CertificateError, OSError) as error:
        return KeyPair(identity, str(path), True, str(error))
    problem = problem or (f"expired on {said.ends:%Y-%m-%d}" if said.ends <= now else "")
    mode = stat.S_IMODE(key.stat().st_mode) if key.exists() else 0
    return KeyPair(identity, str(path), True, problem, said.ends, mode)


def _unusable(directory: Path, identity: str, now: datetime) -> str:
    try:
        load_pair(directory, identity, now)
    except CertificateError as error:
        return str(error)
    return ""


def key(settings: Settings, base: Path) -> OwnFile | None:
    """Examines the key of digests. Returns `None` if nothing needs one."""
    if not settings.datacentre:
        return None
    try:
        path = key_path(settings, base)
    except PhotonError as error:
        return OwnFile("key_file", str(error))
    try:
        read_key(path)
        return OwnFile(str(path), "", stat.S_IMODE(path.stat().st_mode))
    except (PhotonError, OSError) as error:
        return OwnFile(str(path), str(error))


def states(settings: Settings, base: Path, here: Sequence[str]) -> list[OwnFile]:
    found = []
    for name in here:
        state, output = base / settings.datacentre[name].state, base / settings.datacentre[name].output
        found += [OwnFile(*each) for each in (*_database(state / STATE_NAME), *_slots(OutputPlace(output, state)))]
    return found


def output_ranges(settings: Settings, base: Path, here: Sequence[str]) -> list[OutputRange]:
    """Returns the unreadable ranges of published output on this machine, both those that readers skip and those that
    stop them."""
    disk, found = RealDisk(), list[OutputRange]()
    for name in here:
        place = output_of(settings, base, name)
        for state in place.states(disk):
            with suppress(PhotonError, OSError):  # ``states`` reports such errors
                slot = read_slot(disk, state)
                if state.parent.name == EXPORTS_DIRECTORY:  # a dispatcher lists no final files: its closed ones are
                    slot = replace(slot, files=tuple(replace(file, final=file.closed) for file in slot.files))
                found += _ranges(disk, slot, slot.output or place.output)
    return found


def _ranges(disk: Disk, slot: SlotOutput, output: Path) -> Iterator[OutputRange]:
    removable = slot.removable
    for file in slot.files:
        for each in file.damaged:
            yield OutputRange(str(output / each.file), each.start, each.end, each.why, each.at)
    for each in unreadable(disk, slot, output):
        moved = each.why == GONE and each.file in removable
        yield OutputRange(str(output / each.file), each.start, each.end, each.why, moved=moved)


def _database(path: Path) -> Iterator[tuple[str, str]]:
    try:
        if there(path):
            with opened(path):
                pass
    except PhotonError as error:
        yield str(path), str(error)


def _slots(place: OutputPlace) -> Iterator[tuple[str, str]]:
    disk = RealDisk()
    for state in place.states(disk):
        try:
            read_slot(disk, state)
        except (PhotonError, OSError) as error:
            yield str(state), str(error)
