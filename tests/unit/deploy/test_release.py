"""The checklist: which version may follow, what the code's formats are, and that nothing goes on behind a failure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.deploy.scripts import DEPLOY, script

release = script("release")
ROOT = DEPLOY.parent
KEY = Path("none")


def test_the_page_shows_all_durable_formats() -> None:
    shown = release.formats_shown((ROOT / release.PAGE).read_text())
    assert shown == release.formats(ROOT), "docs/releasing.md must show what release.py formats prints"
    assert "| `joiner/slot/redo_log.py` | `PHOTREDO` | 1 |" in shown


def test_the_page_names_each_step() -> None:
    page = (ROOT / release.PAGE).read_text()
    assert [step for step in release.STEPS if f"| `{step}` |" not in page] == []


def test_a_constant_is_found_whatever_it_is_called() -> None:
    source = (
        'MAGIC = b"PH\\xff"\n_VERSION = 3\nSTATE_VERSION = 2\nFORMAT = 1\nVERSION = b"4"\nVERSIONS = (1, 2)\nx = 1\n'
        'A_MAGIC, A_VERSION = "as", 5\n'
    )
    assert release._constants(source) == {
        "MAGIC": "PH\\xff", "_VERSION": 3, "STATE_VERSION": 2, "FORMAT": 1, "VERSION": 4,
        "A_MAGIC": "as", "A_VERSION": 5,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("last", "notes", "formats_changed", "lowest"),
    [
        ((0, 1, 0), ["- a page"], False, (0, 1, 1)),
        ((0, 1, 0), ["- a page"], True, (0, 2, 0)),
        ((0, 1, 0), ["- The command x is gone."], False, (0, 2, 0)),
        ((1, 4, 2), ["- a page", "- **Breaking:** y"], True, (2, 0, 0)),
        ((1, 4, 2), ["- files of version 3"], True, (1, 5, 0)),
        ((1, 4, 2), ["- events are no longer lost"], False, (1, 4, 3)),
    ],
)
def test_how_large_a_step_the_changes_are(
    last: tuple[int, int, int], notes: list[str], formats_changed: bool, lowest: tuple[int, int, int]
) -> None:
    assert release.least(last, list(enumerate(notes, 1)), formats_changed)[0] == lowest


def test_the_last_release_is_the_highest() -> None:
    tags = ["v0.9.0", "v0.10.1", "v0.10.0", "v1", "nightly", "0.11.0", "v0.12.0-rc1"]
    assert release.last_release(tags) == (0, 10, 1)
    assert release.last_release([]) is None
    assert [release.numbers(each) for each in ("1.2", "1.02.3", "1.2.3-rc1", "v1.2.3")] == [None] * 4


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A small project whose last release is 0.1.0 and whose next one may be 0.2.0."""
    (tmp_path / "src/photon").mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    (tmp_path / release.PAGE).write_text(f"{release.FORMATS}\n| --- |\n\n")
    write(tmp_path, "0.1.0", "- all of it is gone")
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    git(tmp_path, "tag", "v0.1.0")
    return tmp_path


def write(clone: Path, version: str, notes: str) -> None:
    (clone / "src/photon/__init__.py").write_text(f'__version__ = "{version}"\n')
    old = (clone / "CHANGELOG.md").read_text() if (clone / "CHANGELOG.md").exists() else ""
    notes = f"# Changelog\n\n## {version}\n\n{notes}\n\n{old.removeprefix('# Changelog')}"
    (clone / "CHANGELOG.md").write_text(notes)


def git(clone: Path, *arguments: str) -> None:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, *arguments], cwd=clone, check=True, capture_output=True)


def commit(clone: Path) -> None:
    git(clone, "add", "-A")
    git(clone, "commit", "-qm", "x")


def failure(step: str, clone: Path, version: str) -> str:
    with pytest.raises(release.Failed) as failed:
        release.STEPS[step](release.Release(version, KEY, clone))
    return f"{failed.value}; {failed.value.todo}"


def test_tree_version_and_changes(clone: Path) -> None:
    write(clone, "0.1.1", "- The option --old is gone.")
    assert "2 files are not as committed" in failure("tree", clone, "0.1.1")
    commit(clone)
    wanted = release.Release("0.1.1", KEY, clone)
    assert release.check_tree(wanted).startswith("commit ")
    assert release.check_version(wanted) == "follows 0.1.0"
    assert failure("changes", clone, "0.1.1").startswith(
        "CHANGELOG.md:5 says 'is gone': 0.2.0 is the least; name that"
    )
    assert 'set __version__ = "0.2.0"' in failure("version", clone, "0.2.0")
    write(clone, "0.3.0", "- more")
    assert failure("version", clone, "0.3.0").endswith("; name 1.0.0 or 0.2.0 or 0.1.1")
    write(clone, "0.2.0", "- less")
    assert release.check_changes(release.Release("0.2.0", KEY, clone)) == "nothing is broken"
    (clone / "config").mkdir()
    (clone / "config" / "file.py").write_text("VERSION = 2\n")
    assert "shows other formats" in failure("formats", clone, "0.2.0")
    assert "a durable format has changed" in release.check_changes(release.Release("0.2.0", KEY, clone))
    assert "make baseline" in failure("baseline", clone, "0.2.0")
    assert "is no version" in failure("version", clone, "0.2")


