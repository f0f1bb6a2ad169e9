"""``photon join``: dispatcher, joiner, event store, registry and verifier of one pipeline.

The same components as the services run; between them are direct calls in place of gRPC. Everything that must survive
lies in ``OUTPUT/.photon`` (see site.py), so that a kill at any instruction is repaired by running the command again.

The child processes are started as soon as it is known that they are wanted; what works with them here, in
``parts``, is imported while they start, or before, while the zygote that they are copies of gets ready.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from photon.adapters.containment import Fault, Guard
from photon.adapters.contract import Adapter, Framing, LogFile
from photon.adapters.join_adapters import adapter_of, join_named
from photon.adapters.logs.elsewhere import is_final
from photon.adapters.logs.follower import Follower
from photon.adapters.logs.problems import ProblemKind
from photon.config.clock import SystemClock
from photon.config.disk import Disk, RealDisk
from photon.config.errors import UsageError
from photon.config.loader import load
from photon.config.settings import Join, Settings, Side
from photon.config.stopping import Stopped, unless_stopped
from photon.config.topic_address import client_settings, topic_address, topic_in
from photon.fleet.ledger import ledger_file, read_ledger
from photon.joiner.slot.identity import OutOfStep
from photon.local_join.children import JoinOptions, children_of, refused, store_log
from photon.local_join.given import STDIN, Given, check_streams, given, standard_input
from photon.local_join.inferred import inferred_toml
from photon.local_join.site import Site
from photon.outputs import OutputPlace
from photon.outputs.output_places import EMBEDDED_STATE
from photon.outputs.relay import WHOLE_NAME, Relay
from photon.outputs.topic_relay import TopicRelay
from photon.supervision.zygote import Zygote

if TYPE_CHECKING:
    from photon.eventstore.client import EventStoreClient
    from photon.local_join.status import Status

SAMPLE_BYTES = 16 << 20
SAMPLE_RECORDS = 200
MANY = 20
NAMED = 3  # primary logs that are missing


@dataclass(frozen=True, slots=True)
class JoinResult:
    ledger: dict[str, int]
    rejected: int
    """Rejected in this run."""
    unread: tuple[str, ...]
    """A line for each foreign log that was not read to its end."""
    alike: tuple[str, ...]
    """A line for each foreign log that begins like another one, if their lines have no ids: what both begin with was
    counted once."""
    unended: tuple[str, ...]
    """A line for each foreign log whose last line waits for its end."""
    unowned: int
    """Output records whose id the registry does not know as theirs: doubled, or written without a registration."""
    stopped: bool = False
    """Ended by ``stop``, before all had a verdict."""


async def run(
    options: JoinOptions,
    *,
    stop: asyncio.Event,
    show: Callable[[Status], None],
    say: Callable[[str], None],
    zygote: Zygote | None = None,
) -> JoinResult:
    """Runs until everything has a verdict (``once``) or ``stop`` is set. ``say`` is told what a person should know.
    ``zygote``: of whom the child processes are copies.

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
        _configured(options, options.config)  # before anything is made
    disk, clock = RealDisk(), SystemClock()
    try:
        site.check_state(disk)
    except OutOfStep as other:
        raise refused(site, other) from None
    lock = site.take()
    relays: list[Relay | TopicRelay] = []
    try:
        for side, topic in topics.items():
            relays.append(_topic_relay(topic, f"--{side}", site.upstream(side), options, disk))
            bring = partial(_bring, relays[-1], site.upstream(side), disk, once=options.once)
            await unless_stopped(stop, asyncio.to_thread(bring))
        queries, clicks = (site.upstream(side) if side in topics else path for side, path in options.sides().items())
        options = replace(options, primary=queries, foreign=clicks)
        for side in options.sides().keys() - sides.keys():
            sides[side] = await unless_stopped(stop, standard_input(site.spool(side)))
        config = options.config or _inferred(sides, site, disk, say)
        settings, name, adapter = _configured(options, config)
        options = options.at(name, sides, adapter)
        settings, name, adapter = _configured(options, config)  # again: which files are read is a setting
        site.check_links(settings, config.parent, name, adapter, options.sides())
        options = _relayed(options, settings, name, site, disk, relays)
        if not ledger_file(site.state).exists():
            check_readable(adapter, settings.join[name], options)
        if not options.once and not is_final(options.primary):
            _say_unreadable(adapter, settings.join[name], options, say)
        before, begun = read_ledger(site.state)["rejected"], clock.monotonic()
        if zygote is not None:  # which is importing as well: nothing starts before it has
            import_module("photon.local_join.parts")
        async with children_of(options, config, settings, name, adapter, site, disk, zygote) as children:
            from photon.local_join.parts import open_parts, work

            async with open_parts(children, settings, adapter, site, disk, clock, stop) as parts:
                stopped = await work(parts, stop, show, say, () if options.once else relays)
                seen, primary = parts.dispatcher.status(), await parts.store.progress()
                if primary.missing_logs:
                    await _say_missing(parts.store, name, say)
                if primary.unended:
                    say(f"primary log {primary.unended}; events without a primary event wait as well")
                if primary.ambiguous:
                    many = "1 key has" if primary.ambiguous == 1 else f"{primary.ambiguous} keys have"
                    say(f"{many} several different primary events: {primary.ambiguous_example}")
                if bad := primary.bad_records:
                    say(
                        f"{bad} primary records cannot be read or name no key; no foreign event is joined with them "
                        f"(the first are named in {store_log(site)})"
                    )
                verified = parts.verifier.total
                if is_final(options.primary) or is_final(options.foreign):
                    from photon.objects.costs import costs_said

                    say(await costs_said(children.store, clock.monotonic() - begun))
        ledger = read_ledger(site.state)
        unowned = verified.refused + verified.unreadable
        rejected = ledger["rejected"] - before
        return JoinResult(ledger, rejected, seen.unread, seen.alike, seen.unended, unowned, stopped)
    except Stopped:  # while the parts were starting
        return JoinResult(read_ledger(site.state), 0, (), (), (), 0, True)
    finally:
        for each in relays:
            each.close()
        lock.release()


