"""Filling a small file system."""

import os
import subprocess
from pathlib import Path

import pytest

from photon.lab.chaos import disks
from photon.lab.chaos.api import ChaosFailed


@pytest.fixture
def small(tmp_path: Path) -> Path:
    directory = tmp_path / "small"
    try:
        disks.mount_small(directory)
    except ChaosFailed as error:
        pytest.skip(str(error))
    return directory


def test_a_small_one_is_filled_and_emptied(small: Path) -> None:
    try:
        assert disks.is_small(small)
        (small / "kept").write_bytes(b"kept")
        disks.fill(small)
        with pytest.raises(OSError, match="No space left"):
            (small / "more").write_bytes(bytes(1 << 16))
        disks.empty(small)
        disks.empty(small)
        (small / "more").write_bytes(bytes(1 << 16))
        assert (small / "kept").read_bytes() == b"kept"
    finally:
        disks.unmount(small)
    assert not os.path.ismount(small)


def test_one_that_others_need_is_not_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disks, "FREE_MAX", 0)
    with pytest.raises(ChaosFailed, match="which other processes may need"):
        disks.fill(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_mount_that_fails_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = subprocess.CompletedProcess([], 32, b"", b"mount: permission\ndenied")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(ChaosFailed, match="permission denied"):
        disks.mount_small(tmp_path / "x")


def test_what_a_killed_run_has_left_is_found(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "tmpfs /tmp/x/registry/r1 tmpfs rw 0 0\n"
        "photon-chaos /tmp/x/registry/r\\0405 tmpfs rw 0 0\n"
        "photon-chaos /tmp/xy/registry/r5 tmpfs rw 0 0\n"
        "photon-chaos\n"
    )
    assert disks.mounted_below(Path("/tmp/x"), mounts) == [Path("/tmp/x/registry/r 5")]
    assert disks.mounted_below(Path("/tmp/x"), tmp_path / "none") == []


def test_one_that_is_mounted_is_found_until_it_is_not(small: Path) -> None:
    try:
        assert disks.mounted_below(small.parent) == [small]
    finally:
        disks.unmount(small)
    assert disks.mounted_below(small.parent) == []
