"""The machine's file system, where it fails."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from photon.config.disk import RealDisk


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no disk that is always full")
def test_a_write_that_fails_names_its_file() -> None:
    file = RealDisk().append(Path("/dev/full"))
    try:
        with pytest.raises(OSError, match="No space left on device: '/dev/full'") as failed:
            file.write(b"a line\n")
    finally:
        file.close()
    assert (failed.value.errno, failed.value.filename) == (errno.ENOSPC, "/dev/full")
