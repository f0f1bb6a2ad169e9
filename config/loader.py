"""Loads the deployment file: TOML, then environment, then flags; each error names key, value and fix."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec

from photon.config.errors import UsageError
from photon.config.output_kinds import KINDS
from photon.config.passwords import INSTEAD, holds_password
from photon.config.settings import (
    ADAPTER_PORTS,
    NAME,
    SIDES,
    ComputeSettings,
    Duration,
    Join,
    ObserveSettings,
    Part,
    Pipeline,
    Replica,
    Settings,
    Side,
    SinkSettings,
    Size,
)
from photon.config.topic_address import is_topic, topic_address
from photon.config.units import seconds, size

ENVIRONMENT_PREFIX = "PHOTON_SET_"  # ``PHOTON_SET_registry__shards=4`` overrides ``registry.shards``
CACHES_MAX = 1024  # most cache nodes of a pipeline: the limit of a hash ring


class ConfigError(UsageError):
    """The configuration is wrong. ``str()`` is one line: file, key, value, and a correct value."""


def load(path: Path | None, *, environment: Mapping[str, str], flags: Iterable[str] = ()) -> Settings:
    """Returns the settings of a file (``None``: all defaults). ``flags`` are ``key=value``. Raises ConfigError."""
    where = str(path) if path is not None else "settings"
    raw: dict[str, Any] = {}
    if path is not None:
        try:
            raw = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ConfigError(f"{path}: no such file; name an existing configuration file") from None
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot be read ({error}); it must be a readable UTF-8 text file") from None
        except tomllib.TOMLDecodeError as error:
            # Patterns are full of backslashes, where many people first meet TOML's two kinds of strings.
            todo = "; write it between single quotes ('…'), where TOML leaves backslashes alone"
            raise ConfigError(f"{path}: not valid TOML: {error}{todo if 'Unescaped' in str(error) else ''}") from None
    for name, value in environment.items():
        if name.startswith(ENVIRONMENT_PREFIX):
            _override(raw, name.removeprefix(ENVIRONMENT_PREFIX).replace("__", "."), value, f"environment {name}")
    for flag in flags:
        key, equals, value = flag.partition("=")
        if not equals:
            raise ConfigError(f"--set {flag}: must be KEY=VALUE, for instance registry.shards=4")
        _override(raw, key.strip(), value.strip(), f"--set {flag}")
    return convert(raw, where)


def convert(raw: dict[str, Any], where: str) -> Settings:
    """Converts parsed TOML to settings. Raises ConfigError."""
    raw = _with_topics(raw)
    # Named tables first, one by one: msgspec's error path omits the name.
    for place, value, kind in _named_tables(raw):
        _typed(value, kind, place, where)
    settings = _with_adapters_apart(_without_empty(_typed(raw, Settings, "", where)))
    problem = next(iter(problems(settings)), None)
    if problem is not None:
        raise ConfigError(f"{where}: {problem}")
    return _with_directories(settings)


def _with_topics(raw: dict[str, Any]) -> dict[str, Any]:
    """Treats ``foreign = "kafka://…"`` as a topic, not a directory."""
    tables = raw.get("datacentre")
    if not isinstance(tables, dict):
        return raw
    changed = {
        name: {
            f"{key}_topic" if key in SIDES and isinstance(value, str) and is_topic(value) else key: value
            for key, value in table.items()
        }
        for name, table in tables.items()
        if isinstance(table, dict)
    }
    return {**raw, "datacentre": {**tables, **changed}}


def _without_empty(settings: Settings) -> Settings:
    """Removes tables that an override has emptied: [tls] without certificates, or HBase without a Thrift server."""
    pipelines = {
        name: msgspec.structs.replace(each, hbase=each.hbase if each.hbase and each.hbase.thrift else None)
        for name, each in settings.datacentre.items()
    }
    tls = settings.tls if settings.tls and settings.tls.directory else None
    return msgspec.structs.replace(settings, tls=tls, datacentre=pipelines)


def _with_adapters_apart(settings: Settings) -> Settings:
    """Separates parts that call users' adapters from their datacentre's process, so that code that loops or crashes
    stops neither other parts nor a replica."""
    pipelines = {}
    for name, each in settings.datacentre.items():
        join = settings.join.get(each.join)
        calls = ADAPTER_PORTS if join is not None and join.runs_user_code and each.address else ()
        taken = {part: each.own_address(part) for part in settings.inside(name) if part in calls} if calls else {}
        pipelines[name] = msgspec.structs.replace(each, apart={**each.apart, **taken})
    return msgspec.structs.replace(settings, datacentre=pipelines)


def _with_directories(settings: Settings) -> Settings:
    """Fills in directories that are not set; for logs that are another join's output, the relay's directory."""
    pipelines = {}
    for name, each in settings.datacentre.items():
        own = {key: getattr(each, key) or f"{name}/{key}" for key in ("output", "state")}
        placed = msgspec.structs.replace(each, **own)
        logs = {side: placed.logs(side) or placed.relayed_directory(side) for side in SIDES}
        pipelines[name] = msgspec.structs.replace(placed, **logs)
    replicas = {
        name: msgspec.structs.replace(each, directory=each.directory or f"registry/{name}")
        for name, each in settings.registry.replicas.items()
    }
    registry = msgspec.structs.replace(settings.registry, replicas=replicas)
    return msgspec.structs.replace(settings, registry=registry, datacentre=pipelines)


_T = TypeVar("_T")


def _typed(raw: Any, kind: type[_T], place: str, where: str) -> _T:
    try:
        return msgspec.convert(raw, kind, dec_hook=_units)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {_explain(str(error), raw, place, kind)}") from None


def _named_tables(raw: dict[str, Any]) -> list[tuple[str, Any, type]]:
    """Returns (place, parsed table, type) of each ``[a.NAME]``, inner ones first."""
    found: list[tuple[str, Any, type]] = []

    def each(table: Any, place: str, kind: type) -> None:
        if isinstance(table, dict):
            found.extend((f"{place}.{name}", value, kind) for name, value in table.items())

    registry, datacentres = raw.get("registry"), raw.get("datacentre")
    if isinstance(registry, dict):
        each(registry.get("replicas"), "registry.replicas", Replica)
    each(raw.get("join"), "join", Join)
    each(raw.get("observe"), "observe", ObserveSettings)
    each(datacentres, "datacentre", Pipeline)
    each(raw.get("compute"), "compute", ComputeSettings)
    each(raw.get("sink"), "sink", SinkSettings)
    return found


def problems(settings: Settings) -> list[str]:
    """Returns problems that concern more than one key, such as names and references between tables."""
    found = []
    names: list[tuple[str, Iterable[str]]] = [
        ("join", settings.join),
        ("datacentre", settings.datacentre),
        ("compute", settings.compute),
        ("sink", settings.sink),
        ("registry.replicas", settings.registry.replicas),
        ("observe", settings.observe),
    ]
    for table, keys in names:
        found += [
            f"{table}.{name}: a name has 1 to 40 characters a-z, 0-9, - and _, starting with a letter or digit"
            for name in keys
            if not re.fullmatch(NAME, name)
        ]
    if settings.telemetry is not None and "@" in settings.telemetry.endpoint:  # it appears in log lines
        found.append("telemetry.endpoint: contains a user; put credentials into OTEL_EXPORTER_OTLP_HEADERS")
    for name, join in settings.join.items():
        described = join.primary is not None and join.foreign is not None
        if join.adapter is None and not described:
            found.append(f'join.{name}: needs adapter = "path.py:Class", or the tables primary and foreign')
        if join.adapter is not None and any(
            (table or {}).keys() - {"join", "follow_links"} for table in (join.primary, join.foreign)
        ):
            found.append(f"join.{name}: has both an adapter and primary/foreign tables; keep one of them")
        found += _match_problems(settings, name, join)
    for name, value in _positive(settings):
        if value <= 0:
            found.append(f"{name} = {value}: must be more than 0")
    found += _registry_problems(settings)
    for dc, pipeline in settings.datacentre.items():
        if pipeline.join not in settings.join:
            known = ", ".join(sorted(settings.join)) or "none"
            found.append(f"datacentre.{dc}.join = {pipeline.join!r}: no such join; there are: {known}")
        found += _part_problems(settings, dc)
        if pipeline.on_spark and "spark" not in pipeline.apart:
            found.append(
                f"datacentre.{dc}.apart.spark: is missing, but pipeline is spark; set its address, "
                'for instance apart = { spark = "127.0.0.1:7200" }'
            )
        if pipeline.on_spark and settings.output.copies > 1:
            found.append(f"datacentre.{dc}.pipeline = spark: a join on Spark has no copies; set output.copies = 1")
    found += _chain_problems(settings)
    found += _id_problems(settings)
    found += _bound_problems(settings)
    found += _copy_problems(settings)
    slots = [slot for dc in settings.datacentre for slot in settings.joiners(dc)]
    on_spark = {pipeline.spark_slot(dc) for dc, pipeline in settings.datacentre.items()}
    found += [f"slot {slot}: reserved for the join on Spark; choose another" for slot in slots if slot in on_spark]
    slots += [pipeline.spark_slot(dc) for dc, pipeline in settings.datacentre.items() if pipeline.on_spark]
    found += [f"slot {slot}: named twice; slot names are unique over all datacentres" for slot in _twice(slots)]
    return found


def _part_problems(settings: Settings, dc: str) -> Iterator[str]:
    """Checks the parts of a datacentre that are apart, and that each process has an address."""
    pipeline, at = settings.datacentre[dc], f"datacentre.{dc}"
    counts = {"joiner": pipeline.joiners, "dispatcher": pipeline.dispatchers}
    for part, said in pipeline.apart.items():
        if part not in (known := get_args(Part)):
            close = difflib.get_close_matches(part, known, n=1)
            yield f"{at}.apart.{part}: no such part; {f'did you mean {close[0]!r}?' if close else ', '.join(known)}"
            continue
        count = len(said) if part == "cache" and isinstance(said, list) else counts.get(part, 1)
        if isinstance(said, list) and (len(said) != count or not count):
            yield f"{at}.apart.{part}: names {len(said)} addresses but needs {count or 'one'}; name as many"
        if count > CACHES_MAX:
            yield f"{at}.apart.cache: names {count} cache nodes; at most {CACHES_MAX} are allowed"
    if "status" in pipeline.apart and pipeline.status is not None:
        yield f"{at}.status: a separate status page listens at apart.status; remove status"
    if pipeline.join in settings.join and not pipeline.address and settings.inside(dc):
        yield f'{at}.address: is missing; set the address of its process, for instance address = "127.0.0.1:7100"'


def _chain_problems(settings: Settings) -> list[str]:
    """Checks joins of other joins' output: each must exist, and none may depend on itself."""
    found = []
    upstream = {name: {side: up for side in SIDES if (up := join.upstream(side)) is not None}
                for name, join in settings.join.items()}  # fmt: skip
    for name, sides in upstream.items():
        for side, up in sides.items():
            if not isinstance(up, str) or up not in settings.join:
                known = ", ".join(sorted(settings.join))
                found.append(f"join.{name}.{side}.join = {up!r}: no such join; there are: {known}")
            elif (way := _way(upstream, up, name)) is not None:
                found.append(
                    f"join.{name}.{side}.join = {up!r}: a join cannot depend on itself: {' <- '.join((name, *way))}"
                )
            elif side == "foreign" and _shares_ids(settings, name, up):
                found.append(
                    f'join.{name}.foreign.join = {up!r}: its records share their event\'s id (match = "all"); set '
                    "foreign.id to a field that differs in each, for instance an id of the primary event"
                )
    for dc, pipeline in settings.datacentre.items():
        for side in SIDES:
            up = upstream.get(pipeline.join, {}).get(side)
            if (topic := pipeline.topic(side)) is not None:
                found += _topic_problems(topic, f"datacentre.{dc}.{side}")
            if pipeline.logs(side) or topic or pipeline.join not in settings.join:
                continue
            if up is None:
                found.append(f"datacentre.{dc}.{side}: is missing; it names the directory of the {side} logs")
            elif not settings.joining(up):
                found.append(f"join.{pipeline.join}.{side}.join = {up!r}: no datacentre of this file joins {up}")
    return found


