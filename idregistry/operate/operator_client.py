"""Makes operators' calls to a registry's replicas: blocking, over one channel per replica, with one-line errors."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc

from photon.config.errors import PhotonError
from photon.config.roles import Role, identity
from photon.config.tls import Tls, open_blocking_channel, towards, unreachable
from photon.idregistry import registry_pb2 as pb
from photon.idregistry.client.channels import REGISTRY, REGISTRY_OPERATOR
from photon.idregistry.client.export_stream import ExportReader
from photon.idregistry.client.messages import described
from photon.idregistry.core.commands import Range
from photon.idregistry.core.marked_states import MARK_BYTES_MAX
from photon.idregistry.core.outcomes import Description
from photon.idregistry.operate.inspection import Inspection, groups_of, leader_of

CALL_SECONDS = 5.0
EXPORT_SECONDS = 3600.0  # time-out of one export; keepalive notices a dead connection much sooner
LEADER_SECONDS = 20.0  # longest wait for a leader
_PAUSE = 0.1
_OPTIONS = (
    *REGISTRY_OPERATOR.sizes,
    ("grpc.keepalive_time_ms", 2_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
)


@dataclass(frozen=True, slots=True)
class Mark:
    """Identifies a group's state at entry ``index``, which every replica keeps for a single ``export``."""

    group: int
    mark: bytes
    index: int
    term: int


class RegistryUnreachable(PhotonError):
    """A replica does not answer, or no leader was found. The message is one line."""


class RegistryRefuses(PhotonError):
    """A replica refuses a request. The message is one line."""


