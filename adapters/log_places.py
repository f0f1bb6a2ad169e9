"""Checks that log directories hold no keys or certificates, and that no link leads to Photon's own files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from photon.adapters.contract import AdapterError
from photon.adapters.logs.discovery import compile_patterns
from photon.config.settings import Settings
from photon.objects.paths import ObjectPath


def secrets_of(settings: Settings, base: Path) -> dict[str, Path]:
    """Returns, by setting, the path of each file that no log directory may contain."""
    found = {"tls.directory": None if settings.tls is None else settings.tls.directory, "key_file": settings.key_file}
    return {name: base / path for name, path in found.items() if path}


def check_links_apart(where: str, links: Sequence[str], own: Mapping[str, Path]) -> None:
    """Refuses links into Photon's own directories. ``own``: setting -> path. Raises AdapterError."""
    for each in links:
        real = Path(each).resolve()
        for name, path in own.items():
            if not isinstance(path, ObjectPath) and _overlap(real, path.resolve()):
                todo = "name a directory that has only logs"
                raise AdapterError(f"follow_links: {each} contains, or is in, {name} ({path})", where, todo)


def check_logs_apart(where: str, directory: Path, files: Sequence[str], secrets: Mapping[str, Path]) -> None:
    """Refuses a log directory in which secrets would be read as logs. Raises AdapterError."""
    if isinstance(directory, ObjectPath):
        return
    real, patterns = directory.resolve(), compile_patterns(files)
    for name, path in secrets.items():
        secret = path.resolve()
        inside = secret.relative_to(real).as_posix() if secret.is_relative_to(real) else None
        read = inside is not None and (patterns.match(inside) or patterns.reach(inside)) and "/." not in f"/{inside}"
        if read or real.is_relative_to(secret):
            raise AdapterError(
                f"{directory} contains, or is in, {name} ({path}), which would be read as a log",
                where,
                "move one of them",
            )


def _overlap(one: Path, other: Path) -> bool:
    return one.is_relative_to(other) or other.is_relative_to(one)
