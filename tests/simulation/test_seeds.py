"""What ``world.seeds`` reads is there."""

from __future__ import annotations

import json

from tests.simulation.world.seeds import FOUND


def test_files_whose_seeds_found_something_are_there() -> None:
    for file in json.loads(FOUND.read_text()):
        assert (FOUND.parent / f"{file}.py").exists(), file