def _topic_problems(topic: str, where: str) -> list[str]:
    try:
        topic_address(topic, where)
    except UsageError as wrong:
        return [str(wrong)]
    return []


# Members of a joined record shared by all pairs of an event (docs/output.md).
OF_ALL_PAIRS = ("event_id", "key", "event_time_ns", "foreign", "source", "pairs", "joined_at", "token")


def _shares_ids(settings: Settings, name: str, upstream: str) -> bool:
    """True if foreign events would share an id, because they are pairs of the same event."""
    named = (settings.join[name].foreign or {}).get("id") or "event_id"
    return settings.join[upstream].match == "all" and str(named).partition(".")[0] in OF_ALL_PAIRS


def _way(upstream: Mapping[str, Mapping[Side, str]], begin: str, end: str) -> list[str] | None:
    """Returns the chain of joins by which ``begin`` depends on ``end``, both included; ``None`` if it does not."""
    seen, ways = set[str](), [[begin]]
    while ways:
        way = ways.pop()
        if way[-1] == end:
            return way
        if way[-1] not in seen:
            seen.add(way[-1])
            ways += [[*way, up] for up in upstream.get(way[-1], {}).values() if isinstance(up, str)]
    return None


def _match_problems(settings: Settings, name: str, join: Join) -> list[str]:
    """Returns a problem for each setting that contradicts ``match``, ``within`` or ``unmatched``."""
    at = f"join.{name}"
    final = join.unmatched_after is not None or (join.within is not None and join.match == "first")
    if join.unmatched == "inline" and not final and name in (each.join for each in settings.datacentre.values()):
        return [f'{at}: unmatched = "inline": without unmatched_after no event is ever unmatched; set it']
    if join.match == "first":
        return []
    said, found = f'{at}: match = "{join.match}"', []
    pipelines = [(dc, pipeline) for dc, pipeline in settings.datacentre.items() if pipeline.join == name]
    if join.primary is not None and join.primary.get("duplicates") is not None:
        found.append(f"{said} and primary.duplicates cannot be combined: all primary events count; remove duplicates")
    if join.file_map == "sparse":
        found.append(f'{said} and file_map = "sparse" cannot be combined: it finds one record of a key; use "dense"')
    found += [
        f"{said} and datacentre.{dc}.hbase cannot be combined: HBase has only a key's first records; remove hbase"
        for dc, pipeline in pipelines
        if pipeline.hbase is not None
    ]
    needs_time = join.match == "latest" or join.within is not None
    if needs_time and join.adapter is None and join.primary is not None and join.primary.get("time") is None:
        found.append(
            f"{said}{' and within' * (join.match == 'all')}: needs the primary's event time; add primary.time"
        )
    if join.match == "latest" and join.within is not None and join.within.after:
        found.append(f"{said} and within.after cannot be combined: later primary events do not count; remove after")
    if pipelines and join.unmatched_after is None:
        found.append(f"{said}: without unmatched_after no event's set is ever final; set it")
    return found


