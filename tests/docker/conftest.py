"""A Docker to test with: the machine's own, or in CI as root one that is installed, started here and stopped again.

On anybody else's machine without Docker the tests skip and say why.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("docker.io", "docker-compose", "iptables", "debootstrap")
SOCKET = Path("/var/run/docker.sock")
START_S = 60.0
STOP_S = 60.0
PULL_S = 120.0
# How long the layers of replaced builds are kept in the cache: the newest ones make the next build short.
KEPT = "72h"
PUBLIC_BASE = "python:3.11-slim-bookworm"
LOCAL_BASE = "local/python:3.11"


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "photon"


def _answers() -> bool:
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


def _install() -> None:
    quiet = {"env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, "capture_output": True, "check": True}
    subprocess.run(["apt-get", "update", "-qq"], **quiet)  # type: ignore[call-overload]
    subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *PACKAGES], **quiet)  # type: ignore[call-overload]


def _daemon() -> Iterator[None]:
    """One of our own: its images are kept between runs, its sockets and processes are not."""
    kept = _cache() / "docker"
    kept.mkdir(parents=True, exist_ok=True)
    pidfile = kept / "dockerd.pid"
    command = [
        "dockerd", "--data-root", str(kept / "data"), "--exec-root", str(kept / "exec"), "--pidfile", str(pidfile),
        "--host", f"unix://{SOCKET}", "--default-address-pool", "base=10.200.0.0/16,size=24",
    ]  # fmt: skip
    with open(kept / "dockerd.log", "wb") as log:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    deadline = time.monotonic() + START_S
    try:
        while not _answers():
            assert child.poll() is None, f"dockerd ended: see {kept / 'dockerd.log'}"
            assert time.monotonic() < deadline, "dockerd did not answer"
            time.sleep(0.2)
        yield
    finally:
        subprocess.run(
            ["docker", "image", "prune", "-f", "--filter", f"until={KEPT}"], capture_output=True, check=False
        )
        child.send_signal(signal.SIGTERM)
        child.wait(STOP_S)


def _base_image() -> str:
    """python:3.11 where it can be pulled, else one that is made of Debian's packages."""
    named = os.environ.get("BASE_IMAGE")
    if named:
        return named
    for image in (PUBLIC_BASE, LOCAL_BASE):
        if subprocess.run(["docker", "image", "inspect", image], capture_output=True, check=False).returncode == 0:
            return image
    with contextlib.suppress(subprocess.TimeoutExpired):
        pulled = subprocess.run(
            ["docker", "pull", "-q", PUBLIC_BASE], capture_output=True, timeout=PULL_S, check=False
        )
        if pulled.returncode == 0:
            return PUBLIC_BASE
    subprocess.run([str(ROOT / "deploy" / "docker" / "base_image.sh"), LOCAL_BASE], capture_output=True, check=True)
    return LOCAL_BASE


@pytest.fixture(scope="session")
def docker() -> Iterator[None]:
    """A daemon that answers, and BASE_IMAGE set."""
    own = None
    if not _answers():
        if not (os.environ.get("CI") and os.geteuid() == 0 and shutil.which("apt-get")):
            pytest.skip("needs Docker: none answers, and only CI as root installs one")
        if shutil.which("dockerd") is None or shutil.which("docker-compose") is None:
            _install()
        own = _daemon()
        next(own)
    try:
        os.environ["BASE_IMAGE"] = _base_image()
        yield
    finally:
        if own is not None:
            next(own, None)
