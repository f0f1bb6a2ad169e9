"""The runner of stories: it shows what the machine answers now, and names the step that fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.stories import Story, stories

TOLD = """\
== Sums are kept
# The second one is over two lines.
add 1 2; total => 3
add 1000000 times=12; list =>
  1; 2; 1000000; 1000000; 1000000; 1000000; 1000000; 1000000; 1000000; 1000000; 1000000; 1000000; 1000000; 1000000
add 5
"""


class Sums:
    def __init__(self) -> None:
        self.numbers: list[int] = []

    def add(self, *numbers: str, times: str = "1") -> None:
        self.numbers += [*map(int, numbers)] * int(times)

    def total(self) -> str:
        return str(sum(self.numbers))

    def list(self) -> Iterator[str]:
        return map(str, self.numbers)


def test_a_story_is_told_as_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "sums.txt").write_text(f"Sums.\n\n{TOLD}\n== Another\ntotal => 0\n")
    one, two = stories(str(tmp_path / "test_sums.py"), "sums.txt")
    assert (str(one), one.text, str(two)) == ("Sums-are-kept", TOLD, "Another")
    assert [each.told_by(Sums()) for each in (one, two)] == [one.text, two.text]


def test_what_is_answered_now_is_shown_whatever_the_story_says(tmp_path: Path) -> None:
    silent = Story(tmp_path, TOLD.replace("total => 3", "total"))
    other = Story(tmp_path, TOLD.replace("1; 2; 1", "1; 2; 5"))
    assert [each.told_by(Sums()) for each in (silent, other)] == [TOLD, TOLD]


def test_a_step_that_fails_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="invalid literal") as failure:
        Story(tmp_path, "== Wrong\nadd 1; add x\n").told_by(Sums())
    assert failure.value.__notes__ == ["at the step: add x"]
