"""``photon serve observe``: runs the observers of a program configured by ``[observe.NAME]``."""

from __future__ import annotations

import asyncio
import os
import threading

from photon.assembly.room import Room
from photon.config.metrics.readings import ProcessMetrics
from photon.config.roles import Role, identity
from photon.config.stopping import first, until
from photon.config.structured import get_logger
from photon.tables.api import StoreFailed
from photon.tables.configured import IDENTITY
from photon.tables.program import Program

AGAIN_S = 2.0  # pause before another attempt if the store does not answer

log = get_logger(__name__)


async def serve_observe(room: Room) -> None:
    """Runs the observers of a program. Its paths are relative to the deployment file's directory. Raises UsageError,
    and any error of opening its tables."""
    known = {f"{name}-{n}": (name, each, address) for name, each in room.settings.observe.items()
             for n, address in enumerate(each.addresses, 1)}  # fmt: skip
    name, configured, address = room.one_of("observe", known)
    base, tls = room.base.resolve(), room.tls(Role.OBSERVE, name)
    os.chdir(base)
    IDENTITY.set(identity(Role.OBSERVE, name))
    program = Program(base / configured.file)
    try:
        metrics = ProcessMetrics([program.read], program.details)
        async with room.answering("observe", address, metrics, tls):
            log.info("observers serve", name=room.member, observers=program.observers)
            room.up()
            while not room.stop.is_set():
                await _run(program, configured.threads, room.stop)
                await until(room.stop, AGAIN_S)
    finally:
        program.close()


async def _run(program: Program, threads: int, stop: asyncio.Event) -> None:
    """Runs the observers until ``stop`` is set or the store fails."""
    ending = threading.Event()
    running = asyncio.create_task(asyncio.to_thread(program.run, ending, threads=threads))
    await first(stop, [running])
    ending.set()
    try:
        await running
    except StoreFailed as failed:
        log.warning("observers wait: the store does not answer", error=str(failed))
