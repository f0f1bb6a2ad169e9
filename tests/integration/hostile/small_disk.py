"""A small file system that can be filled, for root."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(directory: Path, size: str) -> Iterator[Path]:
    """``size``: in tmpfs syntax."""
    directory.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", directory], capture_output=True
    ).returncode:
        pytest.skip("needs the right to mount a small file system")
    yield directory
    subprocess.run(["umount", "--lazy", directory], check=True)
