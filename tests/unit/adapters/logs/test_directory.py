"""Stories of a directory of logs and of what its follower reads: ``directory.txt``."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.kit.stories import Story, stories
from tests.unit.adapters.logs.directory import Directory


@pytest.mark.parametrize("story", stories(__file__, "directory.txt"), ids=str)
def test_the_follower_reads_what_its_stories_tell(story: Story, golden: Any, tmp_path: Path) -> None:
    with closing(Directory(tmp_path)) as directory:
        golden(story, story.told_by(directory))
