"""The network's interface, and the library's transport, which holds messages back until they may be sent.

Nothing here opens a socket; ``wire.py`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from photon.idregistry.raft.codec import Message, RequestVote, Vote

GroupMessage = tuple[int, bytes]  # (group number, encoded message)


@dataclass(frozen=True, slots=True)
class Hello:
    name: str
    disk: bytes
    epoch: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The refusal of a frame. ``fatal``: the sender's disk is not the one known under its name; it must stop."""

    reason: str
    fatal: bool


class Receiver(Protocol):
    """The interface that a network calls on a replica. Thread-safe."""

    def receive(self, hello: Hello, messages: Sequence[GroupMessage]) -> Refused | None: ...

    def refused(self, peer: str, refusal: Refused) -> None: ...


class Network(Protocol):
    """Carries frames between replicas. May lose, repeat, delay and reorder them, but not alter them."""

    def start(self, hello: Hello, receiver: Receiver) -> None: ...

    def send(self, peer: str, messages: Sequence[GroupMessage]) -> None:
        """Sends a frame; never blocks. An empty frame is a sign of life."""

    def stop(self) -> None: ...


class HeldTransport:
    """The library's transport: its messages wait in ``held`` until the driver has synced the journal.

    Only votes go through the library; the driver itself sends append messages, their acknowledgements and snapshots,
    and there are no forwarded commands.
    """

    ready = True

    def __init__(self) -> None:
        self.held: list[tuple[str, Message]] = []
        self.on_message: Callable[[Any, dict[str, Any]], None] | None = None
        self.on_connected: Callable[[Any], None] | None = None
        self.on_disconnected: Callable[[Any], None] | None = None

    def take(self) -> list[tuple[str, Message]]:
        held, self.held = self.held, []
        return held

    def send(self, node: Any, message: dict[str, Any]) -> bool:
        kind = message["type"]
        if kind == "request_vote":
            vote = RequestVote(message["term"], message["last_log_index"], message["last_log_term"])
            self.held.append((node.id, vote))
        elif kind == "response_vote":
            self.held.append((node.id, Vote(message["term"])))
        elif kind != "next_node_idx":  # as the driver sends acknowledgements, with the term
            raise TypeError(f"raft: the library sends {kind!r}, which this driver does not know")
        return True

    # the library's interface, with its names
    def setOnMessageReceivedCallback(self, callback: Callable[[Any, dict[str, Any]], None] | None) -> None:  # noqa: N802
        self.on_message = callback

    def setOnNodeConnectedCallback(self, callback: Callable[[Any], None] | None) -> None:  # noqa: N802
        self.on_connected = callback

    def setOnNodeDisconnectedCallback(self, callback: Callable[[Any], None] | None) -> None:  # noqa: N802
        self.on_disconnected = callback

    def setOnReadonlyNodeConnectedCallback(self, callback: object) -> None:  # noqa: N802
        """Does nothing: there are no read-only nodes."""

    def setOnReadonlyNodeDisconnectedCallback(self, callback: object) -> None:  # noqa: N802
        """Does nothing: there are no read-only nodes."""

    def setOnUtilityMessageCallback(self, message: str, callback: object) -> None:  # noqa: N802
        """Does nothing: the library's admin messages are not offered."""

    def tryGetReady(self) -> None:  # noqa: N802
        """Does nothing: this transport is always ready."""

    def addNode(self, node: object) -> None:  # noqa: N802
        raise TypeError("raft: membership is static")

    def dropNode(self, node: object) -> None:  # noqa: N802
        raise TypeError("raft: membership is static")

    def destroy(self) -> None:
        self.on_message = self.on_connected = self.on_disconnected = None
