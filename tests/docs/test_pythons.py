"""Photon does the same on each Python that pyproject.toml allows."""

from __future__ import annotations

import re
from pathlib import Path

import photon

GROUP = re.compile(r"(?<!\))\)[*+?]\+")


def test_what_a_pattern_repeats_possessively_is_atomic() -> None:
    """Before 3.11.5 a round that fails after it repeated something moves where the match goes on: (?:ab?c)*+ takes
    all of "aca", (?:(?>ab?c))*+ takes "ac".
    """
    rooms = [each.resolve() for each in Path(photon.__file__).parent.iterdir()]
    sources = [path for room in rooms for path in (room.rglob("*.py") if room.is_dir() else [room])]
    assert len(sources) > 500
    assert [path.name for path in sources if GROUP.search(path.read_text())] == []