def _id_problems(settings: Settings) -> list[str]:
    """Checks ids that are made from places in logs: datacentres agree on them only if their logs are identical."""
    found = []
    for name, join in settings.join.items():
        shared = [dc for dc, pipeline in settings.datacentre.items() if pipeline.join == name]
        unnamed = join.foreign is not None and join.foreign.get("id") is None and join.upstream("foreign") is None
        placed = join.adapter is None and unnamed
        topics = any(settings.datacentre[dc].foreign_topic for dc in shared)  # differ if begun at other times
        if len(shared) > 1 and placed and (topics or not join.identical_copies):
            found.append(
                f"join.{name}.foreign.id: is not set, but {' and '.join(shared)} share this join; name the field "
                f"that holds the event's id, or set join.{name}.identical_copies = true if their foreign logs are "
                "the same files byte by byte"
            )
    return found


def _bound_problems(settings: Settings) -> list[str]:
    """Returns a problem for each ``within`` that no pair could satisfy, or that other settings contradict."""
    found = []
    retention = settings.registry.retention
    for name, join in settings.join.items():
        if (within := join.within) is None:
            continue
        where, patience = f"join.{name}.within", join.unmatched_after
        if within.before + within.after <= 0:
            found.append(f'{where}: before and after are both 0; set one, as in {{ before = "1h", after = "5m" }}')
        if retention is not None and within.before > retention:
            found.append(
                f"{where}.before = {within.before:g} s: is longer than registry.retention = {retention:g} s, after "
                "which events are forgotten; make one of them fit"
            )
        if patience is not None and patience < within.after:
            found.append(
                f"{where}.after = {within.after:g} s: is longer than join.{name}.unmatched_after = {patience:g} s, "
                "so events would become unmatched before their primary event can arrive; make one of them fit"
            )
    return found


