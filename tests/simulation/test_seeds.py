"""The files that ``world.seeds`` reads exist."""

from __future__ import annotations

import json

from tests.simulation.world.seeds import FOUND


def test_files_whose_seeds_found_something_are_there() -> None:
    for found in json.loads(FOUND.read_text()):
        file, *world = found.split()
        text = (FOUND.parent / f"{file}.py").read_text()
        assert all(f'world="{each}"' in text for each in world), found