def test_a_clone_without_tags_is_not_the_first_release(clone: Path) -> None:
    git(clone, "tag", "-d", "v0.1.0")
    assert release.check_version(release.Release("0.1.0", KEY, clone)) == "the first one"
    write(clone, "7.0.0", "- more")
    assert failure("version", clone, "7.0.0").endswith("names 0.1.0, and no tag does; git fetch --tags")


def test_a_damaged_baseline_is_one_line(clone: Path) -> None:
    path = clone / release.BASELINES / "0.1.0.tar.xz"
    path.parent.mkdir(parents=True)
    for data in (b"", b"no archive", (ROOT / release.BASELINES / "0.1.0.tar.xz").read_bytes()[:9000]):
        path.write_bytes(data)
        assert "make baseline" in failure("baseline", clone, "0.1.0")


def test_the_gate_counts_for_its_commit_alone(clone: Path) -> None:
    (clone / "build").mkdir()
    (clone / "Makefile").write_text("gate:\n\tfalse\n")
    assert failure("gate", clone, "0.1.1").startswith("make gate failed; see ")
    (clone / "Makefile").write_text("gate:\n\ttrue\n")
    assert "but on something else than" in failure("gate", clone, "0.1.1")
    (clone / release.GATE).write_text(release.artifacts.git("rev-parse", "HEAD", root=clone) + "\n")
    assert release.check_gate(release.Release("0.1.1", KEY, clone)).startswith("passed on ")


def test_the_gate_is_noted_of_the_commit_that_it_ran_on(clone: Path) -> None:
    (clone / "Makefile").write_text((ROOT / "Makefile").read_text())
    (clone / ".gitignore").write_text("build\n")
    (clone / ".ci").mkdir()
    (clone / ".ci/run").write_text('#!/bin/sh\neval "$MEANWHILE"\n')
    (clone / ".ci/run").chmod(0o755)
    commit(clone)

    def ran(meanwhile: str) -> tuple[bool, bool]:
        """Whether it passed, and was noted."""
        (clone / release.GATE).unlink(missing_ok=True)
        environment = {**os.environ, "MEANWHILE": meanwhile}
        command = ["make", "-o", "install", "gate"]
        made = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True)
        return made.returncode == 0, (clone / release.GATE).exists()

    who = "-c user.name=x -c user.email=x@example.org -c commit.gpgsign=false"
    assert ran("true") == (True, True)
    assert ran("false") == (False, False)
    assert ran("touch new") == (True, False)
    assert ran(f"git add new && git {who} commit -qm x") == (True, False)


def test_what_comes_behind_a_failure_stays_open() -> None:
    def fail(_: object) -> str:
        raise release.Failed("it rains", "wait")

    def broken(_: object) -> str:
        raise release.artifacts.Undone("no git")

    shown: list[str] = []
    steps = {"one": lambda _: "fine", "gate": fail, "two": fail, "three": broken}
    wanted = release.Release("0.1.1", KEY, waived={"gate": "it ran elsewhere"})
    verdicts = release.walk(wanted, steps, lambda each: shown.append(release.line_of(each)))
    assert [each.verdict for each in verdicts] == ["ok", "waived", "failed", "open"]
    assert shown[1:] == ["gate      waived  it ran elsewhere", "two       failed  it rains; wait", "three     open"]
    [verdict] = release.walk(wanted, {"three": broken}, shown.append)
    assert (verdict.verdict, verdict.what) == ("failed", "no git")


def test_the_command_says_it_as_json() -> None:
    command = [sys.executable, DEPLOY / "release.py", "check", "no-version", "--key", "none", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True)
    said = json.loads(done.stdout)
    assert (done.returncode, said["good"], said["tag"]) == (1, False, None)
    assert [each["verdict"] for each in said["steps"]].count("failed") == 1
    refused = subprocess.run([*command, "--waive", "tree=why"], capture_output=True, text=True)
    assert refused.returncode == 2
    assert "STEP one of changes, gate, audit" in refused.stderr