def _copy_problems(settings: Settings) -> list[str]:
    """Checks that each datacentre has another one to keep the copy of its output."""
    if settings.output.copies < 2 or len(settings.datacentre) >= 2:
        return []
    return [
        f"output.copies = 2: needs at least two datacentres; there are: {', '.join(settings.datacentre) or 'none'}"
    ]


def _registry_problems(settings: Settings) -> list[str]:
    found = []
    registry = settings.registry
    replicas = len(registry.replicas)
    if replicas and replicas not in (1, 3, 5):
        found.append(f"registry.replicas: there are {replicas}; a registry has 1, 3 or 5 replicas")
    if registry.tolerate is not None and replicas and replicas < 2 * registry.tolerate + 1:
        need = 2 * registry.tolerate + 1
        found.append(f"registry.tolerate = {registry.tolerate}: requires {need} replicas; there are {replicas}")
    for name, replica in registry.replicas.items():
        pipeline = settings.datacentre.get(replica.datacentre)
        if replica.together and not (pipeline and pipeline.address):
            found.append(
                f"registry.replicas.{name}.together: runs in its datacentre's process; write datacentre.NAME.address"
            )
    if not 1 <= registry.shards <= 4096:
        found.append(f"registry.shards = {registry.shards}: must be from 1 to 4096")
    addresses = [(f"registry.replicas.{n}", r.address) for n, r in registry.replicas.items()]
    if settings.wan is not None:
        addresses.append(("wan.control", settings.wan.control))
    states = [each.state for each in settings.compute.values()]
    found += [f"compute: two computations have the state {state}; give each its own" for state in _twice(states)]
    names = [who for name, each in settings.compute.items() for who in each.names(name)]
    found += [f"compute.{name}: another computation's process has this name; rename it" for name in _twice(names)]
    addresses += [(f"compute.{n}.address", c.address) for n, c in settings.compute.items() if c.address is not None]
    addresses += [
        (f"sink.{n}.address", sink.address) for n, sink in settings.sink.items() if sink.address is not None
    ]
    found += _sink_problems(settings)
    for dc, pipeline in settings.datacentre.items():
        own = {"address": pipeline.address, "status": pipeline.page}
        own |= {f"apart.{part}": at for part in pipeline.apart for at in pipeline.at(part)[:1] if part != "status"}
        for part in (each for each in get_args(Part) if pipeline.is_apart(each)):
            own |= {f"{part} {number}": at for number, at in enumerate(pipeline.at(part)[1:], 2)}
            if part not in pipeline.apart:
                own[f"{part} 1"] = pipeline.at(part)[0]
        addresses += [(f"datacentre.{dc}.{key}", address) for key, address in own.items() if address]
    for name, each in settings.observe.items():
        addresses += [(f"observe.{name}.addresses", address) for address in each.addresses]
        if not each.addresses:
            found.append(f'observe.{name}.addresses: is empty; give each process one, as ["127.0.0.1:7500"]')
    for key, address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            found.append(f"{key}: address {address!r} must be host:port, such as 127.0.0.1:7101")
    users: dict[str, list[str]] = {}
    for key, address in addresses:
        users.setdefault(address, []).append(key)
    return found + [
        f"address {address}: used twice, by {' and '.join(keys)}; each process needs its own"
        for address, keys in users.items()
        if len(keys) > 1
    ]


