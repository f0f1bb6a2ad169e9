"""The only place where channels are opened and ports bound: plain, or mutual TLS.

Services are reached by all kinds of addresses (also through the proxy between regions), so a client does not check
the address. It demands the server's *identity*: the DNS name ``IDENTITY.photon.internal`` in its certificate.
So the certificate of an event store cannot pose as a registry replica, nor an operator's as any service.

Most of Photon imports this module, and a process without a connection never needs gRPC: it is imported where used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from photon.config.errors import PhotonError

if TYPE_CHECKING:
    import grpc
    import grpc.aio

OPERATOR = "operator"
WAN = "wan"
# Ends the DNS name that an identity has in its certificate. ``.internal`` is reserved, so no resolver answers it.
SUFFIX = ".photon.internal"
_NAMES = "x509_subject_alternative_name"

# gRPC's text for a failed handshake -> its meaning.
_HANDSHAKE_PROBLEMS = {
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not from the authority in our ca.crt",
    "WRONG_VERSION_NUMBER": "it does not speak TLS, as our [tls] demands",
    "Hostname Verification Check failed": "its certificate belongs to another process; is the address right?",
}
# gRPC prefixes it with the address, and with the fact that all addresses failed.
_BEFORE_REASON = "Failed to connect to remote host: "
_CLOSED = ("Socket closed", "Connection reset")
# A gateway accepts connections for a process that is down, too.
_CLOSED_PLAIN = "closes the connection: it is down behind a gateway, or demands TLS and [tls] is missing here"
_CLOSED_TLS = "closes the connection: it is down behind a gateway, or does not trust our certificate's authority"

Options = Sequence[tuple[str, int | str]]

MESSAGE_BYTES_MAX = 4 << 20  # the largest request or reply, on channels whose options set no other size
METADATA_BYTES_MAX = 16 << 10
_BOUNDS: dict[str, int | str] = {
    "grpc.max_receive_message_length": MESSAGE_BYTES_MAX,
    "grpc.max_send_message_length": MESSAGE_BYTES_MAX,
    "grpc.max_metadata_size": METADATA_BYTES_MAX,
    "grpc.absolute_max_metadata_size": METADATA_BYTES_MAX,
}


class CannotListen(PhotonError):
    """The process cannot listen at an address. ``str()`` is one line."""


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificates that a process presents and trusts; PEM, as read at its start. Restart to use renewed files."""

    identity: str
    authorities: bytes
    certificate: bytes
    key: bytes = field(repr=False)
    notes: tuple[str, ...] = ()  # warnings for the start: a certificate that expires soon

    def to(self, identity: str) -> Towards:
        return Towards(self, identity)

    def server_credentials(self) -> grpc.ServerCredentials:
        """Returns a server's credentials: every caller must present a certificate of the same authority."""
        import grpc

        return grpc.ssl_server_credentials([(self.key, self.certificate)], self.authorities, True)


@dataclass(frozen=True, slots=True)
class Towards:
    tls: Tls
    identity: str

    def credentials(self) -> grpc.ChannelCredentials:
        """Returns a client's credentials: its certificate, and the authority that must have issued the server's."""
        import grpc

        return grpc.ssl_channel_credentials(self.tls.authorities, self.tls.key, self.tls.certificate)

    def options(self) -> Options:
        """Returns gRPC channel options that set the name that the server's certificate must have."""
        return (("grpc.ssl_target_name_override", dns_name(self.identity)),)


def dns_name(identity: str) -> str:
    return identity + SUFFIX


def identity_of(name: str) -> str:
    """Returns the identity in a DNS name made by ``dns_name``; empty for any other name."""
    identity = name.removesuffix(SUFFIX)
    return identity if identity != name else ""


def towards(tls: Tls | None, identity: str) -> Towards | None:
    """Returns the identity to demand and our certificates for it; ``None`` means plain text."""
    return None if tls is None else tls.to(identity)


def channel_options(options: Options = ()) -> list[tuple[str, int | str]]:
    """Returns the options of all our channels: ``options`` take precedence over the bounds above."""
    return list({**_BOUNDS, **dict(options)}.items())


def open_channel(address: str, options: Options = (), to: Towards | None = None) -> grpc.aio.Channel:
    """Opens a channel on the running event loop, in plain text if ``to`` is ``None``."""
    import grpc.aio

    if to is None:
        return grpc.aio.insecure_channel(address, options=channel_options(options))
    return grpc.aio.secure_channel(address, to.credentials(), options=channel_options((*options, *to.options())))


def open_blocking_channel(address: str, options: Options = (), to: Towards | None = None) -> grpc.Channel:
    """Like open_channel, for threads."""
    import grpc

    if to is None:
        return grpc.insecure_channel(address, options=channel_options(options))
    return grpc.secure_channel(address, to.credentials(), options=channel_options((*options, *to.options())))


def bind(server: grpc.aio.Server, address: str, name: str, tls: Tls | None = None) -> int:
    """Binds a server to an address and returns the port. ``name``: shown in the error. Raises CannotListen."""
    try:
        if tls is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, tls.server_credentials())
    except RuntimeError:
        port = 0
    if not port:
        raise CannotListen(f"{address}: {name} cannot listen there; is the port in use?")
    return port


def unreachable(error: grpc.aio.AioRpcError | grpc.Call, *, tls: bool) -> str:
    """Returns one line that says why a call did not get through. ``tls``: true if it was made over TLS."""
    import grpc

    code, details = error.code(), error.details() or ""
    for sign, meaning in _HANDSHAKE_PROBLEMS.items():
        if sign in details:
            return meaning
    if code is grpc.StatusCode.UNAVAILABLE and any(sign in details for sign in _CLOSED):
        return _CLOSED_TLS if tls else _CLOSED_PLAIN
    line = details.partition("\n")[0]
    return f"{code.name} {line.rpartition(_BEFORE_REASON)[2]}".rstrip()


def caller(context: Any) -> str:
    """Returns the identity in the certificate that the other end of a call presented; empty on a plain connection."""
    names = context.auth_context().get(_NAMES, ())
    return next((identity for name in names if (identity := identity_of(name.decode("ascii", "replace")))), "")
