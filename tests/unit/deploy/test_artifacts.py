"""A release is the same to the byte wherever it is built; what was changed afterwards is noticed, in one line."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from tests.unit.deploy.scripts import DEPLOY, script

artifacts = script("artifacts")
SCRIPT = DEPLOY / "artifacts.py"
CHANGED, UNDONE = 1, 2


def run(*arguments: str | Path) -> tuple[int, str, str]:
    """Exit code and both outputs of the command, in this process."""
    out, errors = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(errors):
        patch.setattr(sys, "argv", ["artifacts", *map(str, arguments)])
        return artifacts.main(), out.getvalue(), errors.getvalue()


def said(outcome: tuple[int, str, str]) -> tuple[int, str]:
    """Exit code, and the one line of what is wrong."""
    code, _, errors = outcome
    [line] = errors.splitlines()
    return code, line


def test_two_builds_in_two_places_at_two_times_are_equal(tmp_path: Path) -> None:
    made = []
    for place, zone, umask in (("one", "Asia/Tokyo", 0o022), ("two/deeper", "America/Lima", 0o077)):
        (tmp_path / place / "tmp").mkdir(parents=True)
        world = {"TZ": zone, "TMPDIR": str(tmp_path / place / "tmp"), "PYTHONHASHSEED": str(umask)}
        done = subprocess.run(
            [sys.executable, SCRIPT, "dist", tmp_path / place / "dist"],
            env={**os.environ, **world}, umask=umask, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        made.append([line.split()[0] for line in done.stdout.splitlines()])
        names = sorted(each.name for each in (tmp_path / place / "dist").iterdir())
        assert [name.endswith(end) for name, end in zip(names, (".whl", ".tar.gz"), strict=True)] == [True, True]
    assert made[0] == made[1]
    assert len(set(made[0])) == 2


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private key; its public one next to it."""
    path = tmp_path_factory.mktemp("keys") / "release"
    code, out, errors = run("key", path)
    assert code == 0, errors
    assert out.startswith(f"{path}.pub: key ")
    assert path.stat().st_mode & 0o777 == 0o600
    return path


