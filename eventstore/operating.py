"""What an operator asks of an event store over gRPC: its sources and unavailable logs, and to give logs up."""

from __future__ import annotations

from collections.abc import Sequence

import grpc

from photon.config.errors import PhotonError
from photon.config.rpc import Context, abort
from photon.eventstore import columns
from photon.eventstore import eventstore_pb2 as pb
from photon.eventstore.api import Details, Forgotten, OperatedStore, SourceProgress, UnavailableLog
from photon.eventstore.client import EventStoreClient

LISTED_MAX = 20_000
"""Sources, and unavailable logs, in one reply at most."""
NAMES_MAX = 4096
"""Logs named in one request."""


class EventStoreUnreachable(PhotonError):
    """The event store did not answer an operator: one line."""


# -- messages ----------------------------------------------------------------------------------------------------
def details_reply(details: Details) -> pb.ProgressReply:
    reply = columns.progress_reply(details.progress)
    reply.sources.extend(
        pb.PrimarySource(**{name: getattr(each, name) for name in SourceProgress.__slots__})
        for each in details.sources[:LISTED_MAX]
    )
    reply.unavailable.extend(_unavailable(details.unavailable[:LISTED_MAX]))
    return reply


def details_of(message: pb.ProgressReply) -> Details:
    sources = tuple(
        SourceProgress(**{name: getattr(each, name) for name in SourceProgress.__slots__}) for each in message.sources
    )
    return Details(columns.progress_of(message), sources, _unavailable_of(message.unavailable))


def forget_reply(forgotten: Forgotten) -> pb.ForgetReply:
    return pb.ForgetReply(logs=_unavailable(forgotten.logs[:LISTED_MAX]), refused=forgotten.refused)


def forgotten_of(message: pb.ForgetReply) -> Forgotten:
    return Forgotten(_unavailable_of(message.logs), tuple(message.refused))


def _unavailable(logs: Sequence[UnavailableLog]) -> list[pb.UnavailableLog]:
    return [pb.UnavailableLog(**{name: getattr(each, name) for name in UnavailableLog.__slots__}) for each in logs]


def _unavailable_of(messages: Sequence[pb.UnavailableLog]) -> tuple[UnavailableLog, ...]:
    return tuple(
        UnavailableLog(**{name: getattr(each, name) for name in UnavailableLog.__slots__}) for each in messages
    )


# -- server ----------------------------------------------------------------------------------------------------
async def forget(store: OperatedStore, request: pb.ForgetRequest, context: Context) -> pb.ForgetReply:
    try:
        return forget_reply(await store.forget(list(request.logs), apply=request.apply))
    except OSError as err:
        await abort(context, grpc.StatusCode.INTERNAL, f"not given up: {err.filename}: {err.strerror or err}")


# -- client ----------------------------------------------------------------------------------------------------
class EventStoreOperator(EventStoreClient):
    """An EventStoreClient that also asks what operators ask."""

    async def details(self) -> Details:
        """See api.OperatedStore. Raises EventStoreUnreachable."""
        try:
            return details_of(
                await self._stub.Progress(pb.ProgressRequest(join=self._join, details=True), timeout=self._timeout)
            )
        except grpc.aio.AioRpcError as err:
            raise EventStoreUnreachable(self._line(err)) from None

    async def forget(self, logs: Sequence[str], *, apply: bool) -> Forgotten:
        """See api.OperatedStore. Raises EventStoreUnreachable; what was asked may then have been done."""
        try:
            return forgotten_of(
                await self._stub.Forget(
                    pb.ForgetRequest(join=self._join, logs=logs, apply=apply), timeout=self._timeout
                )
            )
        except grpc.aio.AioRpcError as err:
            raise EventStoreUnreachable(self._line(err)) from None
