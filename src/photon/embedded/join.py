"""``photon join``: dispatcher, joiner, event store, registry and verifier of one pipeline.

The same components as the services run; between them are direct calls in place of gRPC. Everything that must survive
lies in ``OUTPUT/.photon`` (see site.py), so that a kill at any instruction is repaired by running the command again.

The child processes are started as soon as it is known that they are wanted; what works with them here, in
``join_parts``, is imported while they start, or before, while the zygote that they are copies of gets ready.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from photon.adapters.contract import Adapter
from photon.config.clock import SystemClock
from photon.config.disk import Disk, RealDisk
from photon.config.errors import PhotonError, UsageError
from photon.config.loader import load
from photon.config.settings import Settings
from photon.config.stopping import Stopped
from photon.embedded.adapter import adapter_of, join_named, rule_hash
from photon.embedded.ledger import ledger_file, read_ledger
from photon.embedded.preview import check_readable, inferred_toml
from photon.embedded.registry import RegistryPlan, start_replicas
from photon.embedded.site import Site
from photon.embedded.sockets import socket_address
from photon.embedded.supervisor import Service, Supervisor
from photon.embedded.zygote import Zygote
from photon.idregistry.api import Digester
from photon.joiner.slot.identity import OutOfStep

if TYPE_CHECKING:
    from photon.embedded.status import Status


@dataclass(frozen=True, slots=True)
class JoinOptions:
    """What the command was told."""

    primary: Path
    foreign: Path
    output: Path
    config: Path | None = None
    """None: look at the logs and infer it."""
    overrides: tuple[str, ...] = ()
    join: str | None = None
    once: bool = False
    keep_pending: bool = False
    replicas: int = 1
    stages: Path | None = None
    """The event store's process writes its stages beside this file."""


@dataclass(frozen=True, slots=True)
class Children:
    """The processes of a run beside its own."""

    options: JoinOptions
    join: str
    digester: Digester
    supervisor: Supervisor
    store: str
    """The event store's address."""
    plan: RegistryPlan
    replicas: dict[str, str]
    """The registry's, name -> address; none: it is in this process."""


class JoinFailed(PhotonError):
    """A part of the pipeline failed; what was done until then is durable."""


@dataclass(frozen=True, slots=True)
class JoinResult:
    """How a run ended."""

    ledger: dict[str, int]
    rejected: int
    """In this run."""
    unread: tuple[str, ...]
    """A line for each foreign log that was not read to its end."""
    unended: tuple[str, ...]
    """A line for each foreign log whose last line waits for its end."""
    unowned: int
    """Output records whose id the registry does not know as theirs: doubled, or written without a registration."""
    stopped: bool = False
    """By ``stop``, before all had a verdict."""


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
    site.check_logs("primary", options.primary)
    site.check_logs("foreign", options.foreign)
    if options.config is not None:
        _configured(options, options.config)  # before anything is made
    disk, clock = RealDisk(), SystemClock()
    try:
        site.check_state(disk)
    except OutOfStep as other:
        raise refused(site, other) from None
    lock = site.take()
    try:
        config = options.config or _inferred(options, site, disk, say)
        settings, name, adapter = _configured(options, config)
        if not ledger_file(site.state).exists():
            check_readable(adapter, options.primary, options.foreign)
        before = read_ledger(site.state)["rejected"]
        if zygote is not None:  # which is importing as well: nothing starts before it has
            import_module("photon.embedded.join_parts")
        async with _children(options, config, settings, name, adapter, site, disk, zygote) as children:
            from photon.embedded.join_parts import open_parts, work

            async with open_parts(children, settings, adapter, site, disk, clock, stop) as parts:
                stopped = await work(parts, stop, show)
                seen, primary = parts.dispatcher.status(), await parts.store.progress()
                if primary.unended:
                    say(f"primary log {primary.unended}; events without a primary event wait as well")
                if primary.ambiguous:
                    many = "1 key has" if primary.ambiguous == 1 else f"{primary.ambiguous} keys have"
                    say(f"{many} several different primary events: {primary.ambiguous_example}")
                if bad := primary.bad_records:
                    say(
                        f"{bad} primary records cannot be read or name no key; no foreign event is joined with them "
                        f"(the first are named in {_store_log(site)})"
                    )
                verified = parts.verifier.total
        ledger = read_ledger(site.state)
        unowned = verified.refused + verified.unreadable
        return JoinResult(ledger, ledger["rejected"] - before, seen.unread, seen.unended, unowned, stopped)
    except Stopped:  # while the parts were starting
        return JoinResult(read_ledger(site.state), 0, (), (), 0, True)
    finally:
        lock.release()


def refused(site: Site, other: OutOfStep) -> UsageError:
    """State and output are not of one age, said to who runs a join: one line."""
    return UsageError(
        f"{other.reason}. Nothing was changed. Put the newest {site.state} and the output beside it back, both of "
        "one moment; where there is none, name another --output: everything is joined again there, and the records "
        f"in {site.output} must not be counted beside it"
    )


def _configured(options: JoinOptions, config: Path) -> tuple[Settings, str, Adapter]:
    """Settings, the join's name, its adapter. Raises ConfigError, UsageError, AdapterError."""
    settings = load(config, environment=os.environ, flags=options.overrides)
    name = join_named(settings, options.join)
    return settings, name, adapter_of(settings, name, config.parent)


def _inferred(options: JoinOptions, site: Site, disk: Disk, say: Callable[[str], None]) -> Path:
    """What the logs themselves say, found at the first run and kept since."""
    path = site.state / "inferred.toml"
    if not disk.exists(path):
        toml, why = inferred_toml(options.primary, options.foreign)
        disk.replace(path, toml.encode())
        for line in (*why, f"kept in {path}; correct it there, or name your own with --config"):
            say(line)
    return path


@contextlib.asynccontextmanager
async def _children(
    options: JoinOptions,
    config: Path,
    settings: Settings,
    name: str,
    adapter: Adapter,
    site: Site,
    disk: Disk,
    zygote: Zygote | None,
) -> AsyncIterator[Children]:
    """Begins to start the child processes, and ends them."""
    digester = Digester(site.key(disk), name)
    async with contextlib.AsyncExitStack() as stack:
        address = stack.enter_context(socket_address(site.state, "eventstore"))
        supervisor = Supervisor(zygote=zygote)
        stack.push_async_callback(supervisor.stop)
        await supervisor.start([_store_service(options, config, name, site, address)])
        plan = RegistryPlan(options.replicas, {name: rule_hash(adapter, digester)})
        replicas = await start_replicas(site, settings, plan, supervisor, disk)
        yield Children(options, name, digester, supervisor, address, plan, replicas)


def _store_log(site: Site) -> Path:
    return site.state / "logs" / "eventstore.log"


def _store_service(options: JoinOptions, config: Path, name: str, site: Site, address: str) -> Service:
    """The event store reads primary logs in a process of its own: it has a core to itself that way."""
    arguments = ["serve", "eventstore", "--config", str(config.absolute()), "--join", name, "--stop-with-parent"]
    arguments += ["--primary", str(options.primary.absolute()), "--state", str(site.file_map.absolute())]
    arguments += ["--address", address, *(["--once"] if options.once else [])]
    arguments += ["--may-be-empty"] if options.keep_pending else []
    if options.stages is not None:
        arguments += ["--stages", str(options.stages.absolute().with_suffix(".eventstore.json"))]
    for override in options.overrides:
        arguments += ["--set", override]
    return Service("event store", tuple(arguments), _store_log(site), address)
