"""Carries frames over gRPC: a client stream to each peer, on each replica's only port.

Sending and receiving run on the server's event loop; the host's thread wakes it at most once for everything to send.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import grpc
import grpc.aio

from photon.config.back_off import BackOff
from photon.config.clock import Clock
from photon.config.roles import Role, identity
from photon.config.rpc import UNPROBED, Context, Service, abort, back_off
from photon.config.structured import get_logger
from photon.config.tls import Tls, Towards, caller, open_channel, towards
from photon.idregistry.raft import peer_pb2
from photon.idregistry.raft.options import FRAME_BYTES_MAX, FRAME_MESSAGES_MAX, MESSAGE_BYTES_MAX, QUEUE_BYTES_MAX
from photon.idregistry.raft.transport import GroupMessage, Hello, Receiver, Refused

log = get_logger(__name__)

RECONNECTING = BackOff(first=0.05, most=1.0)
REFUSED_PAUSE = 1.0
SILENCE_MAX = 5.0  # after this long without a sign from a peer, its stream is reopened: it may be dead
_OTHER_FIELDS = 16  # fields of a frame besides its messages
_PEER = Service(peer_pb2.DESCRIPTOR, "RaftPeer", fields_max=FRAME_MESSAGES_MAX + _OTHER_FIELDS)
_CHANNEL_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),
    *back_off(100, 1000, attempt_ms=1000),  # an attempt takes several round trips
    ("grpc.enable_retries", 0),
    *UNPROBED,
)


class GrpcNetwork:
    """Implements ``transport.Network``."""

    def __init__(self, peers: Mapping[str, str], tls: Tls | None, clock: Clock) -> None:
        """``peers``: name -> host:port. ``tls``: ``None`` means plain text, for a private network."""
        self._tls = tls
        self._links = {
            name: _Link(name, address, towards(tls, identity(Role.REGISTRY, name)), clock)
            for name, address in peers.items()
        }
        self._receiver: Receiver | None = None
        self._hello: Hello | None = None
        self._servicer = _Servicer(self)

    def add_to_server(self, server: grpc.aio.Server) -> None:
        self._loop = asyncio.get_running_loop()
        _PEER.add(server, self._servicer)

    def start(self, hello: Hello, receiver: Receiver) -> None:
        self._hello = hello
        self._receiver = receiver
        for link in self._links.values():
            link.start(hello, receiver, self._loop)

    def send(self, peer: str, messages: Sequence[GroupMessage]) -> None:
        self._links[peer].send(messages)

    def stop(self) -> None:
        if self._receiver is None:
            return
        self._receiver = None
        for link in self._links.values():
            link.stop()

    def hang_up(self) -> None:
        """Ends the peers' streams to this server; otherwise a stopping server would wait for them. Call it on the
        server's event loop.
        """
        self._servicer.hang_up()

    @property
    def running(self) -> bool:
        return self._receiver is not None

    def take(self, frame: peer_pb2.PeerFrame, shown: str = "") -> Refused | None:
        """Handles a frame from a stream; returns a refusal or ``None``. The server's receive limit bounds its size.

        ``shown``: the owner of the sender's certificate. With TLS a replica must show its own certificate: otherwise
        the holder of any certificate of the deployment could vote or acknowledge entries in its name.
        """
        receiver, hello = self._receiver, self._hello
        assert receiver is not None
        assert hello is not None
        if self._tls is not None and shown != identity(Role.REGISTRY, frame.sender):
            return Refused(
                f"the certificate belongs to {shown or 'no identity'}, not to replica {frame.sender!r}", fatal=False
            )
        if frame.receiver != hello.name:
            return Refused(f"this is replica {hello.name}, not {frame.receiver}: check the addresses", fatal=False)
        messages = [(each.group, each.payload) for each in frame.messages]  # each access creates an object
        if _too_large(messages):
            return Refused("frame too large", fatal=False)
        link = self._links.get(frame.sender)
        if link is not None:
            link.heard_at = link.now()
        return receiver.receive(Hello(frame.sender, frame.disk, frame.epoch), messages)


def _too_large(messages: Sequence[GroupMessage]) -> bool:
    return len(messages) > FRAME_MESSAGES_MAX or any(len(payload) > MESSAGE_BYTES_MAX for _, payload in messages)


class _Servicer:
    def __init__(self, network: GrpcNetwork) -> None:
        self._network = network
        self._streams: set[asyncio.Task[Any]] = set()
        self._hung_up = False

    def hang_up(self) -> None:
        self._hung_up = True
        for stream in self._streams:
            stream.cancel()

    async def Exchange(  # noqa: N802 - the service's name
        self, request_iterator: AsyncIterator[peer_pb2.PeerFrame], context: Context
    ) -> peer_pb2.PeerAck:
        stream = asyncio.current_task()
        assert stream is not None
        self._streams.add(stream)
        try:
            return await self._take_all(request_iterator, context)
        except asyncio.CancelledError:
            if not self._hung_up:
                raise
            return peer_pb2.PeerAck()
        finally:
            self._streams.discard(stream)

    async def _take_all(
        self, request_iterator: AsyncIterator[peer_pb2.PeerFrame], context: Context
    ) -> peer_pb2.PeerAck:
        shown = caller(context)
        async for frame in request_iterator:
            if not self._network.running:
                await abort(context, grpc.StatusCode.UNAVAILABLE, "this replica is not running")
            refusal = self._network.take(frame, shown)
            if refusal is not None:
                kind = peer_pb2.REFUSAL_OTHER_DISK if refusal.fatal else peer_pb2.REFUSAL_STRANGER
                return peer_pb2.PeerAck(refusal=kind, reason=refusal.reason)
        return peer_pb2.PeerAck()


class _Link:
    """Sends frames to one peer: a bounded queue, and a task that keeps a stream open."""

    def __init__(self, peer: str, address: str, to: Towards | None, clock: Clock) -> None:
        self.now = clock.monotonic
        self._peer = peer
        self._address = address
        self._to = to
        self._lock = threading.Lock()
        self._queue: deque[GroupMessage] = deque()
        self._bytes = 0
        self._ping = False
        self._told = False  # the loop was notified of the queue, but has not looked yet
        self._news = asyncio.Event()  # something to send, or the stream has ended
        self._call: Any = None
        self._began = 0.0  # when the stream was opened
        self.heard_at = clock.monotonic()
        self.dropped = 0

    def start(self, hello: Hello, receiver: Receiver, loop: asyncio.AbstractEventLoop) -> None:
        self._hello = hello
        self._receiver = receiver
        self._loop = loop
        self._on_loop(self._begin)

    def send(self, messages: Sequence[GroupMessage]) -> None:
        with self._lock:
            if not messages:
                self._ping = True
            for message in messages:
                self._queue.append(message)
                self._bytes += len(message[1])
            while self._bytes > QUEUE_BYTES_MAX:
                self._bytes -= len(self._queue.popleft()[1])
                self.dropped += 1
            told, self._told = self._told, True
        if not told:
            self._on_loop(self._look)

    def stop(self) -> None:
        self._on_loop(lambda: self._task.cancel())

    def _on_loop(self, act: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
            self._loop.call_soon_threadsafe(act)

    # --- on the event loop ------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._run(), name=f"raft-to-{self._peer}")

    def _look(self) -> None:
        """Cancels a silent stream. Every send calls it, so it runs at least once per ping, without a timer."""
        self._told = False
        self._news.set()
        if self._call is not None and self.now() - max(self._began, self.heard_at) > SILENCE_MAX:
            self._call.cancel()

    async def _run(self) -> None:
        pauses = RECONNECTING.pauses()
        while True:
            self._began = self.now()
            pause = await self._exchange()
            if self.now() - self._began > 2 * RECONNECTING.most:
                pauses = RECONNECTING.pauses()
            await asyncio.sleep(max(pause, next(pauses)))
            with self._lock:
                self._queue.clear()  # outdated: acknowledgements and requests that nobody waits for
                self._bytes = 0

    async def _exchange(self) -> float:
        """Runs one stream from its opening to its end; returns how many seconds to wait before the next, at least."""
        self._ping = True
        channel = open_channel(self._address, _CHANNEL_OPTIONS, self._to)
        self._call = call = _PEER.stub(channel).Exchange()
        call.add_done_callback(lambda _: self._news.set())
        try:
            while not call.done():
                if self._queue or self._ping:
                    await call.write(self._next_frame())
                else:
                    self._news.clear()
                    await self._news.wait()
            ack = await call
            if ack.refusal != peer_pb2.REFUSAL_NONE:
                fatal = ack.refusal == peer_pb2.REFUSAL_OTHER_DISK
                self._receiver.refused(self._peer, Refused(ack.reason, fatal=fatal))
                return REFUSED_PAUSE
        except (grpc.RpcError, asyncio.InvalidStateError):
            pass  # the peer is not there, or gone; retried
        except asyncio.CancelledError:
            if self._task.cancelling():  # otherwise the stream was abandoned
                raise
        finally:
            self._call = None
            await channel.close(None)
        return 0.0

    def _next_frame(self) -> peer_pb2.PeerFrame:
        frame = peer_pb2.PeerFrame(
            sender=self._hello.name, receiver=self._peer, disk=self._hello.disk, epoch=self._hello.epoch
        )
        size = 0
        self._ping = False
        with self._lock:
            while self._queue and len(frame.messages) < FRAME_MESSAGES_MAX:
                group, payload = self._queue[0]
                if size and size + len(payload) > FRAME_BYTES_MAX:
                    break
                self._queue.popleft()
                self._bytes -= len(payload)
                size += len(payload)
                frame.messages.add(group=group, payload=payload)
        return frame
