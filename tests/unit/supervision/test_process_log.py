"""The processes' logs: bounded, their last line, followed."""

from __future__ import annotations

from pathlib import Path

import pytest

from photon.supervision.process_log import (
    FOLLOW_BYTES,
    SAID_CHARACTERS,
    TAIL_BYTES,
    LogFollower,
    cut_log,
    is_above,
    last_said,
    old,
    open_log,
    plain,
)


def _append(path: Path, text: str) -> None:
    with open(path, "a") as file:
        file.write(text)


def test_a_log_that_is_too_large_is_renamed_at_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "a.log"
    for text in ("x" * 11, "second"):
        with open_log(path, 10) as log:
            log.write(text.encode())
    assert (old(path).read_text(), path.read_text()) == ("x" * 11, "second")
    with open_log(path, 10) as log:
        assert log.tell() == len("second")


def test_a_process_that_appends_goes_on_in_a_log_that_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    with open_log(path) as log:
        log.write(b"before\n" * 10)
        log.flush()
        assert is_above(path, 69)
        assert not is_above(path, 70)
        cut_log(path)
        log.write(b"after\n")
    assert old(path).read_bytes() == b"before\n" * 10
    assert path.read_bytes() == b"after\n"


@pytest.mark.parametrize(
    ("text", "since", "said"),
    [
        ("", 0, ""),
        ("one\ntwo\n", 0, "two"),
        ("photon: the reason\nafterwards\n", 0, "the reason"),
        ("photon: of an earlier life\nnow\n", 27, "now"),
        ("photon: of an earlier life\n", 27, ""),
        ("photon: cut since\n", 1000, "cut since"),
        ('{"event":"it ends","level":"error","timestamp":"t","code":3}\n', 0, "error: it ends code=3"),
        ("x" * 1000 + "\n", 0, "x" * SAID_CHARACTERS),
        ("photon: too far back\n" + "y\n" * TAIL_BYTES, 0, "y"),
    ],
)
def test_the_last_line_that_tells_why(tmp_path: Path, text: str, since: int, said: str) -> None:
    path = tmp_path / "a.log"
    path.write_text(text)
    assert last_said(path, since) == said


def test_of_no_log_nothing_is_said(tmp_path: Path) -> None:
    assert last_said(tmp_path / "none.log") == ""


@pytest.mark.parametrize("line", ["text", "{broken", "[1]", '{"a":'])
def test_a_line_without_structure_is_shown_as_it_is(line: str) -> None:
    assert plain(line) == line


def test_what_is_added_is_followed_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("old\n")
    follower = LogFollower(path)
    assert follower.lines() == []
    _append(path, "one\ntw")
    assert follower.lines() == ["one"]
    _append(path, "o\n")
    assert follower.lines() == ["two"]
    path.write_text("")
    assert follower.lines() == []
    _append(path, "new\n")
    assert follower.lines() == ["new"]


def test_a_log_that_comes_later_is_followed_from_its_start(tmp_path: Path) -> None:
    follower = LogFollower(tmp_path / "a.log")
    assert follower.lines() == []
    _append(tmp_path / "a.log", "one\n")
    assert follower.lines() == ["one"]


def test_too_much_at_once_is_left_out_and_said_so(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    follower = LogFollower(path)
    _append(path, "line\n" * FOLLOW_BYTES)
    first, *rest = follower.lines()
    assert "bytes skipped" in first
    assert set(rest) == {"line"}
    assert len(rest) * 5 <= FOLLOW_BYTES
    assert follower.lines() == []
