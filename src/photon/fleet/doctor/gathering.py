"""Gathers facts for ``photon doctor``: about this machine (files, disks, limits, ports, packages), and from the
deployment's processes and registry. Changes nothing, except for a small fsync test file that it removes again."""

from __future__ import annotations

import asyncio
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
from dataclasses import replace
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
from photon.config.clock import NS_PER_S
from photon.config.disk import Disk, RealDisk
from photon.config.errors import PhotonError
from photon.config.extras import check_extras
from photon.config.kernel_time import kernel_time
from photon.config.settings import SIDES, Settings, Side
from photon.config.tls import OPERATOR, Tls
from photon.dispatcher.database import STATE_NAME, opened
from photon.dispatcher.partitions import there
from photon.fleet import hbase
from photon.fleet import processes as fleet
from photon.fleet.access import output_of, tls_of
from photon.fleet.doctor.facts import (
    Boundary,
    Directory,
    KeyPair,
    Logs,
    Machine,
    OutputRange,
    Package,
    Port,
    Process,
    Registry,
    Secret,
    State,
    TablesFacts,
    Watermark,
)
from photon.fleet.numbers import Numbers
from photon.fleet.polling import Asker, Heard
from photon.fleet.processes import identities, listening
from photon.fleet.watermarks import watermarks as kept
from photon.idregistry.client.deployment_key import key_path, read_key
from photon.idregistry.core.shard_snapshot import NO_BOUNDARY
from photon.idregistry.operate.findings import Expected, findings
from photon.idregistry.operate.inspection import Inspection
from photon.idregistry.operate.operator_client import OperatorClient
from photon.objects.paths import ObjectPath, placed
from photon.outputs import OutputPlace, SlotOutput, read_slot
from photon.outputs.damaged import unreadable
from photon.outputs.published import GONE
from photon.tables.configured import open_tables
from photon.tables.standing import look, old_locks
from photon.tables.tables import Tables

DISTRIBUTION = "photon-join"
SYNCS = 3
PROBE_BYTES = 4096
WALK_MAX = 100_000
"""Largest number of files counted below a log directory."""
UNREADABLE_MAX = 20
SAMPLE_BYTES, SAMPLE_RECORDS = 1 << 20, 2000  # of each side, for absent keys
ABSENT_SHOWN = 5
STUCK_S = 3.0
"""Seconds between two looks at the cells that wait for observers."""
TABLES_PATIENCE_S = 2.0
CELLS_MAX = 50_000
"""Largest number of cells of each table checked for old locks."""
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*([^;]*)(?:;(.*))?")
LOOPBACK = ("127.", "localhost", "[::1]", "::1")


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
    """The requirements of the installed distribution; empty if Photon is not installed as one."""
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
    """Compares version numbers; that is enough for our own bounds."""
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


# -- where the deployment is -----------------------------------------------------------------------------------------
def one_machine(settings: Settings) -> bool:
    """True if all processes are on this machine, so no other clock is involved."""
    return all(address.startswith(LOOPBACK) for address in listening(settings))


def datacentres_here(settings: Settings, base: Path) -> list[str]:
    """Datacentres with processes on this machine, as far as can be told: by a loopback address or a directory."""
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
    """Measures the directory, or the place where it would be made."""
    exists, tried = path.is_dir(), path
    while not tried.is_dir() and tried != tried.parent:
        if tried.exists():
            return Directory(datacentre, what, str(path), False, str(tried), f"{tried} is no directory")
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
        why = f"cannot be written in {tried} ({error.strerror or error})"
        return Directory(datacentre, what, str(path), exists, str(tried), why)
    kind = read_type(tried)
    return Directory(
        datacentre, what, str(path), exists, str(tried), "", free,
        disk.f_blocks * disk.f_frsize, tried.stat().st_dev, kind, is_network(kind), slowest,
    )  # fmt: skip


def _sync(directory: Path) -> float:
    """Seconds that the slowest of a few small durable writes took. Raises OSError."""
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


