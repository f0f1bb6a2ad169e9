"""Names for a side: directory, file, glob, standard input."""

from __future__ import annotations

import gzip
import io
import os
from pathlib import Path

import pytest

from photon.adapters.logs.discovery import compile_patterns, discover
from photon.adapters.logs.problems import ProblemReporter
from photon.config.errors import UsageError
from photon.local_join.given import Given, check_streams, given, spooled
from photon.local_join.site import Site


def files(side: Given) -> list[str]:
    silent = ProblemReporter(lambda problem: None)
    found = discover(side.directory, compile_patterns(side.patterns or ("**/*",)), silent, links=side.links)
    return [each.path for each in found]


def touch(base: Path, *names: str) -> None:
    for name in names:
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text(f"{name}\n")


def test_a_file_is_a_log_with_what_it_is_rolled_to(tmp_path: Path) -> None:
    log = ["a.log", "a.log-20261120.zst", "a.log.1", "a.log.12.gz", "a.log.2026-11-20", "a.log.gz"]
    touch(tmp_path, *log, "a.log.bak", "ba.log", "a.log.d/a.log", "b.log", "a.logs")
    assert files(given("primary", tmp_path / "a.log")) == log
    assert files(given("primary", tmp_path / "a.log.1")) == ["a.log.1"]
    assert files(given("primary", tmp_path / "a.log.gz")) == ["a.log.gz"]


def test_special_characters_in_a_file_name_are_themselves(tmp_path: Path) -> None:
    touch(tmp_path, "a[1]*?.log", "a1xy.log")
    assert files(given("primary", tmp_path / "a[1]*?.log")) == ["a[1]*?.log"]


def test_a_glob_is_what_it_matches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "x/2026-11/a.log", "x/2026-11/a.log.1", "x/2026-12/deep/a.log", "x/b.log", "y/a.log")
    assert files(given("primary", tmp_path / "x" / "**" / "a.log")) == ["2026-11/a.log", "2026-12/deep/a.log"]
    assert files(given("primary", tmp_path / "x" / "2026-*" / "a.log")) == ["2026-11/a.log"]
    assert files(given("primary", tmp_path / "?" / "[ab].log")) == ["x/b.log", "y/a.log"]
    monkeypatch.chdir(tmp_path / "x")
    assert files(given("primary", Path("*.log"))) == ["b.log"]


def test_directories_that_nothing_can_match_in_are_not_entered(tmp_path: Path) -> None:
    touch(tmp_path, "a.log", "x/a.log", "x/y/a.log", "z/a.log")
    for pattern, expected in (
        ("a.log", [""]),
        ("x/a.log", ["", "x"]),
        ("x/**/a.log", ["", "x", "x/y"]),
        ("**/*", ["", "x", "x/y", "z"]),
        ("[xz]/*", ["", "x", "z"]),
        ("x[/]a.log", ["", "x", "x/y", "z"]),
    ):
        entered: list[str] = []
        discover(tmp_path, compile_patterns([pattern]), ProblemReporter(lambda problem: None), entered.append)
        assert entered == expected, pattern


def test_a_pattern_that_means_nothing_is_refused(tmp_path: Path) -> None:
    touch(tmp_path, "a.log")
    with pytest.raises(UsageError, match=r"\[z-a\].log: not a valid glob pattern \(bad character range z-a"):
        compile_patterns(["[z-a].log"])


def test_what_is_not_there_is_said_in_one_line(tmp_path: Path) -> None:
    touch(tmp_path, "x/a.log")
    for path in (tmp_path / "b.log", tmp_path / "y" / "*.log", tmp_path / "x" / "*.csv"):
        with pytest.raises(UsageError, match=r"--primary .*: no (such|file)"):
            given("primary", path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="standard input"):
        given("foreign", tmp_path / "pipe")


