"""Things a stranger may send to a port: noise, half handshakes, broken HTTP/2, giant lengths. Blocking sockets."""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
import struct
from collections.abc import Callable, Iterator, Sequence

Connect = Callable[[], socket.socket]
TIMEOUT_S = 2.0
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RESET, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, END_HEADERS = 1, 4
# Hello in a TLS record that claims to have 65,535 bytes.
CLIENT_HELLO = b"\x16\x03\x01\xff\xff\x01\x00\xff\xfb\x03\x03"


def plain(address: str) -> socket.socket:
    """A TCP connection."""
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), TIMEOUT_S)
    connection.settimeout(TIMEOUT_S)
    return connection


def frame(kind: int, flags: int, stream: int, payload: bytes = b"", length: int | None = None) -> bytes:
    """An HTTP/2 frame; ``length``: the length it claims."""
    size = len(payload) if length is None else length
    return size.to_bytes(3, "big") + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def request_headers(path: str, stream: int) -> bytes:
    """Opens a request of gRPC."""
    fields = {
        ":method": "POST", ":scheme": "http", ":path": path, ":authority": "x", "te": "trailers",
        "content-type": "application/grpc",
    }  # fmt: skip
    return frame(HEADERS, END_HEADERS, stream, b"".join(_literal(*each) for each in fields.items()))


def _literal(name: str, value: str) -> bytes:
    """An HPACK field, literal and not indexed."""
    return b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


@contextlib.contextmanager
def connected(connect: Connect) -> Iterator[socket.socket | None]:
    """A connection that the other end may close, reset or refuse at any moment."""
    with contextlib.suppress(OSError, ssl.SSLError):
        with contextlib.closing(connect()) as connection:
            yield connection
        return
    yield None


def attempt(connect: Connect, parts: Sequence[bytes], read: int = 4096) -> None:
    """Connects, sends, reads one reply, disconnects."""
    try:
        with contextlib.closing(connect()) as connection:
            for part in parts:
                connection.sendall(part)
            connection.settimeout(0.05)
            connection.recv(read)
    except (OSError, ssl.SSLError):
        pass  # refused, reset, or no reply: all are right


def noise(connect: Connect, draw: random.Random, methods: Sequence[str]) -> None:
    """Random bytes, also after a good beginning."""
    for _ in range(12):
        begin = draw.choice([b"", PREFACE, CLIENT_HELLO, b"GET / HTTP/1.1\r\n"])
        attempt(connect, [begin + draw.randbytes(draw.choice([1, 9, 100, 4000, 200_000]))])


def frames(connect: Connect, draw: random.Random, methods: Sequence[str]) -> None:
    """Frames of every kind with random contents and possibly false lengths."""
    for _ in range(12):
        parts = [PREFACE + frame(SETTINGS, 0, 0)]
        for _ in range(60):
            payload = draw.randbytes(draw.choice([0, 1, 4, 5, 8, 100, 5000]))
            lie = draw.choice([None, None, None, 0, 16_385, 0xFFFFFF])
            stream = draw.choice([0, 1, 2, 3, 0x7FFFFFFF, 0xFFFFFFFF])
            parts.append(frame(draw.randrange(12), draw.randrange(256), stream, payload, lie))
        attempt(connect, parts)


def extreme_settings(connect: Connect, draw: random.Random, methods: Sequence[str]) -> None:
    """Each setting at its ends: table sizes, windows, frame sizes, header lists."""
    for value in (0, 1, 0x7FFFFFFF, 0xFFFFFFFF):
        every = b"".join(struct.pack(">HI", number, value) for number in range(1, 9))
        windows = b"".join(frame(WINDOW, 0, stream, struct.pack(">I", 0x7FFFFFFF)) for stream in (0, 1))
        attempt(connect, [PREFACE + frame(SETTINGS, 0, 0, every), request_headers(methods[0], 1), windows])


def headers_without_end(connect: Connect, draw: random.Random, methods: Sequence[str]) -> None:
    """Endless CONTINUATION frames, and a field that claims to have 2 GiB."""
    more = frame(CONTINUATION, 0, 1, b"".join(_literal(f"x-{n}", "y" * 100) for n in range(100)))
    attempt(connect, [PREFACE + frame(SETTINGS, 0, 0), frame(HEADERS, 0, 1), *[more] * 200])
    giant = b"\x00\x7f\x80\xff\xff\xff\x07" + draw.randbytes(1000)
    attempt(connect, [PREFACE + frame(SETTINGS, 0, 0), frame(HEADERS, END_HEADERS, 1, giant)])


def rapid_resets(connect: Connect, draw: random.Random, methods: Sequence[str]) -> None:
    """Requests that are opened and cancelled at once."""
    opened = [
        request_headers(draw.choice(methods), 2 * n + 1) + frame(RESET, 0, 2 * n + 1, struct.pack(">I", 8))
        for n in range(2000)
    ]
    attempt(connect, [PREFACE + frame(SETTINGS, 0, 0), *opened])


def pings(connect: Connect, draw: random.Random, methods: Sequence[str]) -> None:
    """Frames that ask for an answer, whose sender never reads."""
    each = frame(PING, 0, 0, bytes(8)) + frame(SETTINGS, 0, 0)
    attempt(connect, [PREFACE + frame(SETTINGS, 0, 0), *[each * 100] * 100], read=1)


def giant_lengths(connect: Connect, draw: random.Random, methods: Sequence[str]) -> None:
    """Messages that claim up to 4 GiB, including compressed ones, with little content."""
    for length in (0xFFFFFFFF, 0x7FFFFFFF, 256 << 20, 65 << 20):
        for flag in (0, 1, 255):
            parts = [PREFACE + frame(SETTINGS, 0, 0)]
            for number, method in enumerate(methods):
                stream = 2 * number + 1
                begin = bytes([flag]) + struct.pack(">I", length) + draw.randbytes(1000)
                parts += [request_headers(method, stream), frame(DATA, 0, stream, begin)]
            attempt(connect, parts)


ATTACKS = (noise, frames, extreme_settings, headers_without_end, rapid_resets, pings, giant_lengths)


class HeldConnections:
    """Connections that begin something and then stay silent until closed."""

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def hold(self, address: str, each: int) -> None:
        """Opens silent connections: nothing, half a preface, half a TLS hello, a message's first bytes."""
        begun = PREFACE + frame(SETTINGS, 0, 0) + request_headers("/photon.v1.Registry/Insert", 1)
        begun += frame(DATA, 0, 1, b"\x00" + struct.pack(">I", 60_000) + bytes(100))
        for begin in (b"", PREFACE[:10], CLIENT_HELLO, begun):
            for _ in range(each):
                with contextlib.suppress(OSError):
                    connection = plain(address)
                    self._held.append(connection)
                    connection.sendall(begin)

    def close(self) -> None:
        """All of them."""
        for connection in self._held:
            connection.close()
