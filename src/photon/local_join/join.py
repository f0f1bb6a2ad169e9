"""``photon join``: runs a datacentre with one joiner and one replica in one process, like ``photon serve
datacentre``.

This package contains only what differs: the given sides, inference, the output's lock, and parts.py. All lasting
state is in ``OUTPUT/.photon`` (see site.py), so running the command again recovers from a kill at any moment.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, closing
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import orjson

from photon.adapters.containment import Fault, Guard, keep_crumbs
from photon.adapters.contract import Adapter, ForeignHeader, LogFile, Skipped
from photon.adapters.crumbs import DIRECTORY
from photon.adapters.inference.moments import odd_times
from photon.adapters.join_adapters import adapter_of, join_named
from photon.adapters.logs.api import Block
from photon.adapters.logs.elsewhere import is_final
from photon.adapters.logs.follower import Follower
from photon.adapters.logs.problems import ProblemKind
from photon.adapters.side import TimeConfig
from photon.assembly.room import Alone, Room, Serve
from photon.config.clock import SystemClock
from photon.config.disk import Disk, RealDisk
from photon.config.errors import UsageError
from photon.config.loader import load
from photon.config.settings import Join, Settings, Side
from photon.config.stopping import Stopped, unless_stopped
from photon.config.toml_text import toml_value
from photon.config.topic_address import topic_address, topic_in
from photon.eventstore.api import EventStoreFailed
from photon.fleet.ledger import ledger_file, read_ledger
from photon.joiner.process import JoinerFailed
from photon.joiner.slot.identity import OutOfStep
from photon.local_join.given import STDIN, Given, check_streams, given, standard_input
from photon.local_join.options import JoinFailed, JoinOptions
from photon.local_join.site import DATACENTRE, Site, refused
from photon.local_join.status import JoinResult
from photon.local_join.store import is_apart, remove_sockets, store_apart, store_log, store_reports
from photon.local_join.words import BY_COMMAND, SIDES, Refused, Words, command, described
from photon.outputs import OutputPlace
from photon.outputs.identity import ID_BYTES, identify
from photon.outputs.log.copier import WHOLE_NAME, Copier
from photon.outputs.output_places import EMBEDDED_STATE

if TYPE_CHECKING:
    from photon.local_join.status import Status
    from photon.supervision.zygote import Zygote

SAMPLE_BYTES, SAMPLE_STEP_BYTES = 16 << 20, 1 << 20
SAMPLE_RECORDS = 200
TIMES = 20  # number of event times to check
MANY = 20
NAMED = 3  # maximum number of missing primary logs to list


async def run(
    options: JoinOptions,
    *,
    stop: asyncio.Event,
    show: Callable[[Status], None],
    say: Callable[[str], None],
    zygote: Zygote | None = None,
) -> JoinResult:
    """Runs until everything has a verdict (``once``) or ``stop`` is set. ``say``: receives messages for the user.
    ``zygote``: forks the event store, if that runs in a separate process.

    Raises PhotonError.
    """
    site = Site(options.output)
    topics = {side: topic for side, path in options.sides().items() if (topic := topic_in(path)) is not None}
    paths = {side: path for side, path in options.sides().items() if path != STDIN and side not in topics}
    named = {side: given(side, path) for side, path in paths.items()}
    sides = named | {side: Given(site.upstream(side)) for side in topics}
    check_streams(sides, once=options.once)
    for side, logs in named.items():
        site.check_logs(side, options.sides()[side], logs)
    if options.config is not None:
        _configured(options, options.config)  # check it before anything is created
    disk, clock = RealDisk(), SystemClock()
    try:
        site.check_state(disk)
    except OutOfStep as other:
        raise refused(site, other) from None
    lock = site.take()
    relays: list[Copier] = []
    try:
        for side, topic in topics.items():
            from photon.outputs.kafka_topic import open_relay

            address, into, lost = topic_address(topic, f"--{side}"), site.upstream(side), options.accept_lost_offsets
            relays.append(open_relay(disk, address, options.kafka_client, into, accept_lost=lost))
            bring = partial(_bring, relays[-1], into, disk, once=options.once)
            await unless_stopped(stop, asyncio.to_thread(bring))
        queries, clicks = (site.upstream(side) if side in topics else path for side, path in options.sides().items())
        options = replace(options, primary=queries, foreign=clicks)
        for side in options.sides().keys() - sides.keys():
            sides[side] = await unless_stopped(stop, standard_input(site.spool(side)))
        config = options.config or _inferred(options, sides, site, disk, say)
        settings, name, adapter = _configured(options, config)
        options = options.at(name, sides, adapter)
        settings, name, adapter = _configured(options, config)  # again, with the files to read as settings
        site.check_links(settings, config.parent, name, adapter, options.sides())
        options = _relayed(options, settings, name, site, disk, relays)
        keep_crumbs(adapter, site.state / DIRECTORY, disk)
        primary_bytes = None
        if not ledger_file(site.state).exists():
            primary_bytes = check_readable(adapter, settings.join[name], options, say)
        if not options.once and not is_final(options.primary):
            _say_unreadable(adapter, settings.join[name], options, say)
        check_rule(site, adapter, disk)
        site.key(disk)
        identify(disk, site.state, secrets.token_hex(ID_BYTES), "join")
        before = read_ledger(site.state)["rejected"]
        with store_reports(site) as report:
            inferred = options.config is None
            guessed = inferred and options.words.id is None and "id" in (settings.join[name].foreign or {})
            alone = Alone(adapter, options.once, options.keep_pending, guessed, report)
            own_settings = site.settings(settings, name, options.sides())
            room = Room(own_settings, Path(), stop, DATACENTRE, alone=alone, disk=disk, clock=clock)
            remove_sockets(site)
            apart = None
            if is_apart(options, settings, name, adapter, primary_bytes):
                apart = store_apart(room, options, config, site, zygote)
            result = await _serve(room, apart, show, say, () if options.once else relays, store_log(site))
        if not inferred or all(options.words.both()):
            result = replace(result, ambiguous=0)  # the user gave the keys
        ledger = read_ledger(site.state)
        return replace(result, ledger=ledger, rejected=ledger["rejected"] - before)
    except Stopped:
        return JoinResult(read_ledger(site.state))
    except JoinerFailed as failed:
        if isinstance(failed.__cause__, OutOfStep):
            raise refused(site, failed.__cause__) from None
        raise
    except EventStoreFailed as failed:
        raise JoinFailed(str(failed)) from None  # the cause may be in the logs: exit code 1
    finally:
        for each in relays:
            each.close()
        lock.release()


async def _serve(
    room: Room,
    apart: AbstractAsyncContextManager[tuple[str, Serve]] | None,
    show: Callable[[Status], None],
    say: Callable[[str], None],
    relays: Sequence[Copier],
    store_log: Path,
) -> JoinResult:
    """Runs the datacentre until its dispatcher stops, or ``room`` is stopped. ``apart``: the event store, if it has a
    separate process."""
    async with AsyncExitStack() as stack:
        address, own = None, dict[str, Serve]()
        if apart is not None:
            address, own["eventstore"] = await stack.enter_async_context(apart)
        from photon.assembly.datacentre import serve_datacentre
        from photon.local_join.parts import OwnParts  # imported while the other process starts

        parts = OwnParts(room, show, say, relays, store_log, address)
        await serve_datacentre(room, own=parts.all() | own)
        return parts.result


def _relayed(
    options: JoinOptions, settings: Settings, join: str, site: Site, disk: Disk, relays: list[Copier]
) -> JoinOptions:
    """If a side is the output directory of another ``photon join``, redirects it to the directory into which its
    records are copied. Copies the records published now, and adds the relay of later records to ``relays``.

    Raises UsageError, CursorLost, OutputMissing, PublishedDamaged, RelayedLogLost, OSError.
    """
    sides: tuple[tuple[Side, Path], ...] = (("primary", options.primary), ("foreign", options.foreign))
    for side, output in sides:
        chained = settings.join[join].upstream(side) is not None and not is_final(output)
        if not chained or not (output / EMBEDDED_STATE).is_dir():
            continue
        from photon.outputs.relay import Relay

        relays.append(Relay(disk, OutputPlace.of_join(output), site.upstream(side), "joined"))
        brought = site.upstream(side)
        options = replace(options, primary=brought) if side == "primary" else replace(options, foreign=brought)
        _bring(relays[-1], brought, disk, once=options.once)
    return options


def _bring(relay: Copier, into: Path, disk: Disk, *, once: bool) -> None:
    """Copies the records published so far; with ``once`` there will be no others."""
    relay.pass_on(None if once else SystemClock().now_ns())
    if once and disk.exists(into / WHOLE_NAME):
        disk.remove(into / WHOLE_NAME)


def _configured(options: JoinOptions, config: Path) -> tuple[Settings, str, Adapter]:
    """Loads the settings. Returns them with the join's name and adapter. Raises ConfigError, UsageError,
    AdapterError."""
    settings = load(config, environment=os.environ, flags=options.overrides)
    name = join_named(settings, options.join)
    join = settings.join[name]
    if join.match != "first" and options.keep_pending:
        raise UsageError(f'--keep-pending and match = "{join.match}": no verdict would ever be final; use only one')
    if join.match != "first" and not options.once and join.unmatched_after is None:
        raise UsageError(
            f'join.{name}: match = "{join.match}" without --once: no verdict is ever final; add unmatched_after'
        )
    if join.unmatched == "inline" and options.keep_pending:
        raise UsageError('--keep-pending and unmatched = "inline": no event would ever be unmatched; use only one')
    if join.unmatched == "inline" and not options.once and join.unmatched_after is None and join.within is None:
        raise UsageError(
            f'join.{name}: unmatched = "inline" without --once: no event is ever unmatched; add unmatched_after'
        )
    return settings, name, adapter_of(settings, name, config.parent)


def _inferred(
    options: JoinOptions, sides: Mapping[str, Given], site: Site, disk: Disk, say: Callable[[str], None]
) -> Path:
    """Infers the configuration from the logs and the options on the command line, and returns its path. Once the
    first event is registered, the configuration no longer changes. Raises UsageError."""
    path = site.state / "inferred.toml"
    if disk.exists(path) and site.begun(disk):
        check_words(site, options.words, tomllib.loads(disk.read(path).decode()))
        return path
    try:
        toml, why = described(options.words, sides["primary"], sides["foreign"])
    except Refused as refusal:
        raise refusal.with_example(f"{refusal.example}\n{_command(options, refusal.words)}") from None
    disk.replace(path, toml.encode())
    kept = f"configuration kept in {path} for this output; to change it, use options or --config with a new --output"
    for line in (*why, kept):
        say(line)
    return path


def _command(options: JoinOptions, words: Sequence[str]) -> str:
    """Returns a command line with options for the choices that the logs leave open."""
    if not words:
        return ""
    told = {"--primary": options.primary, "--foreign": options.foreign, "--output": options.output}
    line = command({**told, "--once": options.once}, words)
    return f"{BY_COMMAND}\n{line}"


def check_words(site: Site, words: Words, kept: Mapping[str, Any]) -> None:
    """Raises UsageError if the options differ from the configuration with which the output was started."""
    ((_, tables),) = kept["join"].items()
    for side, key in zip(SIDES, words.both(), strict=True):
        if key:
            begun = tables[side]["key"]
            _check_same(site, f"{side}.key", begun, key[0] if len(key) == 1 else list(key))
    if words.id is not None:
        _check_same(site, "id", tables["foreign"].get("id"), words.id)
    time = tables["foreign"].get("time", {})
    told = words.time if isinstance(words.time, Mapping) else {"field": words.time, "unit": words.unit}
    begun_time = {"unit": time.get("format"), "zone": "UTC", **time}  # because --unit also accepts a format
    for name, value in told.items():
        if value is not None:
            _check_same(site, f"time.{name}", begun_time.get(name), value)
    for side in SIDES:
        form = words.format.get(side) if isinstance(words.format, Mapping) else words.format
        if form is not None:
            _check_same(site, f"{side}.format", tables[side]["format"], form)


def _check_same(site: Site, name: str, begun: object, wanted: object) -> None:
    """Raises UsageError if a setting differs from the one with which the output was started."""
    if begun == wanted:
        return
    one, other = (_shown(name, each) for each in (begun, wanted))
    raise UsageError(
        f"{site.output}: this output was started with {name} = {one}; to use {name} = {other}, give a new --output"
    )


def _shown(name: str, value: object) -> str:
    if value is None:
        return "place" if name.endswith("id") else "none"
    return value if isinstance(value, str) else str(toml_value(value))


def check_rule(site: Site, adapter: Adapter, disk: Disk) -> None:
    """Checks that ids, keys and times are derived as when this output was started. Keeps the rule, because the
    registry, which refuses another rule, has only its hash. Raises UsageError."""
    path, rule = site.state / "rule", adapter.rule()
    if not (disk.exists(path) and site.begun(disk)):
        disk.replace(path, rule)
        return
    begun = disk.read(path)
    if begun == rule:
        return
    try:
        one, other = _flat(orjson.loads(begun)), _flat(orjson.loads(rule))
    except orjson.JSONDecodeError:  # the rule of a user's adapter
        raise UsageError(
            f"{site.output}: this output was started with another adapter; to use this one, give a new --output"
        ) from None
    name = next(name for name in (*one, *other) if one.get(name) != other.get(name))
    _check_same(site, "id" if name == "foreign.id" else name, one.get(name), other.get(name))


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in table.items():
        out |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return out


def check_readable(
    adapter: Adapter, join: Join, options: JoinOptions, say: Callable[[str], None] = lambda line: None
) -> int:
    """Refuses a configuration with which no record at the beginning of a side can be read.

    A malformed record is rejected alone, even if a log begins with many. But if all sampled records are malformed,
    the configuration must be wrong, and verdicts would be final. Records skipped by a shape do not count. ``say``:
    called with implausible event times. Returns the size of the primary logs. Raises UsageError.
    """
    sides = (
        (
            "primary", options.primary, join.primary_files, adapter.primary_has_header, adapter.primary_framing,
            adapter.primary_links,
        ),
        (
            "foreign", options.foreign, join.foreign_files, adapter.foreign_has_header, adapter.foreign_framing,
            adapter.foreign_links,
        ),
    )  # fmt: skip
    primary_bytes = 0
    for side, directory, files, has_header, framing, links in sides:
        guard, (bad, first, times) = Guard(adapter), (0, "", list[int]())
        until = time.monotonic() + (adapter.time_limit_s or float("inf"))
        opened = Follower(directory, patterns=files, has_header=has_header, framing=framing, links=links)
        with closing(opened) as follower:
            follower.scan()
            primary_bytes = follower.backlog()[1] if side == "primary" else primary_bytes
            for file, record in _first_records(follower):
                (answer,) = guard.each([record], partial(_read, adapter, side, file), ends=True)
                if isinstance(answer, Fault):
                    bad += 1
                    first = first or f"{directory / file.path}: {answer.reason or 'bad record'}"
                elif answer is not None:
                    times += [answer.event_time_ns] if isinstance(answer, ForeignHeader) else []
                    if len(times) >= TIMES or side == "primary" or time.monotonic() > until:
                        break
            else:
                if bad >= MANY and not times:
                    raise UsageError(
                        f"none of the first {bad:,} {side} records can be read with this configuration; the first "
                        f"of {first}; photon adapter test shows them"
                    )
        if times and adapter.has_foreign_time and (odd := odd_times(times, _time_of(join))):
            say(odd)
    return primary_bytes


def _say_unreadable(adapter: Adapter, join: Join, options: JoinOptions, say: Callable[[str], None]) -> None:
    """Reports unreadable primary logs. While there are any, no event is declared unmatched."""
    follower = Follower(
        options.primary,
        patterns=join.primary_files,
        has_header=adapter.primary_has_header,
        framing=adapter.primary_framing,
        links=adapter.primary_links,
    )
    try:
        follower.scan()
        unread = follower.unread((ProblemKind.UNREADABLE,))
    finally:
        follower.close()
    if len(unread) > NAMED:
        say(f"{len(unread):,} primary logs cannot be read; the first {NAMED}:")
    for each in unread[:NAMED]:
        say(f"primary log {each}; make it readable: until then no event is declared unmatched")


def _time_of(join: Join) -> TimeConfig | None:
    """Returns the configured foreign event time; `None` if the adapter determines it."""
    table = (join.foreign or {}).get("time")
    return msgspec.convert(table, TimeConfig) if isinstance(table, dict) else None


def _read(adapter: Adapter, side: str, file: LogFile, record: bytes) -> ForeignHeader | bytes | None:
    """Reads a record through the adapter; `None` if the record is skipped."""
    try:
        return adapter.primary_key(record, file) if side == "primary" else adapter.foreign_header(record, file)
    except Skipped:
        return None


def _records_of(blocks: Sequence[Block]) -> Iterator[tuple[LogFile, bytes]]:
    """Yields the first records of each log, then the others."""
    each = max(10, SAMPLE_RECORDS // max(1, len(blocks)))
    lines = [(block.file, iter(block.data.split(b"\n")[:-1])) for block in blocks]
    for some in (each, None):
        for file, left in lines:
            yield from ((file, line.removesuffix(b"\r")) for line in islice(left, some))


def _first_records(follower: Follower) -> Iterator[tuple[LogFile, bytes]]:
    """Yields records of the first SAMPLE_BYTES, reading them as needed."""
    read = 0
    while read < SAMPLE_BYTES and (blocks := follower.poll(SAMPLE_STEP_BYTES, final=True)):
        read += sum(len(block.data) for block in blocks)
        yield from _records_of(blocks)
