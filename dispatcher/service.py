"""The dispatcher's status as a gRPC service: what it says of itself, beside its health."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from photon.config.metrics.readings import ProcessMetrics
from photon.config.rpc import Context
from photon.dispatcher import dispatcher_pb2 as pb
from photon.dispatcher.status import Status


@dataclass(frozen=True, slots=True)
class Sharing:
    """One of several workers: its name, and where those that live are asked, itself included."""

    worker: str
    addresses: Sequence[str]


class DispatcherService:
    """Answers from a snapshot at the moment of the request."""

    def __init__(
        self,
        datacentre: str,
        join: str,
        status: Callable[[], Status],
        metrics: ProcessMetrics,
        sharing: Callable[[], Sharing] | None = None,
    ) -> None:
        """``metrics``: what it says of itself beside this. ``sharing`` None: it has its state alone."""
        self.metrics = metrics
        self._sharing = sharing
        self._datacentre = datacentre
        self._join = join
        self._status = status

    async def Status(self, request: pb.StatusRequest, context: Context) -> pb.StatusReply:  # noqa: N802
        message = reply(self._datacentre, self._join, self._status())
        if self._sharing is not None:
            shared = self._sharing()
            message.worker = shared.worker
            message.workers.extend(shared.addresses)
        return message


def reply(datacentre: str, join: str, status: Status) -> pb.StatusReply:
    verdicts = {verdict.name.lower(): count for verdict, count in status.verdicts.items()}
    apart = {
        "reread": status.reread,
        "wasted": status.wasted,
        "retimed": status.retimed,
        "ambiguous": status.ambiguous,
    }
    return pb.StatusReply(
        datacentre=datacentre,
        join=join,
        ledger={"read": status.read, **verdicts, "pending": status.pending, **apart},
        bytes_read=status.bytes_read,
        bytes_known=status.bytes_known,
        in_flight=status.in_flight,
        stored=status.stored,
        stored_bytes=status.stored_bytes,
        oldest_stored_ns=status.oldest_stored_ns or 0,
        joiners_failing=status.joiners_failing,
        waiting_for_home=status.left,
        look_ups=status.look_ups,
        attempts=status.attempts,
        oldest_first_read_ns=status.oldest_first_read_ns or 0,
        head_start_ns=int(status.head_start_s * 1e9),
        homes=[
            pb.Home(datacentre=home.datacentre, trusted=home.trusted, left=home.left, in_time=home.in_time)
            for home in status.homes
        ],
        caught_up=status.caught_up,
        problems=status.problems,
        reopened=status.reopened,
        reopened_missing=status.reopened_missing,
        lag=pb.Lag(
            logs=status.lag.logs,
            behind=status.lag.behind,
            bytes=status.lag.bytes,
            oldest_ns=status.lag.oldest_ns or 0,
            worst=[pb.LogLag(path=lag.path, bytes=lag.bytes, since_ns=lag.since_ns) for lag in status.lag.worst],
        ),
    )
