"""Reads the secret key of a deployment's digests from a file, which is the same in every datacentre."""

from __future__ import annotations

from pathlib import Path

from photon.config.errors import UsageError
from photon.config.settings import Settings

KEY_BYTES = (16, 64)


def key_path(settings: Settings, base: Path) -> Path:
    """Returns the path of the deployment's key file. Raises UsageError."""
    if settings.key_file is None:
        raise UsageError("key_file: is not set; name a file of 16 to 64 random bytes, the same in every datacentre")
    return base / settings.key_file


def deployment_key(settings: Settings, base: Path) -> bytes:
    """Returns the deployment's key. Raises UsageError."""
    return read_key(key_path(settings, base))


def read_key(path: Path) -> bytes:
    """Reads a deployment's key from its file. Raises UsageError."""
    try:
        key = path.read_bytes()
    except OSError as error:
        raise UsageError(f"key_file = {str(path)!r}: cannot be read ({error.strerror})") from None
    if not KEY_BYTES[0] <= len(key) <= KEY_BYTES[1]:
        raise UsageError(f"key_file = {str(path)!r}: has {len(key)} bytes; it must have 16 to 64")
    return key
