"""Deployment files of which the files of deploy/ are made, and those of which they cannot be."""

from __future__ import annotations

from pathlib import Path

from tests.unit.refusals import photon, refused

COMPOSE = Path(__file__).parents[3] / "deploy" / "compose" / "photon.toml"


def on_spark(text: str, datacentre: str) -> str:
    """The deployment file in which a datacentre's join is on Spark."""
    table, copies = f"[datacentre.{datacentre}]\n", "copies = 2"
    assert table in text
    assert copies in text
    return text.replace(table, f'{table}pipeline = "spark"\n').replace(copies, "copies = 1")


def one_datacentre() -> str:
    """East of deploy/compose/photon.toml alone, with one replica and no cache."""
    tables = COMPOSE.read_text().split("\n[")
    tables = [each.replace('copies = "copies-east:7060"\n', "") for each in tables]
    others = ("wan]", "registry.replicas.", "datacentre.west", "datacentre.east.caches")
    kept = [each for each in tables if not each.startswith(others) or each.startswith("registry.replicas.r1]")]
    return "\n[".join(kept).replace("tolerate = 2", "tolerate = 0") + "\n"


def refusal(base: Path, option: str, text: str, old: str, new: str) -> str:
    """Message of ``photon up`` for a deployment file in which ``old`` is ``new``; nothing is written."""
    assert old in text
    (base / "photon.toml").write_text(text.replace(old, new, 1))
    said = refused(photon("up", base / "photon.toml", option, base / "made.yml"))
    assert not (base / "made.yml").exists()
    return said
