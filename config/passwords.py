"""Refuses passwords in addresses, because command lines and deployment files are visible to other users."""

from __future__ import annotations

import re

from photon.config.errors import UsageError

_OF_A_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@]*:[^/?#]*@", re.IGNORECASE)
_OF_LIBPQ = re.compile(r"(?:^|[\s?&])(?:password|sslpassword)\s*=", re.IGNORECASE)
INSTEAD = "put it into PGPASSWORD or ~/.pgpass"


def holds_password(address: str) -> bool:
    """True for ``scheme://user:password@host``, and for ``password=`` in libpq's other forms of an address."""
    return bool(_OF_A_URL.match(address) or _OF_LIBPQ.search(address))


def check_password(option: str, address: str) -> None:
    """Raises UsageError, which does not repeat the password, if the address of an option contains one."""
    if holds_password(address):
        raise UsageError(f"{option}: contains a password, which everybody on this machine can see; {INSTEAD}")
