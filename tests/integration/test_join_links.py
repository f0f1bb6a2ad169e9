"""`photon join` with links among the logs: private files are not read, and files a user names are."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.integration.commands import photon
from tests.integration.join_logs import Logs

SECRET = b"-----BEGIN PRIVATE KEY-----\nc2VjcmV0IHNlY3JldCBzZWNyZXQ=\n-----END PRIVATE KEY-----\n"


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    logs = Logs(tmp_path, clicks=20)
    logs.write()
    return logs


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    (tmp_path / "certs").mkdir()
    path = tmp_path / "certs" / "datacentre-east.key"
    path.write_bytes(SECRET)
    return path


def anywhere_below(directory: Path, lines: bytes) -> list[str]:
    """The files that hold one of these lines."""
    return [
        str(path)
        for path in directory.rglob("*")
        if path.is_file() and any(line in path.read_bytes() for line in lines.splitlines())
    ]


@pytest.mark.parametrize("side", ["primary", "foreign"])
@pytest.mark.parametrize("config", [True, False])
def test_nothing_of_a_private_file_that_a_link_leads_to_is_read(
    logs: Logs, secret: Path, side: str, config: bool
) -> None:
    directory: Path = getattr(logs, side)
    (directory / "evil.log").symlink_to(secret)
    result = logs.once(config=config)
    said = [each for each in result.err.splitlines() if each.startswith("photon: ") and "evil.log" in each]
    assert len(said) == (1 if config else 2), result.err  # inference names the files it did not look at
    for each in said:
        assert f"evil.log: leads to {secret}, outside the log directory; not read: add its directory to" in each
    assert result.code == (3 if side == "foreign" else 1), result.err  # without its primaries nothing is unmatched
    assert SECRET.splitlines()[1].decode() not in result.out + result.err
    assert anywhere_below(logs.output, SECRET) == []
    (directory / "evil.log").unlink()
    result = logs.once("--max-rejected", "1000", config=config)
    assert result.code == 0, result.err
    logs.exact(result.json)


def test_a_link_that_is_named_is_read_with_what_it_was_rolled_to(logs: Logs, tmp_path: Path) -> None:
    far = tmp_path / "far"
    far.mkdir()
    (logs.foreign / "clicks.log").rename(far / "real.log")
    data = (far / "real.log").read_bytes().splitlines(keepends=True)
    (far / "real.log.1").write_bytes(b"".join(data[: len(data) // 2]))
    (far / "real.log").write_bytes(b"".join(data[len(data) // 2 :]))
    logs.foreign = logs.foreign / "link.log"
    logs.foreign.symlink_to(far / "real.log")
    result = logs.once("--max-rejected", "1000")
    assert result.code == 0, result.err
    logs.exact(result.json)
    result = photon(*logs.arguments("--set", f'join.clicks.foreign.follow_links=["{logs.output}"]', "--once"))
    assert result.code == 2
    assert result.err.count("\n") == 1
    assert f"follow_links: {logs.output} contains, or is in, --output ({logs.output})" in result.err


def test_both_sides_are_followed_through_rotations_behind_their_links(tmp_path: Path) -> None:
    logs = Logs(tmp_path, clicks=200)
    pods = {}
    for side, name in ((logs.primary, "queries.log"), (logs.foreign, "clicks.log")):
        pods[side / name] = tmp_path / "pods" / side.name / "0.log"
        pods[side / name].parent.mkdir(parents=True)
        pods[side / name].touch()
        (side / name).symlink_to(pods[side / name])
    allowed = f'["{tmp_path / "pods"}"]'
    options = [f"join.clicks.{side}.follow_links={allowed}" for side in ("primary", "foreign")]
    more = [word for option in options for word in ("--set", option)]
    with logs.following(*more) as following:
        for turn in range(5):
            logs.write((turn + 0.5) / 5)
            for target in pods.values():
                target.rename(target.with_name(f"0.log.2024030{turn + 1}-101010"))
            time.sleep(0.2)
            for target in pods.values():
                target.touch()
            logs.write((turn + 1) / 5)
            time.sleep(0.3)
        joinable, until = logs.joinable(), time.monotonic() + 60.0
        while logs.joined() < joinable and time.monotonic() < until:
            time.sleep(0.2)
        result = following.interrupt()
    assert result.code in (0, 3), result.err
    assert "gone before they were read" not in result.err
    assert "log file" not in result.err
    logs.finish(*more)