class OperatorClient:
    """An operator's client for all replicas of a deployment. ``close`` it at the end."""

    def __init__(self, addresses: Mapping[str, str], tls: Tls | None = None) -> None:
        """``addresses``: replica -> host:port as seen from here. ``tls``: ``None`` means plain text."""
        self.addresses = dict(addresses)
        self._tls = tls
        self._channels = {
            name: open_blocking_channel(address, _OPTIONS, towards(tls, identity(Role.REGISTRY, name)))
            for name, address in addresses.items()
        }
        self._stubs = {name: REGISTRY_OPERATOR.stub(channel) for name, channel in self._channels.items()}

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()

    def __enter__(self) -> OperatorClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- one replica --------------------------------------------------------------------------------------------
    def inspect_all(self, timeout: float = CALL_SECONDS) -> dict[str, Inspection]:
        asked = {
            name: stub.Inspect.future(pb.InspectRequest(), timeout=timeout) for name, stub in self._stubs.items()
        }
        return {name: self._inspected(name, future.result) for name, future in asked.items()}

    def measure_all(self, timeout: float = CALL_SECONDS) -> dict[str, Inspection]:
        """Like ``inspect_all``, but then asks each replica again, alone and over an open connection, to measure its
        distance and clock difference.
        """
        found = self.inspect_all(timeout)
        for name in [name for name, each in found.items() if each.reply is not None]:
            stub = self._stubs[name]
            sent = time.time_ns()
            each = self._inspected(name, partial(stub.Inspect, pb.InspectRequest(), timeout=timeout))
            came = time.time_ns()
            if each.reply is not None:
                ahead = (each.reply.clock_ns - (sent + came) / 2) / 1e9
                each = Inspection(name, each.reply, "", (came - sent) / 1e9, ahead)
            found[name] = each
        return found

    def _inspected(self, name: str, call: Callable[[], pb.InspectReply]) -> Inspection:
        try:
            reply = call()
        except grpc.RpcError as error:
            return Inspection(name, None, self._why(error), 0.0, 0.0)
        if reply.replica != name:
            return Inspection(name, None, f"{self.addresses[name]} is replica {reply.replica}", 0.0, 0.0)
        return Inspection(name, reply, "", 0.0, 0.0)

    def export(self, name: str, mark: Mark) -> ExportReader:
        """Fetches a marked state from one replica. Reading it raises ExportFailed, RegistryUnreachable."""
        request = pb.ExportRequest(group=mark.group, mark=mark.mark)
        stream = self._stubs[name].Export(request, timeout=EXPORT_SECONDS)

        def parts() -> Iterator[pb.ExportPart]:
            try:
                yield from stream
            except grpc.RpcError as error:
                raise RegistryUnreachable(f"replica {name}: {self._why(error)}, during the export") from None
            finally:
                stream.cancel()

        return ExportReader(parts(), f"group {mark.group} of replica {name}")

    def ranges(self) -> tuple[Range, ...]:
        """Returns the active shard config, from the first replica that knows it. Raises RegistryUnreachable."""
        for channel in self._channels.values():
            try:
                reply = described(REGISTRY.stub(channel).Describe(pb.DescribeRequest(), timeout=CALL_SECONDS))
            except grpc.RpcError:
                continue
            if isinstance(reply, Description) and reply.ranges:
                return reply.ranges
        raise RegistryUnreachable(f"no replica reported the shards: {', '.join(self.addresses)}")

    # -- the leader ---------------------------------------------------------------------------------------------
    def leader(self, group: int, timeout: float = LEADER_SECONDS) -> str:
        """Returns a group's leader. Raises RegistryUnreachable if none is found in time."""
        deadline = time.monotonic() + timeout
        while True:
            inspected = self.inspect_all().values()
            found = leader_of(inspected, group)
            if found:
                return found
            known = groups_of(inspected)
            if group not in known and all(each.reply is not None for each in inspected):
                raise RegistryRefuses(f"there is no group {group}; there are: {', '.join(map(str, known))}")
            if time.monotonic() >= deadline:
                raise RegistryUnreachable(
                    f"group {group} has no leader within {timeout:g} s: see photon doctor registry"
                )
            time.sleep(_PAUSE)

    def barrier(self, group: int) -> int:
        """Commits an entry that changes nothing, and returns its index. A replica that has applied it has applied
        every entry acknowledged before.

        Raises PhotonError.
        """
        return self.marked(group).index

    def marked(self, group: int) -> Mark:
        """Makes every replica keep its state at one entry, for ``export``. Raises PhotonError."""
        mark = b""

        def call(stub: Any) -> Any:
            nonlocal mark
            mark = os.urandom(MARK_BYTES_MAX)  # new for each try, as an earlier one may have been committed
            return stub.Barrier(pb.BarrierRequest(group=group, mark=mark), timeout=7)

        reply = self._at_leader(group, call)
        return Mark(group, mark, reply.index, reply.term)

    def transfer(self, group: int, to: str, timeout: float = LEADER_SECONDS) -> str:
        """Transfers a group's leadership to ``to``, or to any other replica if empty; returns the new leader.

        Raises PhotonError if this has not happened after ``timeout`` seconds.
        """
        before = self.leader(group)
        if to == before:
            return before
        deadline = time.monotonic() + timeout
        request = pb.TransferLeaderRequest(group=group, to=to)
        while True:
            self._at_leader(group, lambda stub: stub.TransferLeader(request, timeout=CALL_SECONDS), done=(to or None))
            until = min(deadline, time.monotonic() + 2.0)
            while time.monotonic() < until:
                now = leader_of(self.inspect_all().values(), group)
                if now and (now == to or (not to and now != before)):
                    return now
                time.sleep(_PAUSE)
            if time.monotonic() >= deadline:
                raise RegistryRefuses(
                    f"group {group} is still not led by {to or 'another replica'} after {timeout:g} s: check with "
                    "photon status registry that the replica is reachable and caught up"
                )

    def follow(self, name: str, epoch: int, members: Mapping[str, str]) -> None:
        """Tells one replica the next membership. Raises RegistryUnreachable, RegistryRefuses."""
        try:
            request = pb.FollowRequest(epoch=epoch, members=dict(members))
            reply = self._stubs[name].Follow(request, timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            raise RegistryUnreachable(f"replica {name}: {self._why(error)}") from None
        if reply.status != pb.STATUS_OK:
            raise RegistryRefuses(reply.reason)

    def open_shard(self, shard: int, boundary_ns: int | None) -> None:
        """Opens a restored shard. Raises PhotonError."""
        request = pb.OpenShardRequest(
            shard=shard, raise_boundary=boundary_ns is not None, boundary_ns=boundary_ns or 0
        )
        self._at_leader(shard, lambda stub: stub.OpenShard(request, timeout=7))

    def register_again(self, request: pb.RegisterAgainRequest) -> bytes:
        """Registers ids again in a restored shard; returns one answer per id. Raises PhotonError."""
        reply = self._at_leader(request.shard, lambda stub: stub.RegisterAgain(request, timeout=7))
        answers: bytes = reply.answers
        return answers

    def _why(self, error: Any) -> str:
        """Describes an error in a few words. ``error``: a grpc.RpcError, whose ``code`` the type stubs lack."""
        code = error.code()
        if code is grpc.StatusCode.PERMISSION_DENIED:
            return "refused: the presented certificate is not an operator's"
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return "runs another release of Photon"
        said = unreachable(error, tls=self._tls is not None)
        return code.name.lower().replace("_", " ") if said.startswith(code.name) else said

    def _at_leader(self, group: int, call: Callable[[Any], Any], done: str | None = None) -> Any:
        """Makes a repeatable call at a group's leader. Returns ``None`` without a call if ``done`` already leads."""
        deadline = time.monotonic() + LEADER_SECONDS
        why = "no leader"
        while time.monotonic() < deadline:
            name = self.leader(group, max(deadline - time.monotonic(), 0.1))
            if name == done:
                return None
            try:
                reply = call(self._stubs[name])
            except grpc.RpcError as error:
                why = f"replica {name}: {self._why(error)}"
            else:
                if reply.status == pb.STATUS_OK:
                    return reply
                if reply.status == pb.STATUS_REFUSED:
                    raise RegistryRefuses(reply.reason)
                why = reply.reason or f"replica {name} no longer leads the group"
            time.sleep(_PAUSE)
        raise RegistryUnreachable(f"group {group}: {why}")
