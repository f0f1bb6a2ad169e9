"""Asks a process's gRPC health service once, using only the standard library. A container's health check starts a new
interpreter for each process every few seconds; importing gRPC would cost several times as much as the whole check.
Opens one HTTP/2 stream with one unary call, and reads only the message of the answer. Long-lived processes use
``photon.supervision.health``."""

from __future__ import annotations

import socket
import ssl
import struct
from pathlib import Path

from photon.config.errors import PhotonError, UsageError

SERVING = b"\x08\x01"  # HealthCheckResponse with status SERVING, as protobuf writes it
ANSWER_BYTES_MAX = 64 << 10  # at most this much of an answer is read; a health service sends a few hundred bytes
SUFFIX = ".photon.internal"  # photon.config.tls.SUFFIX (a test compares them); that module imports gRPC
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _GO_AWAY = 0, 1, 3, 4, 7
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_STREAM = 1


class Unhealthy(PhotonError):
    """Raised if the process does not answer or does not serve; the message is one line."""


def probe(
    address: str, certificates: Path | None, identity: str | None, timeout_s: float, *, alive: bool = False
) -> None:
    """Returns if the process at ``host:port`` serves. ``certificates``: directory of ``ca.crt`` and our certificate,
    which the process must match in identity; `None` means plain text. ``identity``: certificate to use if there are
    several. ``alive``: also returns if the process answers that it does not serve. Raises Unhealthy, UsageError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"{address}: must be host:port")
    context, name = (None, "") if certificates is None else _context(certificates, identity)
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout_s) as plain:
            if context is None:
                answer = _ask(plain, address)
            else:
                with context.wrap_socket(plain, server_hostname=name) as secured:
                    answer = _ask(secured, address)
    except OSError as error:
        raise Unhealthy(f"{address}: {error.strerror or error}") from None
    if answer != SERVING and not (alive and answer):
        raise Unhealthy(f"{address}: answers, but does not serve")


def _context(directory: Path, identity: str | None) -> tuple[ssl.SSLContext, str]:
    """Returns a context that presents the directory's certificate and trusts its authority, and the certificate's DNS
    name."""
    if identity is None:
        found = sorted(path.stem for path in directory.glob("*.crt") if path.stem != "ca")
        if len(found) != 1:
            raise UsageError(f"{directory}: has {len(found)} certificates; choose one with --identity")
        identity = found[0]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    try:
        context.load_verify_locations(directory / "ca.crt")
        context.load_cert_chain(directory / f"{identity}.crt", directory / f"{identity}.key")
    except OSError as error:
        raise UsageError(f"{directory}: ca.crt or the certificate {identity} cannot be used ({error})") from None
    return context, identity + SUFFIX


def _ask(connection: socket.socket, address: str) -> bytes:
    """Returns the message of the answer; empty for an error."""
    connection.sendall(
        _PREFACE
        + _frame(_SETTINGS, 0, 0, b"")
        + _frame(_HEADERS, _END_HEADERS, _STREAM, _request_headers())
        + _frame(_DATA, _END_STREAM, _STREAM, struct.pack(">BI", 0, 0))  # an empty HealthCheckRequest: the whole
    )
    received = message = b""
    while len(received) < ANSWER_BYTES_MAX:
        more = connection.recv(4096)
        if not more:
            raise Unhealthy(f"{address}: closed the connection without an answer")
        received += more
        while len(received) >= 9:
            length = int.from_bytes(received[:3], "big")
            kind, flags, stream = received[3], received[4], int.from_bytes(received[5:9], "big")
            if len(received) < 9 + length:
                break
            body, received = received[9 : 9 + length], received[9 + length :]
            if kind == _SETTINGS and not flags & _ACK:
                connection.sendall(_frame(_SETTINGS, _ACK, 0, b""))
            elif kind == _GO_AWAY or (kind == _RST_STREAM and stream == _STREAM):
                return b""
            elif kind == _DATA and stream == _STREAM:
                message += body
                if len(message) >= 5 and len(message) >= 5 + int.from_bytes(message[1:5], "big"):
                    return message[5:]
            elif kind == _HEADERS and stream == _STREAM and flags & _END_STREAM:
                return b""  # the answer is an error without a message
    raise Unhealthy(f"{address}: sent more than {ANSWER_BYTES_MAX} bytes; it is not a health service")


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + body


def _request_headers() -> bytes:
    """Encodes the request headers in HPACK (RFC 7541): two entries of the static table, then literals that are
    neither indexed nor compressed."""
    fields = {
        b":path": b"/grpc.health.v1.Health/Check",
        b":authority": b"photon",
        b"content-type": b"application/grpc",
        b"te": b"trailers",
    }
    post, http = b"\x83", b"\x86"
    literal = b"".join(
        b"\x00" + bytes((len(name),)) + name + bytes((len(value),)) + value for name, value in fields.items()
    )
    return post + http + literal