def watermarks(settings: Settings, base: Path, tls: Tls | None, now_ns: int) -> list[Watermark]:
    found = []
    for each in asyncio.run(kept(settings, base, list(settings.datacentre), lambda: tls)):
        pair, patience_s = each.pair, settings.join[each.join].unmatched_after
        if pair is not None and pair.percentile_ns is not None:
            still_s, exact_s = (
                (now_ns - at_ns) / NS_PER_S for at_ns in (each.percentile_moved_ns, each.exact_moved_ns)
            )
            exact_s = 0.0 if pair.exact_ns is None or patience_s is None else max(exact_s - patience_s, 0.0)
            behind_s = (now_ns - pair.percentile_ns) / NS_PER_S
            found.append(Watermark(each.datacentre, behind_s, still_s, exact_s, pair.held_by))
    return found


def tables(settings: Settings, base: Path, sleep: Callable[[float], object] = time.sleep) -> TablesFacts | None:
    """Looks twice if cells wait for observers."""
    configured = settings.tables
    if configured is None or (not configured.thrift and not (base / configured.file).is_file()):
        return None
    where = f"HBase, table {configured.table}" if configured.thrift else configured.file
    try:
        with open_tables(settings, base) as opened:
            opened.around.limits.patience_s = TABLES_PATIENCE_S
            return _tables(opened, where, observed=bool(settings.observe), sleep=sleep)
    except PhotonError as error:
        return TablesFacts(where, str(error))


