"""The machine's file system when it fails."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from photon.config.disk import RealDisk, naming


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no disk that is always full")
def test_a_write_that_fails_names_its_file() -> None:
    file = RealDisk().append(Path("/dev/full"))
    try:
        with pytest.raises(OSError, match="No space left on device: '/dev/full'") as failed:
            file.write(b"a line\n")
    finally:
        file.close()
    assert (failed.value.errno, failed.value.filename) == (errno.ENOSPC, "/dev/full")


def test_a_library_that_fails_without_a_name_is_given_one() -> None:
    path = Path("/mnt/summary.parquet")
    with pytest.raises(OSError, match="No space left on device: '/mnt/summary") as failed, naming(path):
        raise OSError(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28] No space left on device")
    assert (failed.value.errno, failed.value.filename) == (errno.ENOSPC, str(path))
    with pytest.raises(OSError, match="'other'"), naming(path):
        raise OSError(errno.ENOSPC, "full", "other")
