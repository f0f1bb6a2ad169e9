"""Mounts and fills small file systems. Needs Linux and root."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from pathlib import Path

from photon.lab.chaos.api import ChaosFailed

FILLER = ".photon-chaos-filler"
FREE_MAX = 1 << 30  # A file system with more free space than this is not filled: others may need it.
SMALL = "96m"
SOURCE = "photon-chaos"  # our name in the kernel's list of file systems
MOUNTS = Path("/proc/mounts")
BLOCK = 64 << 10
MOUNT_S = 10.0


def can_mount() -> bool:
    return os.geteuid() == 0 and MOUNTS.exists()


def mount_small(directory: Path) -> None:
    """Mounts a small file system on a directory. Raises ChaosFailed."""
    directory.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL},mode=0700", SOURCE, str(directory)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=MOUNT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ChaosFailed(f"{directory}: a small file system could not be mounted ({error})") from None
    if done.returncode:
        said = " ".join(done.stderr.decode(errors="replace").split())
        raise ChaosFailed(f"{directory}: a small file system could not be mounted ({said})")


def mounted_below(directory: Path, mounts: Path = MOUNTS) -> list[Path]:
    """Returns the file systems below a directory that ``mount_small`` made."""
    try:
        lines = [line.split(" ") for line in mounts.read_text().splitlines()]
    except OSError:
        return []
    made = [Path(_unescaped(line[1])) for line in lines if line[0] == SOURCE and len(line) > 1]
    return [each for each in made if each.is_relative_to(directory)]


def _unescaped(path: str) -> str:
    """Decodes a path of the mount table, where the kernel writes blanks and similar characters as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), path)


def unmount(directory: Path) -> None:
    """Unmounts a file system, even while in use. If that fails, it stays until the machine restarts."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(["umount", "--lazy", str(directory)], capture_output=True, timeout=MOUNT_S, check=False)


def is_small(directory: Path) -> bool:
    """True if the file system is small enough to be filled."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize <= FREE_MAX


def fill(directory: Path) -> None:
    """Takes all free space. Raises ChaosFailed if more than FREE_MAX is free."""
    if not is_small(directory):
        raise ChaosFailed(
            f"{directory}: its file system has more than {FREE_MAX >> 20} MiB free, which other processes may "
            "need; mount a small file system there"
        )
    descriptor = os.open(directory / FILLER, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    size = BLOCK
    try:
        while size:
            try:
                os.write(descriptor, bytes(size))
            except OSError:
                size //= 2
    finally:
        os.close(descriptor)


def empty(directory: Path) -> None:
    (directory / FILLER).unlink(missing_ok=True)