def _tables(opened: Tables, where: str, *, observed: bool, sleep: Callable[[float], object]) -> TablesFacts:
    around = opened.around
    standing = look(around, opened.system)
    if standing.problem:
        return TablesFacts(where, standing.problem)
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
    return TablesFacts(
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
            if side not in settings.relayed(name) or directory.is_dir():  # its first start makes it
                table = join.primary if side == "primary" else join.foreign
                looked = _logs(name, side, directory, files, (table or {}).get("follow_links", ()))
                absent = {} if looked.problem else _absent_keys(settings, base, pipeline.join, side, directory)
                found.append(replace(looked, join=pipeline.join, absent_keys=absent))
    return found


def _absent_keys(settings: Settings, base: Path, join: str, side: Side, path: Path) -> dict[str, int]:
    """Counts marks of absent values among the keys of a sample. Skips what it cannot read, since other checks report
    that, and never runs user code: a record could end this process."""
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
    """Files of computations that cannot be run at all. Does not run them: ``photon compute run`` does."""
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


def operators_tls(settings: Settings, base: Path) -> tuple[Tls | None, str]:
    """The certificate for asking processes, or why they cannot be asked."""
    try:
        return tls_of(settings, base, OPERATOR), ""
    except PhotonError as error:
        return None, f"the processes cannot be asked: {error}"


# -- ports, secrets, states ------------------------------------------------------------------------------------------
def ports(wanted: Mapping[str, fleet.Process], ours: Sequence[str]) -> list[Port]:
    """``wanted``: host:port -> who is to listen there. ``ours``: addresses at which the right processes answer. For
    processes that are not asked like the others, any listener counts as the right one if others of ours answer."""
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
                return Port(who, address, "taken", "this user may not listen there")
            return Port(who, address, "elsewhere", error.strerror or str(error))
    return Port(who, address, "free")


def pairs(settings: Settings, base: Path, now: datetime) -> list[KeyPair]:
    """Certificates in this machine's directory, the authority's first."""
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


def secret(settings: Settings, base: Path) -> Secret | None:
    """`None` if no deployment needs a secret."""
    if not settings.datacentre:
        return None
    try:
        path = key_path(settings, base)
    except PhotonError as error:
        return Secret("key_file", str(error))
    try:
        read_key(path)
        return Secret(str(path), "", stat.S_IMODE(path.stat().st_mode))
    except (PhotonError, OSError) as error:
        return Secret(str(path), str(error))


def states(settings: Settings, base: Path, here: Sequence[str]) -> list[State]:
    found = []
    for name in here:
        state, output = base / settings.datacentre[name].state, base / settings.datacentre[name].output
        found += [
            State(name, *each) for each in (*_database(state / STATE_NAME), *_slots(OutputPlace(output, state)))
        ]
    return found


def output_ranges(settings: Settings, base: Path, here: Sequence[str]) -> list[OutputRange]:
    """Published output on this machine that cannot be read: ranges that readers skip, and ranges that stop them."""
    disk, found = RealDisk(), list[OutputRange]()
    for name in here:
        place = output_of(settings, base, name)
        for state in place.states(disk):
            with suppress(PhotonError, OSError):  # ``states`` reports it
                slot = read_slot(disk, state)
                found += _ranges(disk, name, slot, slot.output or place.output)
    return found


def _ranges(disk: Disk, datacentre: str, slot: SlotOutput, output: Path) -> Iterator[OutputRange]:
    finals = {file.name for file in slot.files if file.final}
    newest = {max((file for file in slot.files if file.kind == kind), key=lambda file: file.number).name
              for kind in {file.kind for file in slot.files}}  # fmt: skip
    for file in slot.files:
        for each in file.damaged:
            yield OutputRange(datacentre, str(output / each.file), each.start, each.end, each.why, each.at)
    for each in unreadable(disk, slot, output):
        moved = each.why == GONE and each.file in finals and each.file not in newest
        yield OutputRange(datacentre, str(output / each.file), each.start, each.end, each.why, moved=moved)


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


def now_utc() -> datetime:
    return datetime.now(UTC)


# -- what the processes say ----------------------------------------------------------------------------------------
def processes(settings: Settings, tls: Tls | None, base: Path | None = None) -> list[Process]:
    """The processes that the deployment file names, and those found in addition. Asks each again once the first
    answer is in, so that nothing delays its clock. ``base``: directory of the file."""
    return asyncio.run(_asked(settings, tls, base))


async def _asked(settings: Settings, tls: Tls | None, base: Path | None) -> list[Process]:
    asker = Asker(settings, sorted(settings.datacentre), tls)
    try:
        await asker.look()
        heard = await asker.look()
        return list(await asyncio.gather(*(_one(asker, each.process) for each in heard)))
    finally:
        await asker.close()


async def _one(asker: Asker, process: fleet.Process) -> Process:
    begun = time.time()
    heard = await asker.ask(process)
    return process_of(heard, begun, time.time())


def process_of(heard: Heard, begun_s: float, ended_s: float) -> Process:
    """``begun_s``, ``ended_s``: local Unix times before and after the question."""
    who = heard.process
    if not heard.up:
        return Process(who.datacentre, who.title, who.address or "", heard.problem)
    now = Numbers([heard])
    said = now.of(who, "photon_clock_seconds")
    return Process(
        who.datacentre,
        who.title,
        who.address or "",
        version=next((sample.labels.get("version", "") for _, sample in now.each("photon_build_info")), ""),
        ahead_s=None if said is None else said - (begun_s + ended_s) / 2,
        error_s=max(ended_s - begun_s, 0.0) / 2,
        open_files=now.sum("process_open_fds"),
        max_files=now.sum("process_max_fds"),
        ambiguous_keys=now.sum("photon_eventstore_ambiguous_keys_total"),
        adapter=(heard.details.get("join", ""), heard.details.get("adapter", "")),
        unmatched_waits=heard.details.get("unmatched_waits", ""),
        alarms=[(each["what"], each["todo"]) for each in heard.details.get("computing", {}).get("alarms", ())]
        if who.kind == "compute"
        else None,
    )


def registry(settings: Settings, tls: Tls | None, now_ns: int) -> Registry:
    """The findings of ``photon doctor registry``, and the age of the shards' boundaries."""
    replicas = {name: replica.address for name, replica in settings.registry.replicas.items()}
    if not replicas:
        return Registry()
    with OperatorClient(replicas, tls) as client:
        found = client.measure_all()
    expected = Expected(replicas, settings.clock.uncertainty)
    try:
        said = [(each.level, each.where, each.what, each.do) for each in findings(found, expected, ())]
    except PhotonError as error:
        said = [("error", "registry", str(error), "photon doctor registry")]
    up = sum(each.reply is not None for each in found.values())
    retention = settings.registry.retention
    return Registry(said, len(replicas), up, _boundaries(list(found.values()), now_ns), retention)


def _boundaries(found: Sequence[Inspection], now_ns: int) -> list[Boundary]:
    """The furthest boundary of each shard that any replica has applied."""
    furthest: dict[int, int] = {}
    for each in found:
        for group in each.reply.groups if each.reply is not None else ():
            if group.group:
                furthest[group.group] = max(furthest.get(group.group, NO_BOUNDARY), group.boundary_ns)
    ages = {shard: None if at == NO_BOUNDARY else (now_ns - at) / NS_PER_S for shard, at in furthest.items()}
    return [Boundary(shard, ages[shard]) for shard in sorted(ages)]
