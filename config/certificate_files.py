"""The directory of a deployment's certificates: ``ca.crt``, ``ca.key``, and ``IDENTITY.crt`` and ``IDENTITY.key``.

A service needs ``ca.crt`` and its own two files, nothing else: ``ca.key`` may be in another directory, on another
machine, or in a safe.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from cryptography import x509

from photon.config.certificates import (
    PEM_BYTES_MAX,
    CertificateError,
    Facts,
    Pair,
    check_identity,
    check_pair,
    facts,
    issue,
    issued,
    make_authority,
    read_certificate,
    read_certificates,
)
from photon.config.tls import Tls

AUTHORITY = "ca"
_KEY_MODE = 0o600
_CERTIFICATE_MODE = 0o644
_DIRECTORY_MODE = 0o700


def load(directory: Path, identity: str, now: datetime) -> Tls:
    """Returns the certificates that a process with this identity presents and trusts. Raises CertificateError.

    They are checked, so that a wrong file causes one clear line here instead of failed handshakes later.
    """
    certificate = directory / f"{identity}.crt"
    authorities = _read(directory / f"{AUTHORITY}.crt")
    pair = Pair(_read(certificate), _read(directory / f"{identity}.key"))
    said = check_pair(authorities, pair, identity, now, str(certificate))
    notes = [f"{certificate}: expires on {said.ends:%Y-%m-%d %H:%M} UTC; renew it"] if said.expires_soon(now) else []
    notes += _open_to_all(directory / f"{identity}.key")
    return Tls(identity, authorities, pair.certificate, pair.key, tuple(notes))


def _open_to_all(key: Path) -> list[str]:
    """Returns a warning if everybody can read a key. No error, as secrets in containers are often world-readable."""
    with contextlib.suppress(OSError):
        if key.stat().st_mode & stat.S_IROTH:
            return [f"{key}: everybody on this machine can read it; chmod 600 it"]
    return []


def begin(directory: Path, name: str, now: datetime, *, days: int, force: bool = False) -> Path:
    """Creates an authority and returns its certificate's path. Raises CertificateError, also if one exists."""
    for path in _paths(directory, AUTHORITY):
        if path.exists() and not force:
            raise CertificateError(
                f"{path}: already exists; with another authority all certificates must be issued again "
                "(--force replaces it)"
            )
    return _write(directory, AUTHORITY, make_authority(name, now, days))


def issue_into(
    authority: Path,
    directory: Path,
    identity: str,
    now: datetime,
    *,
    days: int,
    hosts: Sequence[str] = (),
    force: bool = False,
) -> Path:
    """Issues a certificate, with the authority's next to it, and returns its path. Raises CertificateError.

    If the directory's ca.crt lacks this authority, it is replaced, unless other identities use the directory too.
    """
    check_identity(identity)
    paths = _paths(directory, identity)
    if all(path.exists() for path in paths) and not force:
        raise CertificateError(f"{paths[0]}: already exists (--force replaces it)")
    certificate, key = _paths(authority, AUTHORITY)
    signer = Pair(_read(certificate), _read(key))
    made = issue(signer, identity, now, days=days, hosts=hosts)
    copied = directory / f"{AUTHORITY}.crt"
    new = read_certificate(made.certificate, identity)
    if not copied.exists() or not (_has_issued(directory, new) or _others(directory, identity)):
        _make_directory(directory)
        _replace(copied, signer.certificate, _CERTIFICATE_MODE)
    check_pair(_read(copied), made, identity, now, str(paths[0]))
    return _write(directory, identity, made)


def issue_missing(
    authority: Path,
    directory: Path,
    identities: Sequence[str],
    now: datetime,
    *,
    days: int,
    renew: bool = False,
    force: bool = False,
) -> dict[str, str]:
    """Issues a certificate to each identity that has none from this authority. Returns identity -> ``issued`` or
    ``kept``.

    ``renew`` includes those that expire within EXPIRES_SOON; ``force`` includes all. Raises CertificateError.
    """
    done = {}
    for identity in identities:
        paths = _paths(directory, identity)
        if not force and all(path.exists() for path in paths):
            there = read_certificate(_read(paths[0]), str(paths[0]))
            if _has_issued(authority, there) and not (renew and facts(there).expires_soon(now)):
                done[identity] = "kept"
                continue
        issue_into(authority, directory, identity, now, days=days, force=True)
        done[identity] = "issued"
    return done


def show(path: Path) -> list[tuple[Path, Facts]]:
    """Returns each certificate of a file, or of a directory's ``*.crt`` files. Raises CertificateError."""
    files = sorted(path.glob("*.crt")) if path.is_dir() else [path]
    if not files:
        raise CertificateError(f"{path}: has no certificates (*.crt)")
    return [(file, facts(read_certificate(_read(file), str(file)))) for file in files]


def _has_issued(directory: Path, certificate: x509.Certificate) -> bool:
    """True if an authority in the directory's ca.crt issued the certificate."""
    authorities = directory / f"{AUTHORITY}.crt"
    return any(issued(certificate, each) for each in read_certificates(_read(authorities), str(authorities)))


def _others(directory: Path, identity: str) -> bool:
    """True if the directory holds certificates of other identities."""
    return any(path.stem not in (AUTHORITY, identity) for path in directory.glob("*.crt"))


def _paths(directory: Path, name: str) -> tuple[Path, Path]:
    return directory / f"{name}.crt", directory / f"{name}.key"


def _read(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            text = file.read(PEM_BYTES_MAX + 1)
    except OSError as error:
        raise CertificateError(f"{path}: cannot be read ({error.strerror}); create it with photon certs") from None
    if len(text) > PEM_BYTES_MAX:
        raise CertificateError(f"{path}: has more than {PEM_BYTES_MAX} bytes; it is not a certificate or key")
    return text


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=_DIRECTORY_MODE)
    except OSError as error:
        raise CertificateError(f"{directory}: cannot be created ({error.strerror})") from None


def _write(directory: Path, name: str, pair: Pair) -> Path:
    """Writes a certificate and its key. The certificate comes last, because a key without one is ignored."""
    _make_directory(directory)
    certificate, key = _paths(directory, name)
    certificate.unlink(missing_ok=True)
    _replace(key, pair.key, _KEY_MODE)
    _replace(certificate, pair.certificate, _CERTIFICATE_MODE)
    return certificate


def _replace(path: Path, text: bytes, mode: int) -> None:
    """Writes a file atomically, at no moment readable by more users than ``mode`` allows."""
    new = path.with_name(f"{path.name}.new")
    try:
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        raise CertificateError(f"{path}: cannot be written ({error.strerror})") from None
