"""The checklist: which version may follow, what the code's formats are, and that nothing goes on behind a failure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.unit.deploy.scripts import DEPLOY, script

ROOT = DEPLOY.parent
KEY = Path("none")


@pytest.fixture(scope="module")
def release() -> ModuleType:
    return script("release")


def test_the_page_shows_all_durable_formats(release: ModuleType) -> None:
    shown = release.formats_shown((ROOT / release.PAGE).read_text())
    assert shown == release.formats(ROOT), (
        "docs/releasing.md must show what `python deploy/release.py formats` prints"
    )
    assert "| `joiner/slot/redo_log.py` | `PHOTREDO` | 1 |" in shown


def test_the_page_names_each_step(release: ModuleType) -> None:
    page = (ROOT / release.PAGE).read_text()
    assert [step for step in release.STEPS if f"| `{step}` |" not in page] == []


def test_a_constant_is_found_whatever_it_is_called(release: ModuleType) -> None:
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
    release: ModuleType,
    last: tuple[int, int, int],
    notes: list[str],
    formats_changed: bool,
    lowest: tuple[int, int, int],
) -> None:
    assert release.least(last, list(enumerate(notes, 1)), formats_changed)[0] == lowest


def test_the_last_release_is_the_highest(release: ModuleType) -> None:
    assert release.last_release(["v0.9.0", "v0.10.1", "v0.10.0", "v1", "nightly", "0.11.0", "v0.12.0-rc1"]) == (
        0,
        10,
        1,
    )
    assert release.last_release([]) is None
    assert [release.numbers(each) for each in ("1.2", "1.02.3", "1.2.3-rc1", "v1.2.3")] == [None] * 4


@pytest.fixture
def clone(tmp_path: Path, release: ModuleType) -> Path:
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
    (clone / "CHANGELOG.md").write_text(
        f"# Changelog\n\n## {version}\n\n{notes}\n\n{old.removeprefix('# Changelog')}"
    )


def git(clone: Path, *arguments: str) -> None:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, *arguments], cwd=clone, check=True, capture_output=True)


def commit(clone: Path) -> None:
    git(clone, "add", "-A")
    git(clone, "commit", "-qm", "x")


def failure(release: ModuleType, step: str, clone: Path, version: str) -> str:
    with pytest.raises(release.Failed) as failed:
        release.STEPS[step](release.Release(version, KEY, clone))
    return f"{failed.value}; {failed.value.todo}"


def test_tree_version_and_changes(release: ModuleType, clone: Path) -> None:
    write(clone, "0.1.1", "- The option --old is gone.")
    assert "2 files are not as committed" in failure(release, "tree", clone, "0.1.1")
    commit(clone)
    wanted = release.Release("0.1.1", KEY, clone)
    assert release.check_tree(wanted).startswith("commit ")
    assert release.check_version(wanted) == "follows 0.1.0"
    assert failure(release, "changes", clone, "0.1.1").startswith(
        "CHANGELOG.md:5 says 'is gone': 0.2.0 is the least; name that"
    )
    assert 'set __version__ = "0.2.0"' in failure(release, "version", clone, "0.2.0")
    write(clone, "0.3.0", "- more")
    assert failure(release, "version", clone, "0.3.0").endswith("; name 1.0.0 or 0.2.0 or 0.1.1")
    write(clone, "0.2.0", "- less")
    assert release.check_changes(release.Release("0.2.0", KEY, clone)) == "nothing is broken"
    (clone / "config").mkdir()
    (clone / "config" / "file.py").write_text("VERSION = 2\n")
    assert "shows other formats" in failure(release, "formats", clone, "0.2.0")
    assert "a durable format has changed" in release.check_changes(release.Release("0.2.0", KEY, clone))
    assert "make baseline" in failure(release, "baseline", clone, "0.2.0")
    assert "is no version" in failure(release, "version", clone, "0.2")


def test_a_clone_without_tags_is_not_the_first_release(release: ModuleType, clone: Path) -> None:
    git(clone, "tag", "-d", "v0.1.0")
    assert release.check_version(release.Release("0.1.0", KEY, clone)) == "the first one"
    write(clone, "7.0.0", "- more")
    assert failure(release, "version", clone, "7.0.0").endswith("names 0.1.0, and no tag does; git fetch --tags")


def test_a_damaged_baseline_is_one_line(release: ModuleType, clone: Path) -> None:
    path = clone / release.BASELINES / "0.1.0.tar.xz"
    path.parent.mkdir(parents=True)
    for data in (b"", b"no archive", (ROOT / release.BASELINES / "0.1.0.tar.xz").read_bytes()[:9000]):
        path.write_bytes(data)
        assert "make baseline" in failure(release, "baseline", clone, "0.1.0")


def test_the_gate_counts_for_its_commit_alone(release: ModuleType, clone: Path) -> None:
    (clone / "build").mkdir()
    (clone / "Makefile").write_text("gate:\n\tfalse\n")
    assert failure(release, "gate", clone, "0.1.1").startswith("make gate failed; see ")
    (clone / "Makefile").write_text("gate:\n\ttrue\n")
    assert "but on something else than" in failure(release, "gate", clone, "0.1.1")
    (clone / release.GATE).write_text(release.artifacts.git("rev-parse", "HEAD", root=clone) + "\n")
    assert release.check_gate(release.Release("0.1.1", KEY, clone)).startswith("passed on ")


def test_the_gate_is_noted_of_the_commit_that_it_ran_on(release: ModuleType, clone: Path) -> None:
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
        made = subprocess.run(
            ["make", "-o", "install", "gate"], cwd=clone, env=environment, capture_output=True, text=True
        )
        return made.returncode == 0, (clone / release.GATE).exists()

    who = "-c user.name=x -c user.email=x@example.org -c commit.gpgsign=false"
    assert ran("true") == (True, True)
    assert ran("false") == (False, False)
    assert ran("touch new") == (True, False)
    assert ran(f"git add new && git {who} commit -qm x") == (True, False)


def test_what_comes_behind_a_failure_stays_open(release: ModuleType) -> None:
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
