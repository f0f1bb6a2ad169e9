"""Stories of configured sides and their records: ``reading/``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.stories import Story, stories
from tests.unit.adapters.reading import told

STORIES = [
    each
    for path in sorted((Path(__file__).parent / "reading").glob("*.txt"))
    for each in stories(__file__, f"reading/{path.name}")
]


@pytest.mark.parametrize("story", STORIES, ids=str)
def test_sides_answer_as_their_stories_tell(story: Story, golden: Any) -> None:
    golden(story, told(story))
