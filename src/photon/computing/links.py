"""Carries messages between the owners of intervals, in this process and in others on this machine.

Losing messages is harmless, as senders repeat unacknowledged ones. So nothing blocks: a frame that cannot be
delivered at once (no listener, full queue) is dropped. Processes talk over Unix sockets ``DIRECTORY/INTERVAL.sock``;
a frame has a length (4 bytes), a kind (M, A) and msgpack.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import struct
import threading
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from photon.computing.errors import ComputingError
from photon.computing.wire import Ack, Message, decode_ack, decode_message
from photon.config.errors import PhotonError, UsageError

Frame = Message | Ack
FRAME_BYTES_MAX = 64 << 20
QUEUE_MAX = 64  # frames queued for one interval
TIMEOUT_S = 2.0
RETRY_S = 0.1
_HEAD = struct.Struct("!IB")
_MESSAGE, _ACK = ord("M"), ord("A")


class Links:
    """The links of one process."""

    def __init__(self, directory: Path, here: Collection[str], everywhere: Collection[str]) -> None:
        """``here``: the intervals that this process owns. Raises UsageError if another process listens for one of
        them."""
        self.arrived = threading.Event()  # set when a frame has arrived
        self._directory = directory
        self._inboxes = {each: queue.Queue[Frame](QUEUE_MAX) for each in here}
        self._out: dict[str, queue.Queue[bytes | None]] = {}
        self._listening: list[socket.socket] = []
        self._heard: set[socket.socket] = set()  # connections from peers
        self._closed = False
        try:
            for interval in here if set(everywhere) - set(here) else ():
                self._listen(interval)
        except BaseException:
            self.close()
            raise

    def send(self, interval: str, frame: Frame) -> None:
        if interval in self._inboxes:
            self._put(interval, frame)
            return
        if interval not in self._out:
            waiting = self._out[interval] = queue.Queue(QUEUE_MAX)
            threading.Thread(target=self._carry, args=(interval, waiting), daemon=True).start()
        body = frame.encode()
        kind = _MESSAGE if isinstance(frame, Message) else _ACK
        with contextlib.suppress(queue.Full):
            self._out[interval].put_nowait(_HEAD.pack(len(body), kind) + body)

    def received(self, interval: str) -> Iterator[Frame]:
        """Yields the frames received for the interval."""
        inbox = self._inboxes[interval]
        for _ in range(inbox.qsize()):
            yield inbox.get_nowait()

    def rewire(self, everywhere: Collection[str]) -> None:
        """Drops connections to intervals that no longer exist."""
        for interval in self._out.keys() - set(everywhere):
            waiting = self._out.pop(interval)
            while True:
                with contextlib.suppress(queue.Full):
                    waiting.put_nowait(None)
                    break
                with contextlib.suppress(queue.Empty):
                    waiting.get_nowait()

    def close(self) -> None:
        """Closes all sockets. Peers then connect to the next listener, in this process or another one."""
        self._closed = True
        self.rewire(())
        for each in (*self._listening, *self._heard.copy()):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # otherwise a thread waiting in it keeps it open
        for each in self._listening:
            each.close()

    def _put(self, interval: str, frame: Frame) -> None:
        with contextlib.suppress(queue.Full):
            self._inboxes[interval].put_nowait(frame)
            self.arrived.set()

    # -- between processes
    @contextlib.contextmanager
    def _address(self, interval: str) -> Iterator[str]:
        """Yields a short address for an interval's socket in any directory, because addresses are limited to 108
        bytes."""
        directory = os.open(self._directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield f"/proc/self/fd/{directory}/{interval}.sock"
        finally:
            os.close(directory)

    def _listen(self, interval: str) -> None:
        """Starts to listen for an interval. Its owner holds the lock, so an existing socket is from a killed
        process."""
        (self._directory / f"{interval}.sock").unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        os.fchmod(listening.fileno(), 0o600)
        try:
            with self._address(interval) as address:
                listening.bind(address)
            listening.listen(QUEUE_MAX)
        except OSError as error:
            listening.close()
            raise UsageError(f"{self._directory / interval}.sock: cannot listen there: {error.strerror}") from None
        self._listening.append(listening)
        threading.Thread(target=self._accept, args=(listening, interval), daemon=True).start()

    def _accept(self, listening: socket.socket, interval: str) -> None:
        while not self._closed:
            try:
                connection, _ = listening.accept()
            except OSError:  # closed, or short of descriptors: waiting connections are accepted later
                time.sleep(RETRY_S)
                continue
            threading.Thread(target=self._hear, args=(connection, interval), daemon=True).start()

    def _hear(self, connection: socket.socket, interval: str) -> None:
        self._heard.add(connection)  # before it looks at ``_closed``, so that ``close`` cannot miss it
        with connection, contextlib.suppress(OSError, EOFError, PhotonError):
            while not self._closed:
                length, kind = _HEAD.unpack(_exactly(connection, _HEAD.size))
                if length > FRAME_BYTES_MAX:
                    raise ComputingError(f"a frame of {length} bytes")
                body = _exactly(connection, length)
                self._put(interval, decode_message(body) if kind == _MESSAGE else decode_ack(body))
        self._heard.discard(connection)

    def _carry(self, interval: str, waiting: queue.Queue[bytes | None]) -> None:
        connection: socket.socket | None = None
        while (data := waiting.get()) is not None:
            try:
                if connection is None:
                    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                    connection.settimeout(TIMEOUT_S)
                    with self._address(interval) as address:
                        connection.connect(address)
                connection.sendall(data)
            except OSError:  # the sender repeats it
                if connection is not None:
                    connection.close()
                connection = None
        if connection is not None:
            connection.close()


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(min(size - len(data), 1 << 20))
        if not part:
            raise EOFError
        data += part
    return bytes(data)