@pytest.fixture
def release(key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two files, signed, whatever made them."""
    monkeypatch.setattr(artifacts, "check_made", lambda directory, root: None)
    directory = tmp_path / "release"
    directory.mkdir()
    (directory / "photon_join-9.9.9.tar.gz").write_bytes(b"source")
    (directory / "photon_join-9.9.9-py3-none-any.whl").write_bytes(b"wheel")
    artifacts.sign(directory, artifacts.private_key(key))
    return directory


def test_the_statement_says_what_was_made_of_what(release: Path, key: Path) -> None:
    line = (release / artifacts.STATEMENT).read_bytes()
    assert line.count(b"\n") == 1
    payload = json.loads(base64.b64decode(json.loads(line)["payload"]))
    assert payload["_type"] == "https://in-toto.io/Statement/v1"
    assert payload["predicateType"] == "https://slsa.dev/provenance/v1"
    named = {each["name"]: each["digest"]["sha256"] for each in payload["subject"]}
    assert named == {path.name: artifacts.digest(path) for path in artifacts.artifacts(release)}
    definition, head = payload["predicate"]["buildDefinition"], artifacts.git("rev-parse", "HEAD")
    assert definition["externalParameters"] == {"commit": head}
    assert definition["resolvedDependencies"][0]["digest"] == {"gitCommit": head}
    assert {each["name"] for each in definition["resolvedDependencies"]} > {"hatchling"}
    artifacts.sign(release, artifacts.private_key(key))
    assert (release / artifacts.STATEMENT).read_bytes() == line


def test_only_what_the_last_commit_gives_is_signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(out: Path, root: Path) -> list[Path]:
        (out / "p-1.tar.gz").write_bytes(b"source")
        (out / "p-1.whl").write_bytes(b"wheel")
        return sorted(out.iterdir())

    monkeypatch.setattr(artifacts, "build", build)
    changed = ""
    monkeypatch.setattr(artifacts, "git", lambda *words, root: changed)
    dist = tmp_path / "dist"
    dist.mkdir()
    build(dist, tmp_path)
    (dist / "photon.cdx.json").write_bytes(b"{}")
    artifacts.check_made(dist, tmp_path)
    for name, data in (("p-1.whl", b"of the commit before"), ("p-0.whl", b"of the last release")):
        (dist / name).write_bytes(data)
        with pytest.raises(artifacts.Undone, match=f"{name}: is not what the last commit gives"):
            artifacts.check_made(dist, tmp_path)
        (dist / name).unlink()
        build(dist, tmp_path)
    (dist / "p-1.tar.gz").unlink()
    with pytest.raises(artifacts.Undone, match=r"p-1\.tar\.gz: is not what"):
        artifacts.check_made(dist, tmp_path)
    changed = "?? new.py"
    with pytest.raises(artifacts.Undone, match="not committed"):
        artifacts.check_made(dist, tmp_path)


def test_a_release_as_it_was_signed(release: Path, key: Path) -> None:
    code, out, errors = run("verify", release, "--key", f"{key}.pub")
    assert (code, errors) == (0, "")
    assert out.count(": as released, of commit ") == 2
    (release / "photon_join-9.9.9.tar.gz").unlink()  # who has the wheel alone
    assert run("verify", release, "--key", f"{key}.pub")[0] == 0


def test_openssl_verifies_it_too(release: Path, key: Path, tmp_path: Path) -> None:
    """So who distrusts this script needs none of it."""
    line = json.loads((release / artifacts.STATEMENT).read_bytes())
    (tmp_path / "signed").write_bytes(artifacts.signed_bytes(base64.b64decode(line["payload"])))
    (tmp_path / "signature").write_bytes(base64.b64decode(line["signatures"][0]["sig"]))
    files = ["-inkey", f"{key}.pub", "-in", tmp_path / "signed", "-sigfile", tmp_path / "signature"]
    try:
        done = subprocess.run(
            ["openssl", "pkeyutl", "-verify", "-pubin", "-rawin", *files], capture_output=True, text=True
        )
    except FileNotFoundError:
        pytest.skip("no openssl is there")
    assert done.returncode == 0, done.stdout + done.stderr


STATEMENT = "photon.intoto.jsonl"


def _byte(release: Path, name: str) -> None:
    data = bytearray((release / name).read_bytes())
    data[len(data) // 2] ^= 1
    (release / name).write_bytes(data)


def _signature_of_other_payload(release: Path) -> None:
    path = release / STATEMENT
    line = json.loads(path.read_bytes())
    payload = json.loads(base64.b64decode(line["payload"]))
    payload["subject"][0]["digest"]["sha256"] = "0" * 64
    line["payload"] = base64.b64encode(json.dumps(payload).encode()).decode()
    path.write_text(json.dumps(line))


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda r: _byte(r, "photon_join-9.9.9.tar.gz"), "photon_join-9.9.9.tar.gz: was changed"),
        (lambda r: _byte(r, STATEMENT), f"{STATEMENT}: is "),
        (_signature_of_other_payload, f"{STATEMENT}: is not signed with the key "),
        (lambda r: (r / STATEMENT).write_text("{}"), f"{STATEMENT}: is no signed statement"),
        (lambda r: (r / STATEMENT).write_bytes(b"\xff"), f"{STATEMENT}: is no signed statement"),
        (lambda r: (r / STATEMENT).write_text("[" * 9999), f"{STATEMENT}: is no signed statement"),
        (lambda r: (r / "extra.whl").write_bytes(b""), "extra.whl: the release has no such file"),
    ],
)
def test_what_was_changed_is_one_line(release: Path, key: Path, change: Callable[[Path], None], line: str) -> None:
    change(release)
    code, told = said(run("verify", release, "--key", f"{key}.pub"))
    assert code == CHANGED
    assert told.startswith(f"artifacts: {line}")


def test_another_key_is_one_line(release: Path, tmp_path: Path) -> None:
    assert run("key", tmp_path / "other")[0] == 0
    code, told = said(run("verify", release, "--key", tmp_path / "other.pub"))
    assert code == CHANGED
    assert "is not signed with the key" in told


def test_what_cannot_be_done_is_one_line(release: Path, key: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    (tmp_path / "taken.pub").touch()
    for arguments, line in (
        (("verify", empty, "--key", f"{key}.pub"), "it stands next to each release's files"),
        (("verify", release, "--key", tmp_path / "none"), "name the public key"),
        (("verify", release, "--key", key), "is no public Ed25519 key"),
        (("sign", empty, "--key", key), "holds no file"),
        (("sign", release, "--key", tmp_path / "none"), "make one with"),
        (("sign", release, "--key", f"{key}.pub"), "others can read"),
        (("key", key), "a key is never replaced"),
        (("key", tmp_path / "taken"), "taken.pub: File exists; a key is never replaced"),
    ):
        code, told = said(run(*arguments))
        assert (code, line in told) == (UNDONE, True), told


def test_tools_of_another_version_build_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pins = artifacts.ROOT / "build-requirements.txt"
    monkeypatch.setattr(artifacts, "ROOT", tmp_path)
    monkeypatch.setattr(artifacts, "TOOLS", tmp_path / pins.name)
    (tmp_path / pins.name).write_text("# none\nhatchling==0.1\n")
    with pytest.raises(artifacts.Undone, match=r"hatchling 0\.1 is pinned, .*: pip install -r"):
        artifacts.build(tmp_path / "dist")
