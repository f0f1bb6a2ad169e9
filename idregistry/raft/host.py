"""Runs a replica: one thread drives all its groups, and sleeps when none has work."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.config.structured import get_logger
from photon.idregistry.raft.api import Group, StateMachine
from photon.idregistry.raft.codec import BadMessage, Message, decode, encode
from photon.idregistry.raft.group import Outcome, RaftGroup
from photon.idregistry.raft.identity import Identity, delete_group, group_directory
from photon.idregistry.raft.options import GROUPS_MAX, INBOX_BYTES_MAX, DiskFull, RaftOptions, RaftStopped, no_space
from photon.idregistry.raft.transport import GroupMessage, Hello, Network, Refused

if TYPE_CHECKING:
    import grpc.aio

    from photon.config.tls import Tls

log = get_logger(__name__)

_NEVER = float("inf")
_SLEEP_MAX = 60.0


@dataclass(frozen=True, slots=True, eq=False)
class _Change:
    """A group to add, or to remove if ``machine`` is ``None``."""

    number: int
    machine: StateMachine | None
    done: Future[Group | None] = field(default_factory=Future)


class RaftHost:
    """Runs all groups of one replica. Call ``start`` and ``stop``, or, in a simulation, ``open`` and ``pump``.

    Groups can be added and removed while it runs. The caller knows which groups should exist; the groups present at
    the last stop are listed on disk (``identity.known_groups``), so that each is opened at the start, before anything
    is sent. Replicas need not agree at every moment: messages to a missing group are lost, which Raft tolerates.

    Any exception while driving ends the whole replica (fail-stop): ``healthy`` turns false, open proposals are
    answered Unknown, and nothing more is sent.
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
        """``peers``: all replicas, including this one: name -> host:port.

        ``network``: ``None`` means gRPC, in plain text if ``tls`` is ``None``.
        """
        if name not in peers:
            raise ValueError(f"raft: {name} is not among the replicas {sorted(peers)}")
        self._name = name
        self._members = dict(sorted(peers.items()))
        self._others = [each for each in self._members if each != name]
        self._directory = directory
        self._disk = disk
        self._clock = clock
        self._options = options or RaftOptions()
        self._entropy = entropy
        self._wake = threading.Event()
        self._network = network
        if network is None and self._others:
            from photon.idregistry.raft.wire import GrpcNetwork  # not needed for embedded use

            self._network = GrpcNetwork({each: peers[each] for each in self._others}, tls, clock)
        self._random = random or Random()
        # Replaced, never modified: other threads read it.
        self._groups = {number: self._make_group(number, machine) for number, machine in sorted(machines.items())}
        self._identity: Identity | None = None
        self._stopping = False
        self._thread: threading.Thread | None = None
        self.failure: BaseException | None = None  # why the replica stopped by itself
        self._running = False
        self._lock = threading.Lock()
        self._changes: deque[_Change] = deque()
        self._change_after = -_NEVER
        self._ended = False
        self._inbox: deque[tuple[str, int, bytes]] = deque()
        self._inbox_bytes = 0
        self._heard: dict[str, float] = {}
        self._connected: set[str] = set()
        self._sent: dict[str, float] = {}
        self._full = False
        self.dropped = 0  # messages received and dropped: inbox full, unknown group, or unreadable

    # --- any thread -------------------------------------------------------------------------------------------

    @property
    def healthy(self) -> bool:
        """False before ``start``, after ``stop``, and once the replica has stopped by itself."""
        return self._running and self.failure is None

    @property
    def writable(self) -> bool:
        """False while the disk is full: the replica then takes no part, and resumes by itself once there is room."""
        return all(group.state().writable for group in self._groups.values())

    def group(self, number: int) -> Group:
        """Returns one of the present groups. Raises KeyError."""
        return self._groups[number]

    @property
    def numbers(self) -> list[int]:
        """Numbers of the present groups, ascending."""
        return sorted(self._groups)

    def add_group(self, number: int, machine: StateMachine) -> Future[Group | None]:
        """Adds a group while the replica runs. The future is done when the group is durable and takes part.

        Only for a group that is new on this replica: a large existing one would block the others while it is read, so
        give it to the constructor. Waits while the disk is full. The future gets RaftStopped if the group was removed
        before, or the replica stopped first. Raises ValueError if the group is present, or there are GROUPS_MAX.
        Thread-safe.
        """
        with self._lock:
            coming = {change.number for change in self._changes if change.machine is not None}
            if number in self._groups or number in coming:
                raise ValueError(f"raft: group {number} exists here already")
            if len(self._groups) + len(coming) >= GROUPS_MAX:
                raise ValueError(f"raft: replica {self._name} has {GROUPS_MAX} groups and accepts no more")
            return self._queue_change(_Change(number, machine))

    def remove_group(self, number: int) -> Future[Group | None]:
        """Permanently ends a group and deletes its files. Open proposals are answered Unknown.

        Only for a group that no replica needs any more; its number is never used again. The future is done when the
        removal is durable. Raises KeyError if the group is not present. Thread-safe.
        """
        with self._lock:
            if number not in self._groups or any(change.number == number for change in self._changes):
                raise KeyError(number)
            return self._queue_change(_Change(number, None))

    def add_to_server(self, server: grpc.aio.Server) -> None:
        """Registers the RaftPeer service, if there are peers that use gRPC. Call before the server starts."""
        from photon.idregistry.raft.wire import GrpcNetwork

        if isinstance(self._network, GrpcNetwork):
            self._network.add_to_server(server)

    def hang_up(self) -> None:
        """Ends the peers' streams to the server of ``add_to_server``. Call it on that server's event loop."""
        from photon.idregistry.raft.wire import GrpcNetwork

        if isinstance(self._network, GrpcNetwork):
            self._network.hang_up()

    @property
    def waited_for(self) -> bool:
        """True if a proposal made here has no answer yet."""
        return any(group.waited_for for group in self._groups.values())

    def start(self) -> None:
        """Starts the thread; returns once the groups are read and it runs. Raises the errors of reading."""
        if self._thread is not None:
            raise RuntimeError("raft: a host can start only once")
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), name=f"raft-{self._name}", daemon=True)
        self._thread.start()
        ready.wait()
        if self.failure is not None:
            self._thread.join()
            raise self.failure

    def stop(self) -> None:
        """Ends the thread, after answering open proposals Unknown. Idempotent."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def receive(self, hello: Hello, messages: Sequence[GroupMessage]) -> Refused | None:
        if self._identity is None:
            return Refused(f"{self._name} is starting", fatal=False)
        refusal = self._identity.check(hello)
        if refusal is not None:
            return refusal
        self._heard[hello.name] = self._clock.monotonic()
        with self._lock:
            for number, payload in messages:
                if self._inbox_bytes + len(payload) > INBOX_BYTES_MAX or number not in self._groups:
                    self.dropped += 1
                    continue
                self._inbox.append((hello.name, number, payload))
                self._inbox_bytes += len(payload)
        if messages or hello.name not in self._connected:
            self._wake.set()
        return None

    def refused(self, peer: str, refusal: Refused) -> None:
        if not refusal.fatal:
            log.warning("raft.refused", peer=peer, reason=refusal.reason)
            return
        self.failure = self.failure or RaftStopped(f"replica {self._name}: {refusal.reason}")
        self._wake.set()

    def follow(self, epoch: int, members: Mapping[str, str]) -> str:
        """See ``Identity.follow``."""
        if self._identity is None:
            return f"{self._name} has not started yet"
        return self._identity.follow(epoch, members)

    # --- the driving thread -----------------------------------------------------------------------------------

    def open(self) -> None:
        """Reads the groups' files and joins the network.

        For a simulation, which has no thread; otherwise ``start`` does this.
        """
        self._identity = Identity(
            disk=self._disk,
            directory=self._directory,
            name=self._name,
            members=self._members,
            epoch=self._options.epoch,
            groups=list(self._groups),
            entropy=self._entropy,
        )
        for number in self._identity.removed:
            delete_group(self._disk, self._directory, number)  # deletion may have been interrupted
        for group in self._groups.values():
            group.open()
        self._identity.made(list(self._groups))
        left = sorted({*self._identity.groups} - {*self._groups})
        if left:
            log.warning("raft.groups_not_opened", replica=self._name, groups=left)
        if self._network is not None:
            self._network.start(self._identity.hello, self)
        self._running = True

    def pump(self) -> float:
        """Does all pending work; returns the monotonic time of the next pump if nothing arrives.

        Any exception must end the replica.
        """
        if self.failure is not None:
            raise self.failure
        now = self._clock.monotonic()
        self._change_groups(now)
        messages = self._take_inbox()
        self._mark_connected(now)
        out: dict[str, list[GroupMessage]] = {}
        outcomes: list[Outcome] = []
        due = _NEVER
        for number, group in self._groups.items():
            arrived = messages.get(number)
            if arrived or group.has_work(now):
                result = group.step(arrived or ())
                for peer, message in result.messages:
                    out.setdefault(peer, []).append((number, encode(message)))
                outcomes += result.outcomes
            due = min(due, group.due)
        if self._changes:
            due = min(due, self._change_after)
        self._send(out, now)
        _answer(outcomes)
        self._tell_of_room()
        return min(due, self._signs_due())

    def close(self) -> None:
        self._running = False
        outcomes: list[Outcome] = []
        if self._network is not None:
            self._network.stop()
        for group in self._groups.values():
            outcomes += group.close(healthy=self.failure is None)
        _answer(outcomes)
        with self._lock:
            self._ended = True
            changes, self._changes = self._changes, deque()
        for change in changes:
            change.done.set_exception(self._over())

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
        # full at a start: nothing is in memory yet, so the replica cannot just wait
        except (RaftStopped, DiskFull) as e:
            self.failure = e
            log.error("raft.stopped", replica=self._name, reason=str(e))
        except OSError as e:
            self.failure = RaftStopped(f"{e.filename or self._directory}: {e.strerror or e}")
            log.error("raft.stopped", replica=self._name, reason=str(self.failure))
        except Exception as e:
            self.failure = e
            log.exception("raft.stopped", replica=self._name, reason=str(e))
        finally:
            self.close()
            ready.set()

    # --- groups that come and go ------------------------------------------------------------------------------

    def _make_group(self, number: int, machine: StateMachine) -> RaftGroup:
        return RaftGroup(
            number=number,
            name=self._name,
            peers=self._others,
            directory=group_directory(self._directory, number),
            machine=machine,
            disk=self._disk,
            clock=self._clock,
            random=self._random,
            options=self._options,
            wake=self._wake.set,
        )

    def _over(self) -> RaftStopped:
        return RaftStopped(f"replica {self._name} has stopped")

    def _queue_change(self, change: _Change) -> Future[Group | None]:
        """Queues a group to add or remove. Call it with the lock held."""
        change.done.set_running_or_notify_cancel()  # so it cannot be cancelled any more
        if self._ended:
            change.done.set_exception(self._over())
        else:
            self._changes.append(change)
            self._wake.set()
        return change.done

    def _change_groups(self, now: float) -> None:
        """Adds or removes at most one group per round, as each change takes several syncs."""
        if not self._changes or now < self._change_after:
            return
        assert self._identity is not None
        change = self._changes[0]
        self._change_after = now
        group: RaftGroup | None = None
        error: RaftStopped | None = None
        try:
            with no_space(self._directory):
                if change.machine is None:
                    self._remove_now(self._identity, change.number)
                elif change.number in self._identity.removed:
                    error = RaftStopped(
                        f"group {change.number} was removed from {self._name}: its number is not used again"
                    )
                else:
                    group = self._add_now(self._identity, change.number, change.machine)
        except DiskFull as e:
            self._change_after = now + self._options.disk_retry
            log.warning("raft.group_waits", replica=self._name, group=change.number, reason=str(e))
            return
        with self._lock:
            self._changes.popleft()
        if error is not None:
            change.done.set_exception(error)
        else:
            change.done.set_result(group)

    def _add_now(self, identity: Identity, number: int, machine: StateMachine) -> RaftGroup:
        """Adds a group. Its votes and entries leave this replica only after its directory and number are durable."""
        group = self._make_group(number, machine)
        try:
            group.open()
            identity.made([number])
        except Exception:
            group.close(healthy=False)
            raise
        for peer in sorted(self._connected):
            group.connect(peer, True)
        with self._lock:
            self._groups = {**self._groups, number: group}
        log.info("raft.group_added", replica=self._name, group=number)
        return group

    def _remove_now(self, identity: Identity, number: int) -> None:
        """Removes a group. Records this before deleting files: otherwise a missing journal would count as lost."""
        identity.unmade(number)
        group = self._groups.get(number)
        if group is not None:  # otherwise a full disk stopped the deletion, which now continues
            with self._lock:
                self._groups = {each: other for each, other in self._groups.items() if each != number}
            _answer(group.close(healthy=True))
        delete_group(self._disk, self._directory, number)
        log.info("raft.group_removed", replica=self._name, group=number)

    def _tell_of_room(self) -> None:
        if self.writable == self._full:
            self._full = not self._full
            if self._full:
                log.error("raft.disk_full", replica=self._name, directory=str(self._directory))
            else:
                log.info("raft.disk_has_room", replica=self._name)

    def _take_inbox(self) -> dict[int, list[tuple[str, Message]]]:
        with self._lock:
            inbox, self._inbox = self._inbox, deque()
            self._inbox_bytes = 0
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
            # sooner than needed, so that idle peers are pinged together
            if messages or now - self._sent.get(peer, -_NEVER) >= self._options.ping / 2:
                self._sent[peer] = now
                self._network.send(peer, messages)

    def _signs_due(self) -> float:
        """Returns when to send the next sign of life, or to notice that a peer's is missing."""
        sent = (at + self._options.ping for at in self._sent.values())
        missed = (self._heard[peer] + self._options.peer_silence for peer in self._connected)
        return min((*sent, *missed), default=_NEVER)


def _answer(outcomes: Sequence[Outcome]) -> None:
    for done, outcome in outcomes:
        try:
            done(outcome)
        except Exception:  # an error of the proposer, on which nothing here depends
            log.exception("raft.done_raised")
