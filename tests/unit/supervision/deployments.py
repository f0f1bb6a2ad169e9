"""Deployment files for tests, on free ports."""

from __future__ import annotations

import re
from pathlib import Path

from photon.config.loader import load
from photon.config.settings import Settings
from photon.supervision.ports import free_ports

TOGETHER = Path(__file__).parents[3] / "config" / "examples" / "two_datacentres.toml"
EXAMPLE = Path(__file__).with_name("two_apart.toml")


def example_settings() -> Settings:
    """Two datacentres, all their parts apart."""
    return load(EXAMPLE, environment={})


def write_deployment(directory: Path) -> Path:
    """Two datacentres on free ports, all their parts apart, with its key and log directories."""
    text = EXAMPLE.read_text()
    ports = sorted(set(re.findall(r"127\.0\.0\.1:(\d+)", text)))
    for old, new in zip(ports, free_ports(len(ports)), strict=True):
        text = text.replace(f'"127.0.0.1:{old}"', f'"127.0.0.1:{new}"')
    for name in ("east/queries", "east/clicks", "west/queries", "west/clicks"):
        (directory / name).mkdir(parents=True)
    (directory / "key").write_bytes(b"k" * 32)
    file = directory / "photon.toml"
    file.write_text(text)
    return file
