"""Keeps copies as a gRPC service, and runs it as a process. Each copy has a directory, a lock and a thread.

A copy's lock is held only during each change. ``photon slot retire`` takes the same lock to seal the copy, with or
without a running keeper.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import grpc

from photon.config.disk import Disk
from photon.config.metrics.disks import free_space
from photon.config.metrics.readings import ProcessMetrics, Readings
from photon.config.rpc import Context, abort
from photon.config.serving import Address, listen_for
from photon.config.structured import get_logger
from photon.config.tls import Tls
from photon.joiner.copies import copies_pb2 as pb
from photon.joiner.copies import wire
from photon.joiner.copies.api import EMPTY, CopyAnswer, CopyBytes, CopyOf, Status
from photon.joiner.copies.kept import CopyDamaged, KeptCopy
from photon.joiner.slot.identity import SlotRefused
from photon.joiner.slot.lock import SlotLock
from photon.outputs.output_places import kept_directory

REQUESTS_MAX = 64  # requests in flight; further ones are refused at once, and slots retry
SLOTS_MAX = 1024  # copies of one keeper
LOCK_WAIT_S = 5.0

Die = Callable[[str], NoReturn]

log = get_logger(__name__)


class Copies:
    def __init__(self, disk: Disk, state: Path, keeps: Sequence[str], die: Die) -> None:
        """``keeps``: datacentres whose copies are kept here.

        ``die``: called after a failed write or sync, when nothing can be trusted (rule 7).
        """
        self._disk = disk
        self._state = state
        self._keeps = frozenset(keeps)
        self._die = die
        self._copies: dict[CopyOf, KeptCopy] = {}
        self._received = self._refused = 0
        self._turns: dict[CopyOf, asyncio.Lock] = {}

    def reads(self, into: Readings) -> None:
        values = {"slots": len(self._copies), "received_bytes_total": self._received, "refused_total": self._refused}
        into.put_all("photon_copies", values)

    async def asked(self, of: CopyOf, ask: Callable[[KeptCopy], CopyAnswer], *, size: int = 0) -> CopyAnswer:
        """Makes one request of a copy, after earlier requests of the same copy. ``size``: bytes in the request."""
        answer = await self._asked(of, ask)
        self._refused += answer.status is not Status.OK
        self._received += size if answer.status is Status.OK else 0
        return answer

    async def _asked(self, of: CopyOf, ask: Callable[[KeptCopy], CopyAnswer]) -> CopyAnswer:
        if of.datacentre not in self._keeps:
            return _refused(
                f"copies of {of.datacentre} are not kept here: check the deployment file and the keeper's address"
            )
        if of not in self._turns and len(self._turns) >= SLOTS_MAX:
            return _refused(f"{SLOTS_MAX} copies are kept here, which is the limit")
        async with self._turns.setdefault(of, asyncio.Lock()):
            return await asyncio.to_thread(self._locked, of, ask)

    async def read(self, of: CopyOf, log: int, number: int, offset: int) -> CopyBytes:
        """Reads a copy that was opened before."""
        copy = self._copies.get(of)
        if copy is None:
            return CopyBytes(-1, b"")
        async with self._turns[of]:
            return await asyncio.to_thread(copy.read, log, number, offset)

    def _locked(self, of: CopyOf, ask: Callable[[KeptCopy], CopyAnswer]) -> CopyAnswer:
        directory = kept_directory(self._state, of.datacentre, of.slot)
        lock = SlotLock(directory)
        try:
            lock.take(wait_s=LOCK_WAIT_S)
        except SlotRefused as busy:
            return _refused(str(busy))
        try:
            copy = self._copies.get(of)
            if copy is None:
                copy = KeptCopy(self._disk, directory, of)
                copy.load()
                self._copies[of] = copy
            return ask(copy)
        except CopyDamaged as damaged:
            return _refused(str(damaged))
        except OSError as error:
            self._die(f"{directory}: {error}; free space or replace the disk, then start the keeper of copies again")
        finally:
            lock.release()


class CopiesService:
    def __init__(self, copies: Copies) -> None:
        self._copies = copies

    async def Open(self, request: pb.OpenCopy, context: Context) -> pb.CopyState:  # noqa: N802
        of = wire.copy_of(request.datacentre, request.slot)
        incarnation = wire.incarnation_in(request.incarnation)
        return wire.answer_out(await self._copies.asked(of, lambda copy: copy.open(incarnation)))

    async def Look(self, request: pb.LookCopy, context: Context) -> pb.CopyState:  # noqa: N802
        of = wire.copy_of(request.datacentre, request.slot)
        return wire.answer_out(await self._copies.asked(of, KeptCopy.look))

    async def Extend(self, request: pb.ExtendCopy, context: Context) -> pb.CopyState:  # noqa: N802
        of = wire.copy_of(request.datacentre, request.slot)
        extension = wire.extension_in(request)
        size = sum(len(part.data) for part in extension.parts)
        return wire.answer_out(await self._copies.asked(of, lambda copy: copy.extend(extension), size=size))

    async def Read(self, request: pb.ReadCopy, context: Context) -> pb.CopyPiece:  # noqa: N802
        of = wire.copy_of(request.datacentre, request.slot)
        if request.log >= len(EMPTY) or request.number > wire.NUMBER_MAX or request.offset > wire.LENGTH_MAX:
            await abort(context, grpc.StatusCode.INVALID_ARGUMENT, "no such place")
        return wire.piece_out(await self._copies.read(of, request.log, request.number, request.offset))


def _refused(why: str) -> CopyAnswer:
    return CopyAnswer(Status.REFUSED, 0, EMPTY, why)


async def serve(
    disk: Disk,
    state: Path,
    keeps: Sequence[str],
    address: Address,
    stop: asyncio.Event,
    up: Callable[[], None],
    die: Die,
    tls: Tls | None = None,
) -> None:
    """Serves until ``stop``; calls ``up`` once it serves. Raises CannotListen."""
    copies = Copies(disk, state, keeps, die)
    metrics = ProcessMetrics([copies.reads, free_space({"state": state})])

    service = CopiesService(copies)
    server = await listen_for(address, wire.COPIES, service, requests_max=REQUESTS_MAX, tls=tls, metrics=metrics)
    try:
        await server.serving()
        log.info("keeper of copies serves", keeps=list(keeps))
        up()
        await stop.wait()
    finally:
        await server.stop()
