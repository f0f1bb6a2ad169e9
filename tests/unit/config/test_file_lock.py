"""One process at a time has a file; other locking failures are not reported as another holder."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.config.file_lock import alone, lock_file
from photon.outputs.cursor import CursorFile


def test_alone_until_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with alone(path, "busy"):
        assert lock_file(path) is None
        with pytest.raises(UsageError, match="busy"), alone(path, "busy"):
            pass
    held = lock_file(path)
    assert held is not None
    os.close(held)


def test_a_file_system_without_locks_is_not_told_as_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    open_before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match="No locks available"), alone(tmp_path / "lock", "busy"):
        pass
    with pytest.raises(UsageError, match=r"cannot keep a cursor there \(No locks available\)"):
        CursorFile(RealDisk(), tmp_path / "cursor")
    assert len(os.listdir("/proc/self/fd")) == open_before
