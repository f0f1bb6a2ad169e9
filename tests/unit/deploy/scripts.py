"""The scripts of deploy/, which are no package, as modules; and deployment files that they cannot be made of."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

from tests.unit.refusals import photon, refused

DEPLOY = Path(__file__).parents[3] / "deploy"


def script(name: str) -> ModuleType:
    """As it imports its neighbours where it is run."""
    sys.path.insert(0, str(DEPLOY))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(DEPLOY))


def refusal(base: Path, option: str, text: str, old: str, new: str) -> str:
    """What ``photon up`` says of a deployment file in which ``old`` is ``new``; nothing is written."""
    assert old in text
    (base / "photon.toml").write_text(text.replace(old, new, 1))
    said = refused(photon("up", base / "photon.toml", option, base / "made.yml"))
    assert not (base / "made.yml").exists()
    return said
