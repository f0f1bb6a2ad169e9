"""The picture of the house is the layers that import-linter holds."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
LAYERS = "rooms: arrows of import point down only"


def layers() -> list[set[str]]:
    """From the top."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = (each for each in contracts if each["name"] == LAYERS)
    return [{room.strip() for room in layer.split("|")} for layer in contract["layers"]]


def test_the_picture_of_the_house_shows_the_layers() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    floors = re.findall(r"^│ ([\w /]+?) *│ .+│$", text, re.MULTILINE)
    assert [set(floor.split(" / ")) for floor in floors] == layers()


def test_no_contract_has_an_exception() -> None:
    assert "ignore_imports" not in (ROOT / "pyproject.toml").read_text()
