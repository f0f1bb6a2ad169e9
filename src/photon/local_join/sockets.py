"""Where a command and its children talk: a Unix socket in a directory of the command's own, however long its path.

A socket's path may have some 100 bytes. Through the command's descriptor of the directory every path is short, and
nothing is left elsewhere when the command is killed; what a killed one left is removed by the next.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

SUFFIX = ".socket"


@contextlib.contextmanager
def socket_address(directory: Path, name: str) -> Iterator[str]:
    """``unix:PATH`` for a child that ends before this does. ``directory`` is there, and locked by this process."""
    for stale in directory.glob(f"{name}-*{SUFFIX}"):
        stale.unlink(missing_ok=True)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # The number keeps a child of a killed predecessor, which removes its socket when it ends, from removing ours.
        path = f"/proc/{os.getpid()}/fd/{descriptor}/{name}-{os.getpid()}{SUFFIX}"
        if _works(path):
            try:
                yield f"unix:{path}"
            finally:
                with contextlib.suppress(FileNotFoundError):  # a child that ended in order has removed it
                    os.unlink(path)
            return
    finally:
        os.close(descriptor)
    with tempfile.TemporaryDirectory(prefix="photon-") as elsewhere:  # a file system that holds no sockets
        yield f"unix:{elsewhere}/{name}"


def _works(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.bind(path)
        except OSError:
            return False
    os.unlink(path)
    return True
