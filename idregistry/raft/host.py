"""A replica: one thread that drives all its groups, and sleeps when none has work."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import structlog

from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.idregistry.raft.api import Group, StateMachine
from photon.idregistry.raft.codec import BadMessage, Message, decode, encode
from photon.idregistry.raft.group import Outcome, RaftGroup
from photon.idregistry.raft.identity import Identity, group_directory
from photon.idregistry.raft.options import INBOX_BYTES_MAX, RaftOptions, RaftStopped
from photon.idregistry.raft.transport import GroupMessage, Hello, Network, Refused

if TYPE_CHECKING:
    import grpc.aio

    from photon.config.tls import Tls

log = structlog.get_logger(__name__)

_NEVER = float("inf")
_SLEEP_MAX = 60.0


class RaftHost:
    """All groups of one replica. ``start`` and ``stop`` it, or, in a simulation, ``open`` it and ``pump`` it.

    Any exception while driving ends the whole replica (fail-stop): ``healthy`` turns false, what was proposed is
    answered Unknown, nothing is sent any more.
    """

    def __init__(
        self,
        *,
        name: str,
        peers: Mapping[str, str],
        directory: Path,
        machines: Mapping[int, StateMachine],
        disk: Disk,
        clock: Clock,
        options: RaftOptions | None = None,
        network: Network | None = None,
        tls: Tls | None = None,
        random: Random | None = None,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """``peers`` are all replicas, this one included: name -> host:port. ``network`` None: gRPC between them,
        in plain text if ``tls`` is None."""
        if name not in peers:
            raise ValueError(f"raft: {name} is not among the replicas {sorted(peers)}")
        self._name = name
        self._members = sorted(peers)
        self._others = [each for each in self._members if each != name]
        self._directory = directory
        self._disk = disk
        self._clock = clock
        self._options = options or RaftOptions()
        self._entropy = entropy
        self._network = network
        if network is None and self._others:
            from photon.idregistry.raft.wire import GrpcNetwork  # not for embedded use

            self._network = GrpcNetwork({each: peers[each] for each in self._others}, tls, clock)
        self._groups = {
            number: RaftGroup(
                number=number,
                name=name,
                peers=self._others,
                directory=group_directory(directory, number),
                machine=machine,
                disk=disk,
                clock=clock,
                random=random or Random(),
                options=self._options,
                wake=self._wake_up,
            )
            for number, machine in sorted(machines.items())
        }
        self._identity: Identity | None = None
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._running = False
        self._lock = threading.Lock()
        self._inbox: deque[tuple[str, int, bytes]] = deque()
        self._inbox_bytes = 0
        self._signs: set[str] = set()
        self._heard: dict[str, float] = {}
        self._connected: set[str] = set()
        self._sent: dict[str, float] = {}
        self._full = False
        self.dropped = 0
        """Messages received and thrown away: inbox full, of no group, or unreadable."""

    # --- any thread -------------------------------------------------------------------------------------------

    @property
    def healthy(self) -> bool:
        """False before ``start``, after ``stop``, and once the replica stopped by itself."""
        return self._running and self._failure is None

    @property
    def failure(self) -> BaseException | None:
        """Why the replica stopped by itself."""
        return self._failure

    @property
    def writable(self) -> bool:
        """False while the disk is full; the replica takes no part then, and goes on by itself when there is room."""
        return all(group.state().writable for group in self._groups.values())

    def group(self, number: int) -> Group:
        """Raises KeyError."""
        return self._groups[number]

    def transfer_leadership(self, number: int, to: str | None = None) -> None:
        """Where this replica leads the group: another one shall (None: the one that is furthest). Thread-safe.

        Best effort: the caller watches ``state``. Raises KeyError, and ValueError when ``to`` is no other replica.
        """
        self._groups[number].transfer(to)

    def add_to_server(self, server: grpc.aio.Server) -> None:
        """Registers the RaftPeer service, if there are peers and they speak gRPC. Call before the server starts."""
        from photon.idregistry.raft.wire import GrpcNetwork

        if isinstance(self._network, GrpcNetwork):
            self._network.add_to_server(server)

    def start(self) -> None:
        """Returns when the disks are read and the thread runs. Raises what reading raised."""
        if self._thread is not None:
            raise RuntimeError("raft: a host starts once")
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), name=f"raft-{self._name}", daemon=True)
        self._thread.start()
        ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def stop(self) -> None:
        """Ends the thread; open proposals are answered Unknown first. Idempotent."""
        self._stopping = True
        self._wake_up()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def receive(self, hello: Hello, messages: Sequence[GroupMessage]) -> Refused | None:
        """Takes a frame from the network."""
        if self._identity is None:
            return Refused(f"{self._name} is starting", fatal=False)
        refusal = self._identity.check(hello)
        if refusal is not None:
            return refusal
        with self._lock:
            new = hello.name not in self._signs
            self._signs.add(hello.name)
            for number, payload in messages:
                if self._inbox_bytes + len(payload) > INBOX_BYTES_MAX or number not in self._groups:
                    self.dropped += 1
                    continue
                self._inbox.append((hello.name, number, payload))
                self._inbox_bytes += len(payload)
        if messages or new:
            self._wake_up()
        return None

    def refused(self, peer: str, refusal: Refused) -> None:
        """A peer does not take our frames."""
        if not refusal.fatal:
            log.warning("raft.refused", peer=peer, reason=refusal.reason)
            return
        self._failure = self._failure or RaftStopped(f"replica {self._name}: {refusal.reason}")
        self._wake_up()

    # --- the driving thread -----------------------------------------------------------------------------------

    def open(self) -> None:
        """Reads the disks and joins the network. For a simulation, which has no thread; else ``start`` does it."""
        self._identity = Identity(
            disk=self._disk,
            directory=self._directory,
            name=self._name,
            members=self._members,
            epoch=self._options.epoch,
            groups=list(self._groups),
            entropy=self._entropy,
        )
        for group in self._groups.values():
            group.open()
        self._identity.made(list(self._groups))
        if self._network is not None:
            self._network.start(self._identity.hello, self)
        self._running = True

    def pump(self) -> float:
        """Does all there is to do; answers the monotonic time of the next pump if nothing arrives.

        Any exception must end the replica.
        """
        if self._failure is not None:
            raise self._failure
        now = self._clock.monotonic()
        messages = self._take_inbox(now)
        self._mark_connected(now)
        out: dict[str, list[GroupMessage]] = {}
        outcomes: list[Outcome] = []
        due = now + self._options.ping if self._others else _NEVER
        for number, group in self._groups.items():
            arrived = messages.get(number)
            if arrived or group.has_work(now):
                result = group.step(arrived or ())
                for peer, message in result.messages:
                    out.setdefault(peer, []).append((number, encode(message)))
                outcomes += result.outcomes
            due = min(due, group.due)
        self._send(out, now)
        _answer(outcomes)
        self._tell_of_room()
        return due

    def close(self) -> None:
        """Lets go of files and network."""
        self._running = False
        outcomes: list[Outcome] = []
        if self._network is not None:
            self._network.stop()
        for group in self._groups.values():
            outcomes += group.close(healthy=self._failure is None)
        _answer(outcomes)

    def _run(self, ready: threading.Event) -> None:
        try:
            self.open()
            ready.set()
            while not self._stopping:
                self._wake.clear()
                due = self.pump()
                delay = min(due - self._clock.monotonic(), _SLEEP_MAX)
                if delay > 0:
                    self._wake.wait(delay)
        except RaftStopped as e:
            self._failure = e
            log.error("raft.stopped", replica=self._name, reason=str(e))
        except Exception as e:
            self._failure = e
            log.exception("raft.stopped", replica=self._name, reason=str(e))
        finally:
            self.close()
            ready.set()

    def _tell_of_room(self) -> None:
        if self.writable == self._full:
            self._full = not self._full
            if self._full:
                log.error("raft.disk_full", replica=self._name, directory=str(self._directory))
            else:
                log.info("raft.disk_has_room", replica=self._name)

    def _wake_up(self) -> None:
        self._wake.set()

    def _take_inbox(self, now: float) -> dict[int, list[tuple[str, Message]]]:
        with self._lock:
            inbox, self._inbox = self._inbox, deque()
            self._inbox_bytes = 0
            signs, self._signs = self._signs, set()
        for name in signs:
            self._heard[name] = now
        messages: dict[int, list[tuple[str, Message]]] = {}
        for name, number, payload in inbox:
            try:
                messages.setdefault(number, []).append((name, decode(payload)))
            except BadMessage as e:
                self.dropped += 1
                log.warning("raft.bad_message", peer=name, group=number, reason=str(e))
        return messages

    def _mark_connected(self, now: float) -> None:
        for peer in self._others:
            up = now - self._heard.get(peer, -_NEVER) < self._options.peer_silence
            if up != (peer in self._connected):
                (self._connected.add if up else self._connected.discard)(peer)
                log.info("raft.peer", replica=self._name, peer=peer, heard=up)
                for group in self._groups.values():
                    group.connect(peer, up)

    def _send(self, out: Mapping[str, list[GroupMessage]], now: float) -> None:
        if self._network is None:
            return
        for peer in self._others:
            messages = out.get(peer, [])
            if messages or now - self._sent.get(peer, -_NEVER) >= self._options.ping:
                self._sent[peer] = now
                self._network.send(peer, messages)


def _answer(outcomes: Sequence[Outcome]) -> None:
    for done, outcome in outcomes:
        try:
            done(outcome)
        except Exception:  # the proposer's own affair: nothing here depends on it
            log.exception("raft.done_raised")
