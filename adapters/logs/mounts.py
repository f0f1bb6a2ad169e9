"""Detects a directory's file system, and whether the kernel notices writes by other machines there."""

from __future__ import annotations

import os
import re
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
# Types of file systems that may change without this machine's kernel. All of FUSE counts.
NETWORK = frozenset({
    "9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "fuse", "fuseblk", "gfs2", "glusterfs", "gpfs",
    "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "prl_fs", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs",
})  # fmt: skip
_MOUNT = re.compile(r"^(?:\S+ ){4}(\S+) .*? - (\S+)", re.M)  # mount point and type


def type_at(path: str, mountinfo: str) -> str:
    """Returns the type of the file system of an absolute path without links; empty if unknown.

    ``mountinfo``: the text of /proc/self/mountinfo. The last mount at the longest matching path counts.
    """
    kinds = {_unescaped(place) if "\\" in place else place: kind for place, kind in _MOUNT.findall(mountinfo)}
    return next((kinds[place] for place in (path, *map(str, Path(path).parents)) if place in kinds), "")


def _unescaped(place: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), place)


def is_network(kind: str) -> bool:
    """True if files on a file system of this type may grow without a notification here."""
    return kind in NETWORK or kind.startswith("fuse.")


def read_type(directory: Path) -> str:
    """Returns the type of a directory's file system; empty if unknown."""
    try:
        return type_at(os.path.realpath(directory), MOUNTS.read_text("utf-8", "surrogateescape"))
    except OSError:
        return ""