def _sink_problems(settings: Settings) -> Iterator[str]:
    there, places = ", ".join(settings.datacentre) or "none", dict[str, str]()
    for name, sink in settings.sink.items():
        if sink.datacentre is None and len(settings.datacentre) != 1:
            yield f"sink.{name}.datacentre: is missing; the configuration has the datacentres {there}"
        if sink.datacentre is not None and sink.datacentre not in settings.datacentre:
            yield f"sink.{name}.datacentre: there is no {sink.datacentre}; there are: {there}"
        if bad := [kind for kind in sink.kinds if kind not in KINDS]:
            yield f"sink.{name}.kinds: {bad[0]!r} is not a kind; there are: {', '.join(KINDS)}"
        if not sink.kinds:
            yield f"sink.{name}.kinds: is empty; there are: {', '.join(KINDS)}"
        if holds_password(sink.into):
            yield f"sink.{name}.into: contains a password, which would be displayed; {INSTEAD}"
        if not is_topic(sink.into) and not sink.into.startswith(("postgresql:", "postgres:")):
            into = sink.into.rstrip("/")
            if (other := places.setdefault(into, name)) != name:
                yield f"sink.{name}.into: sink.{other} has the same destination; each needs its own"


_POSITIVE_LIMITS = (
    "batch_events", "batches_in_flight", "record", "cache", "read_ahead", "redo_log", "retry_store",
    "registrations_in_flight", "sought_keys",
)  # fmt: skip