async def _say_missing(store: EventStoreClient, join: str, say: Callable[[str], None]) -> None:
    """Names the primary logs for which events wait."""
    details = await store.details()
    logs = [each for each in details.unavailable if each.keys and not each.forgotten]
    if len(logs) > NAMED:
        say(f"{len(logs):,} primary logs cannot be read; the first {NAMED}:")
    for each in logs[:NAMED]:
        todo = "make it readable"
        if not each.present:
            todo = (
                "put its file back, or call the events unmatched: run this again with "
                f"--set join.{join}.missing_logs=forget"
            )
        waiting = "1 key waits" if each.keys == 1 else f"{each.keys:,} keys wait"
        say(f"primary log {each.path}: {each.why}; {waiting} for it; {todo}")


def _topic_relay(topic: str, option: str, directory: Path, options: JoinOptions, disk: Disk) -> TopicRelay:
    """Raises UsageError, TopicUnreachable, OffsetsGone, ExtraMissing."""
    from photon.outputs.kafka_topic import KafkaTopic

    client = KafkaTopic(topic_address(topic, option), client_settings(options.kafka_client))
    return TopicRelay(disk, client, directory, accept_lost=options.accept_lost_offsets)


def _relayed(
    options: JoinOptions, settings: Settings, join: str, site: Site, disk: Disk, relays: list[Relay | TopicRelay]
) -> JoinOptions:
    """With the directory to which another join's output is brought, where a side is that and its directory the output
    of a ``photon join``. What is published now is brought at once; what brings more is added to ``relays``.

    Raises UsageError, CursorLost, OutputMissing, PublishedDamaged, RelayedLogLost, OSError.
    """
    sides: tuple[tuple[Side, Path], ...] = (("primary", options.primary), ("foreign", options.foreign))
    for side, output in sides:
        chained = settings.join[join].upstream(side) is not None and not is_final(output)
        if not chained or not (output / EMBEDDED_STATE).is_dir():
            continue
        relays.append(Relay(disk, OutputPlace.of_join(output), site.upstream(side), "joined"))
        brought = site.upstream(side)
        options = replace(options, primary=brought) if side == "primary" else replace(options, foreign=brought)
        _bring(relays[-1], brought, disk, once=options.once)
    return options


def _bring(relay: Relay | TopicRelay, into: Path, disk: Disk, *, once: bool) -> None:
    """What is there now; with ``once`` it is all there will ever be."""
    if not once:
        relay.pass_on_whole(SystemClock().now_ns())
        return
    relay.pass_on()
    if disk.exists(into / WHOLE_NAME):
        disk.remove(into / WHOLE_NAME)


