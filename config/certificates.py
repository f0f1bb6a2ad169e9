"""The certificates of a deployment: a small authority, and a certificate for each identity.

All functions work on bytes and on times that are passed in; config/certificate_files.py handles the files.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from photon.config.errors import UsageError
from photon.config.roles import CLIENTS_ONLY, PLACED, Role
from photon.config.settings import NAME
from photon.config.tls import SUFFIX, dns_name, identity_of

DAYS = 365
AUTHORITY_DAYS = 3650
EXPIRES_SOON = timedelta(days=30)
PEM_BYTES_MAX = 1 << 20
BACKDATED = timedelta(
    hours=1
)  # certificates begin this long ago, as another machine's clock may be behind the issuer's

_IDENTITY = re.compile(rf"(?:{'|'.join(sorted(PLACED | {Role.OPERATOR}))})-{NAME[1:-1]}|operator|wan")


class CertificateError(UsageError):
    """A certificate, key or authority cannot be used. ``str()`` is one line."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class Facts:
    identity: str  # identity of a process or operator; empty for an authority, or another's certificate
    names: tuple[str, ...]  # DNS names and addresses
    authority: bool
    issuer: str
    serial: str
    begins: datetime
    ends: datetime

    def expires_soon(self, now: datetime) -> bool:
        """True if the certificate expires within EXPIRES_SOON, or has expired."""
        return self.ends - now < EXPIRES_SOON


def check_identity(identity: str) -> None:
    """Raises CertificateError if ``identity`` is not a valid identity of a process or operator."""
    if not _IDENTITY.fullmatch(identity):
        *others, last = (role for role in Role if role in PLACED and role is not Role.REGISTRY)
        of_datacentre = ", ".join(f"{role}-" for role in others)
        raise CertificateError(
            f"{identity!r}: must be registry-REPLICA, {of_datacentre} or {last}-DATACENTRE, wan, operator or "
            "operator-NAME"
        )


def make_authority(name: str, now: datetime, days: int = AUTHORITY_DAYS) -> Pair:
    """Creates a self-signed authority (ECDSA P-256) that can sign certificates but no further authorities."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name)
    builder = _builder(subject, subject, key.public_key(), now, now + timedelta(days=days))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    return _signed(builder, key, key)


def issue(authority: Pair, identity: str, now: datetime, *, days: int = DAYS, hosts: Sequence[str] = ()) -> Pair:
    """Issues a certificate to an identity; it expires no later than its authority. Raises CertificateError.

    ``hosts``: further DNS names and addresses, for tools that check the address they connect to.
    """
    check_identity(identity)
    signer, signer_key = read_certificate(authority.certificate, "the authority"), _private_key(authority.key)
    if signer_key.public_key() != signer.public_key():
        raise CertificateError("the authority's key does not match its certificate: name the directory that has both")
    if signer.not_valid_after_utc <= now:
        raise CertificateError(f"the authority expired on {signer.not_valid_after_utc:%Y-%m-%d}: make a new one")
    key = ec.generate_private_key(ec.SECP256R1())
    ends = min(now + timedelta(days=days), signer.not_valid_after_utc)
    builder = _builder(_subject(identity), signer.subject, key.public_key(), now, ends)
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if identity.partition("-")[0] not in CLIENTS_ONLY:
        purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer_key.public_key())
    builder = (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(dns_name(identity)), *map(_host, hosts)]), False)
        .add_extension(issuer_key, critical=False)
    )
    return _signed(builder, signer_key, key)


def facts(certificate: x509.Certificate) -> Facts:
    names: list[str] = []
    authority = False
    with contextlib.suppress(x509.ExtensionNotFound, ValueError):
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names += found.get_values_for_type(x509.DNSName)
        names += map(str, found.get_values_for_type(x509.IPAddress))
    with contextlib.suppress(x509.ExtensionNotFound, ValueError):
        authority = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    return Facts(
        identity=next((identity for name in names if (identity := identity_of(name))), ""),
        names=tuple(names),
        authority=authority,
        issuer=certificate.issuer.rfc4514_string(),
        serial=f"{certificate.serial_number:x}",
        begins=certificate.not_valid_before_utc,
        ends=certificate.not_valid_after_utc,
    )


def read_certificate(pem: bytes, where: str) -> x509.Certificate:
    """Returns the first certificate of a PEM file. Raises CertificateError; its text begins with ``where``."""
    return read_certificates(pem, where)[0]


def read_certificates(pem: bytes, where: str) -> list[x509.Certificate]:
    """Returns a PEM file's certificates, at least one. Raises CertificateError; its text begins with ``where``."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise CertificateError(f"{where}: holds no certificate in PEM form") from None


def check_pair(authorities: bytes, pair: Pair, identity: str, now: datetime, where: str) -> Facts:
    """Returns a certificate's facts after checking that a process can use it. Raises CertificateError."""
    certificate = read_certificate(pair.certificate, where)
    if _private_key(pair.key, where).public_key() != certificate.public_key():
        raise CertificateError(f"{where}: does not match the key next to it; issue both again")
    if not any(issued(certificate, each) for each in read_certificates(authorities, "ca.crt")):
        raise CertificateError(f"{where}: was not issued by the authority in ca.crt next to it")
    said = facts(certificate)
    if said.identity != identity:
        raise CertificateError(f"{where}: belongs to {said.identity or 'no known identity'}, not to {identity}")
    if said.ends <= now:
        raise CertificateError(f"{where}: expired on {said.ends:%Y-%m-%d %H:%M} UTC; issue it again")
    if said.begins > now:
        raise CertificateError(f"{where}: is not valid before {said.begins:%Y-%m-%d %H:%M} UTC; is the clock right?")
    return said


def issued(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _private_key(pem: bytes, where: str = "the authority") -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError):
        raise CertificateError(
            f"{where}: the key next to it cannot be read; it must be PEM without a password"
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError(f"{where}: the key next to it is not an elliptic-curve key; photon certs makes one")
    return key


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, ends: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _signed(
    builder: x509.CertificateBuilder, signer: ec.EllipticCurvePrivateKey, key: ec.EllipticCurvePrivateKey
) -> Pair:
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Pair(builder.sign(signer, hashes.SHA256()).public_bytes(pem), private)


def _subject(name: str) -> x509.Name:
    try:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    except ValueError:
        raise CertificateError(f"name {name!r}: must have 1 to 64 characters") from None


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", host) or host.lower().endswith(SUFFIX):
        raise CertificateError(f"host {host!r}: must be a DNS name or an address")
    return x509.DNSName(host)
