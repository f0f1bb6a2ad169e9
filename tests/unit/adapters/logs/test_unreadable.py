"""Unreadable files and directories are named by all code that looks at logs, never silently left out."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from photon.adapters.logs import discovery, log_finder, sampling
from photon.adapters.logs.discovery import compile_patterns
from photon.adapters.logs.log_finder import LogFinder
from photon.adapters.logs.problems import LogDirectoryError, Problem, ProblemKind, ProblemReporter
from photon.adapters.logs.sampling import Sampled, sample
from photon.local_join.given import Given
from photon.local_join.inferred import looked_at

ALL = compile_patterns(("**/*",))


def refusing(opens: Callable[..., Any], name: str, number: int) -> Callable[..., Any]:
    """Like ``opens``, except for files of this name."""

    def refuse(path: Path, *rest: Any, **more: Any) -> Any:
        if path.name == name:
            raise OSError(number, os.strerror(number))
        return opens(path, *rest, **more)

    return refuse


def sampled(directory: Path) -> Sampled:
    return sample(directory, ALL, size=1 << 20, records=100)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
def test_a_sample_names_what_it_could_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    (tmp_path / "a.log").write_bytes(b"one\n")
    (tmp_path / "b.log").write_bytes(b"two\n")
    monkeypatch.setattr(sampling, "open_anywhere", refusing(sampling.open_anywhere, "b.log", number))
    found = sampled(tmp_path)
    assert found.records == {"a.log": [b"one"]}
    assert not found.whole
    assert [str(each) for each in found.unread] == [f"b.log: cannot be read ({os.strerror(number)})"]


def test_a_sample_of_damaged_and_unsupported_files_names_them(tmp_path: Path) -> None:
    (tmp_path / "a.log.gz").write_bytes(b"\x1f\x8b\x08\x00 no gzip")
    (tmp_path / "b.log.zip").write_bytes(b"PK")
    kinds = {each.path: each.kind for each in sampled(tmp_path).unread}
    assert kinds == {"a.log.gz": ProblemKind.DAMAGED, "b.log.zip": ProblemKind.UNSUPPORTED}


def test_logs_of_which_none_can_be_read_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_bytes(b"one\n")
    refuse = refusing(sampling.open_anywhere, "a.log", errno.EACCES)
    monkeypatch.setattr(sampling, "open_anywhere", refusing(refuse, "b.log", errno.EACCES))
    with pytest.raises(LogDirectoryError) as error:
        looked_at(Given(tmp_path))
    assert str(error.value) == (
        f"{tmp_path}/a.log: cannot be read (Permission denied), and 1 more cannot be read; "
        "make it readable for this user, or leave it out"
    )
    assert looked_at(Given(tmp_path, ("none",))).records == {}


def test_a_finder_names_a_file_and_finds_it_once_it_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.log").write_bytes(b"one\n")
    finder = LogFinder(tmp_path, ("*",), has_header=False)
    with monkeypatch.context() as patched:
        patched.setattr(log_finder, "open_anywhere", refusing(log_finder.open_anywhere, "a.log", errno.EACCES))
        assert finder.find() == {}
    assert [str(each) for each in finder.unread] == ["a.log: cannot be read (Permission denied)"]
    assert [each.file.path for each in finder.find().values()] == ["a.log"]  # its size and time are as before
    assert finder.unread == []


class Refused:
    """An entry of a directory that may be listed and not searched."""

    def __init__(self, entry: os.DirEntry[str], number: int) -> None:
        self.name, self.is_dir, self.is_symlink, self._number = entry.name, entry.is_dir, entry.is_symlink, number

    def stat(self, *, follow_symlinks: bool) -> os.stat_result:
        raise OSError(self._number, os.strerror(self._number))


@pytest.mark.parametrize(
    ("number", "told"),
    [(errno.EACCES, ["a.log: cannot be examined (Permission denied)"]), (errno.ENOENT, []), (errno.ELOOP, [])],
)
def test_an_entry_that_cannot_be_looked_at_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, told: list[str]
) -> None:
    (tmp_path / "a.log").write_bytes(b"one\n")
    with os.scandir(tmp_path) as entries:
        refused = [("a.log", Refused(entry, number)) for entry in entries]
    problems = ProblemReporter(None)
    with monkeypatch.context() as patched:
        patched.setattr(discovery, "_walk", lambda *rest: iter(refused))
        assert discovery.discover(tmp_path, ALL, problems) == []
    assert [str(each) for each in problems.unsolved((ProblemKind.UNREADABLE,))] == told
    assert [each.path for each in discovery.discover(tmp_path, ALL, problems)] == ["a.log"]


def test_a_problem_is_one_line_whatever_the_name_of_the_file() -> None:
    assert str(Problem(ProblemKind.LINK, "a\nb.log", "is a link")) == "'a\\nb.log': is a link"
    assert str(Problem(ProblemKind.LINK, "ä b.log", "is a link")) == "ä b.log: is a link"