def _positive(settings: Settings) -> list[tuple[str, float]]:
    limits = settings.limits
    joins = [(f"join.{name}.file_map_bytes", join.file_map_bytes) for name, join in settings.join.items()]
    return [
        *joins,
        *((f"limits.{name}", getattr(limits, name)) for name in _POSITIVE_LIMITS),
        ("registry.epoch", settings.registry.epoch),
        ("registry.retention", 1 if settings.registry.retention is None else settings.registry.retention),
        ("registry.memory_limit", 1 if settings.registry.memory_limit is None else settings.registry.memory_limit),
        ("output.roll_size", settings.output.roll_size),
        ("output.roll_age", settings.output.roll_age),
        ("output.copies_wait", settings.output.copies_wait),
        ("tables.keep", 1 if settings.tables is None else settings.tables.keep),
    ]


def _twice(names: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    return [name for name in names if name in seen or seen.add(name)]  # type: ignore[func-returns-value]


def _units(kind: type, value: Any) -> Any:
    if kind is Duration:
        return Duration(seconds(value))
    if kind is Size:
        return Size(size(value))
    raise NotImplementedError(kind)


def _override(raw: dict[str, Any], key: str, text: str, source: str) -> None:
    """Sets ``a.b.c`` in the parsed file; the value is a TOML value, or text if it is not valid TOML."""
    try:
        value: Any = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    table = raw
    *above, last = key.split(".")
    for name in above:
        inner = table.setdefault(name, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{source}: {name} is a value, not a table")
        table = inner
    table[last] = value


def _explain(message: str, raw: Any, place: str, kind: type) -> str:
    """Returns msgspec's message with the key as written, its value, and the intended key for a misspelt one."""
    text, _, path = message.partition(" - at `")
    inner = path.removesuffix("`").removeprefix("$").removeprefix(".")
    key = ".".join(part for part in (place, inner) if part)
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", text)
    if unknown:
        known = _fields_of(kind, inner)
        close = difflib.get_close_matches(unknown[1], known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known keys here: {', '.join(sorted(known))}"
        return f"{key + '.' if key else ''}{unknown[1]}: unknown key; {hint}"
    value = raw
    for part in inner.split("."):
        value = value.get(part) if isinstance(value, dict) else value
    shown = "" if value is None or isinstance(value, dict) else f" = {value!r}"
    return f"{key}{shown}: {text[0].lower()}{text[1:]}"


def _fields_of(kind: type, inner: str) -> list[str]:
    for part in inner.split(".") if inner else []:
        kind = next((f.type for f in msgspec.structs.fields(kind) if f.name == part), kind)
        kind = next((each for each in get_args(kind) if hasattr(each, "__struct_fields__")), kind)
    return [field.name for field in msgspec.structs.fields(kind)]