def test_the_output_may_stand_beside_a_file_but_not_in_what_is_read(tmp_path: Path) -> None:
    touch(tmp_path, "a.log", "x/a.log")
    Site(tmp_path / "out").check_logs("primary", Path("a.log"), given("primary", tmp_path / "a.log"))
    Site(tmp_path / "out").check_logs("primary", Path("x"), given("primary", tmp_path / "x" / "*"))
    for logs in (given("primary", tmp_path), given("primary", tmp_path / "*" / "a.log")):
        with pytest.raises(UsageError, match="is inside --primary"):
            Site(tmp_path / "out").check_logs("primary", tmp_path, logs)


def test_standard_input_is_one_side_and_read_to_its_end(tmp_path: Path) -> None:
    side = {"primary": Given(tmp_path)}
    check_streams(side, once=True)
    check_streams({**side, "foreign": Given(tmp_path)}, once=False)
    with pytest.raises(UsageError, match="--once"):
        check_streams(side, once=False)
    with pytest.raises(UsageError, match="only one side can be standard input"):
        check_streams({}, once=True)


def test_a_stream_that_goes_on_is_the_log_it_was_and_any_other_its_own(tmp_path: Path) -> None:
    directory = tmp_path / "state" / "stdin"
    for data, expected in (
        (b"a\nb", {"stdin-1": b"a\nb"}),
        (b"a\nb", {"stdin-1": b"a\nb"}),
        (b"", {"stdin-1": b"a\nb"}),
        (b"a\nb\nc\n", {"stdin-1": b"a\nb\nc\n"}),
        (b"a\n", {"stdin-1": b"a\nb\nc\n"}),
        (b"c\n", {"stdin-1": b"a\nb\nc\n", "stdin-2": b"c\n"}),
        (gzip.compress(b"c\n") + gzip.compress(b"d\n"), {"stdin-1": b"a\nb\nc\n", "stdin-2": b"c\nd\n"}),
    ):
        assert files(spooled(directory, io.BytesIO(data))) == list(expected)
        assert {path.name: path.read_bytes() for path in directory.iterdir()} == expected


@pytest.mark.parametrize(
    "packed", [gzip.compress(b"a\n" * 9)[:-9], gzip.compress(b"a\n" * 9)[:14] + b"junk" * 9], ids=["short", "junk"]
)
def test_a_damaged_compressed_stream_is_not_joined(tmp_path: Path, packed: bytes) -> None:
    with pytest.raises(UsageError, match="compressed but damaged"):
        spooled(tmp_path, io.BytesIO(packed))
    assert files(Given(tmp_path, ("stdin-*",))) == []


def test_a_stream_that_breaks_off_is_not_there(tmp_path: Path) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        spooled(tmp_path, Broken())
    assert files(Given(tmp_path, ("stdin-*",))) == []
    assert files(spooled(tmp_path, io.BytesIO(b"a\n"))) == ["stdin-1"]


def test_a_link_that_is_named_is_followed(tmp_path: Path) -> None:
    touch(tmp_path, "far/real.log", "far/real.log.1", "far/other.log", "logs/near.log")
    (tmp_path / "logs" / "link.log").symlink_to(tmp_path / "far" / "real.log")
    (tmp_path / "logs" / "current.log").symlink_to("near.log")
    (tmp_path / "door").symlink_to("logs")
    side = given("foreign", tmp_path / "logs" / "link.log")
    assert (side.directory, side.links) == (tmp_path / "logs", (str(tmp_path / "far"),))
    assert files(side) == ["link.log", "link.log.1"]
    assert given("foreign", tmp_path / "logs" / "current.log").links == ()
    assert given("foreign", tmp_path / "door" / "near.log").links == ()
    assert given("foreign", tmp_path / "door").links == ()


def test_a_glob_follows_no_link_out_of_its_directory(tmp_path: Path) -> None:
    touch(tmp_path, "far/real.log", "logs/a.log")
    (tmp_path / "logs" / "link.log").symlink_to(tmp_path / "far" / "real.log")
    assert files(given("foreign", tmp_path / "logs" / "*.log")) == ["a.log"]
    with pytest.raises(
        UsageError, match=r"--foreign .*li\*.log: no matching file can be read: link.log: leads to .*real.log"
    ):
        given("foreign", tmp_path / "logs" / "li*.log")
