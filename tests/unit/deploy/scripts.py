"""Deployment files of which the files of deploy/ are made, and those of which they cannot be."""

from __future__ import annotations

from pathlib import Path

from tests.unit.refusals import photon, refused

COMPOSE = Path(__file__).parents[3] / "deploy" / "compose" / "photon.toml"


def refusal(base: Path, option: str, text: str, old: str, new: str) -> str:
    """Message of ``photon up`` for a deployment file in which ``old`` is ``new``; nothing is written."""
    assert old in text
    (base / "photon.toml").write_text(text.replace(old, new, 1))
    said = refused(photon("up", base / "photon.toml", option, base / "made.yml"))
    assert not (base / "made.yml").exists()
    return said