def _configured(options: JoinOptions, config: Path) -> tuple[Settings, str, Adapter]:
    """Settings, the join's name, its adapter. Raises ConfigError, UsageError, AdapterError."""
    settings = load(config, environment=os.environ, flags=options.overrides)
    name = join_named(settings, options.join)
    join = settings.join[name]
    if join.match != "first" and options.keep_pending:
        raise UsageError(f'--keep-pending and match = "{join.match}": no event would ever be final; leave one out')
    if join.match != "first" and not options.once and join.unmatched_after is None:
        raise UsageError(
            f'join.{name}: match = "{join.match}" without --once: no event is ever final; add unmatched_after'
        )
    if join.unmatched == "inline" and options.keep_pending:
        raise UsageError('--keep-pending and unmatched = "inline": no event would ever be unmatched; leave one out')
    if join.unmatched == "inline" and not options.once and join.unmatched_after is None and join.within is None:
        raise UsageError(
            f'join.{name}: unmatched = "inline" without --once: no event is ever unmatched; add unmatched_after'
        )
    return settings, name, adapter_of(settings, name, config.parent)


def _inferred(sides: Mapping[str, Given], site: Site, disk: Disk, say: Callable[[str], None]) -> Path:
    """What the logs themselves say, found at the first run and kept since."""
    path = site.state / "inferred.toml"
    if not disk.exists(path):
        toml, why = inferred_toml(sides["primary"], sides["foreign"])
        disk.replace(path, toml.encode())
        for line in (*why, f"kept in {path}; correct it there, or name your own with --config"):
            say(line)
    return path


def check_readable(adapter: Adapter, join: Join, options: JoinOptions) -> None:
    """Refuses a configuration under which not one of the first records of a side can be read.

    A few malformed records are the logs' affair and are rejected one by one; when all of MANY are, it is the
    configuration that is wrong, and verdicts would be final. Raises UsageError.
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
    for side, directory, files, has_header, framing, links in sides:
        first = _first_records(directory, files, has_header=has_header, framing=framing, links=links)
        faults = [_fault(adapter, side, record, file) for file, each in first.items() for record in each]
        if len(faults) >= MANY and all(faults):
            raise UsageError(
                f"not one of the first {len(faults)} {side} records can be read with this configuration; "
                f"the first of {directory / next(iter(first)).path}: {faults[0]}; photon adapter test shows them"
            )


def _say_unreadable(adapter: Adapter, join: Join, options: JoinOptions, say: Callable[[str], None]) -> None:
    """Names the primary logs that cannot be read: while there is one, nothing is called unmatched."""
    follower = Follower(
        options.primary,
        patterns=join.primary_files,
        has_header=adapter.primary_has_header,
        framing=adapter.primary_framing,
    )
    try:
        follower.scan()
        unread = follower.unread((ProblemKind.UNREADABLE,))
    finally:
        follower.close()
    if len(unread) > NAMED:
        say(f"{len(unread):,} primary logs cannot be read; the first {NAMED}:")
    for each in unread[:NAMED]:
        say(f"primary log {each}; make it readable: until then no event is called unmatched")


def _fault(adapter: Adapter, side: str, record: bytes, file: LogFile) -> str:
    """Why a record cannot be read; empty when it can."""
    ask = adapter.primary_key if side == "primary" else adapter.foreign_header
    (answer,) = Guard(adapter).each([record], lambda given: ask(given, file))
    return (answer.reason or "bad record") if isinstance(answer, Fault) else ""


def _first_records(
    directory: Path, files: Sequence[str], *, has_header: bool, framing: Framing, links: Sequence[str]
) -> dict[LogFile, list[bytes]]:
    """The first records of each of the first logs."""
    follower = Follower(directory, patterns=files, has_header=has_header, framing=framing, links=links)
    try:
        follower.scan()
        blocks = follower.poll(SAMPLE_BYTES, final=True)
    finally:
        follower.close()
    first: dict[LogFile, list[bytes]] = {}
    each = max(10, SAMPLE_RECORDS // max(1, len(blocks)))
    for block in blocks:
        records = first.setdefault(block.file, [])
        if len(records) < each:
            records += [line.removesuffix(b"\r") for line in block.data.split(b"\n", each)[:-1][:each]]
    return first
