"""Things that happen to logs in the field, each with kill -9 of the dispatcher in the middle: every click is joined
once.

The clicks of all tests go through one pipeline, and each test checks the output of all so far.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator

import pytest

from tests.integration.tailing_site import HEADER, RECORD_BYTES, Site

FULL = bool(os.environ.get("PHOTON_FULL"))
SEEDS = range(20) if FULL else [int(os.environ.get("PHOTON_SEED", "1"))]

# Room for some hundred clicks in memory and on disk, and for a few blocks that are being looked up.
SMALL = ['limits.read_ahead="64KiB"', 'limits.retry_store="64KiB"']
BIG = b"z" * 16_000


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("tailing")).running() as site:
        yield site


@pytest.fixture(params=SEEDS)
def site(pipeline: Site, request: pytest.FixtureRequest) -> Site:
    pipeline.begin(re.sub(r"\W+", "-", request.node.name.removeprefix("test_")).strip("-"), request.param)
    return pipeline


def test_inode_reuse(site: Site) -> None:
    first = site.append("a.log", site.clicks(20))
    site.settle()
    inode = first.stat().st_ino
    first.unlink()
    site.beat()
    for number in range(50):  # the file system gives the number again soon
        again = site.append(f"b{number}.log", site.clicks(3))
        if again.stat().st_ino == inode:
            break
        site.beat()
    site.finish()


def test_delete_while_open(site: Site) -> None:
    path = site.append("a.log", site.clicks(5))
    with path.open("ab", buffering=0) as log:
        log.write(site.clicks(5))
        site.settle()
        path.unlink()
        site.beat()
        site.append("a.log", site.clicks(5))
        site.beat()
        late = site.clicks(5, expected=False)  # to a file without a name: read if it is still open
        site.optional.update(line.split(b",")[0].decode() for line in late.splitlines())
        log.write(late)
        site.append("a.log", site.clicks(5))
        site.beat()
    site.finish()


def test_glob_changes(site: Site) -> None:
    site.append("a.log", site.clicks(10))
    site.append("a.txt", (later := site.clicks(10, expected=False)))
    site.settle()
    site.beat()
    site.expected.update(line.split(b",")[0].decode() for line in later.splitlines())
    if "dispatcher" in site.processes:
        site.kill("dispatcher")
    site.settings = ['join.clicks.foreign_files=["**/*.log*", "**/*.txt"]']
    site.append("a.log", site.clicks(10))
    site.settle()
    site.kill("dispatcher")
    site.settings = []
    site.append("a.log", site.clicks(10))
    site.finish()


def test_line_longer_than_the_buffer(site: Site) -> None:
    long = site.clicks(1, b"y" * (RECORD_BYTES - 100))
    site.append("a.log", site.clicks(2) + long[: RECORD_BYTES // 2])
    site.beat()
    site.append("a.log", long[RECORD_BYTES // 2 :] + site.clicks(1))
    too_long = site.clicks(1, b"z" * 3 * RECORD_BYTES, expected=False)
    offset = (site.directory / "a.log").stat().st_size
    site.append("a.log", too_long[: RECORD_BYTES * 2])
    site.beat()
    site.append("a.log", too_long[RECORD_BYTES * 2 :] + site.clicks(2))
    site.finish()
    assert site.dead_letters(1) == [(f"{site.directory.name}/a.log", offset)]


def test_bom(site: Site) -> None:
    site.append("a.log", b"\xef\xbb\xbf" + HEADER + site.clicks(10), header=False)
    site.beat()
    site.append("a.log", site.clicks(10))
    site.beat()
    site.append("b.log", b"\xef\xbb", header=False)
    site.beat()
    site.append("b.log", b"\xbf" + HEADER + site.clicks(10), header=False)
    site.finish()


def test_nul_bytes(site: Site) -> None:
    path = site.append("a.log", site.clicks(5))
    at = path.stat().st_size
    os.truncate(path, at + 4096)  # as after a power cut: length without data
    site.beat()
    site.append("a.log", b"\n" + site.clicks(5) + site.clicks(1, b"nul \0 here"))
    site.finish()
    assert site.dead_letters(1) == [(f"{site.directory.name}/a.log", at)]


def test_checkpoint_only_after_downstream_accepted(site: Site) -> None:
    site.append("a.log", site.clicks(10))
    site.settle()
    site.kill("joiner")
    site.append("a.log", site.clicks(50))
    site.until(lambda: json.loads(site.lag().out)["behind"] == 0, "it was all read")
    site.kill("dispatcher")
    site.start("joiner")
    site.finish()


def test_corrupt_checkpoint_is_refused_and_moved_away_by_hand(site: Site) -> None:
    site.append("a.log", site.clicks(50))
    site.settle()
    state = site.base / "state" / "dispatcher.db"
    site.kill("dispatcher")
    with state.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 8000)
    state.with_name("dispatcher.db-wal").write_bytes(b"\xff" * 8000)  # otherwise it may heal the damage
    site.append("a.log", site.clicks(50))
    site.dispatch()
    assert site.processes["dispatcher"].wait(60.0) == 1
    assert "read again from their start" in site.said("dispatcher")
    site.kill("dispatcher")
    site.move_state_away()
    site.finish()


@pytest.mark.parametrize("read_from", ["beginning", "end", "time"])
def test_read_from(site: Site, read_from: str) -> None:
    """Applies to logs that exist when there is no state, and to no others."""
    old = site.clicks(30, expected=read_from == "beginning")
    middle = site.clicks(20, expected=read_from != "end")
    if "dispatcher" in site.processes:  # before there is anything to read
        site.kill("dispatcher")
    site.append("a.log", old + middle)
    site.move_state_away()
    at = middle.split(b",")[2].decode()
    place = f"{int(at) // 1_000_000}.{int(at) % 1_000_000:06}" if read_from == "time" else read_from
    site.dispatch("--read-from", place)
    site.until(lambda: (site.base / "state" / "dispatcher.db").exists(), "it begins")
    site.append("b.log", site.clicks(0))
    site.until(lambda: site.lag().code == 0, "it has begun")
    site.append("a.log", site.clicks(20))
    site.beat()
    if "dispatcher" not in site.processes:
        site.dispatch("--read-from", place)  # there is a state now
    site.append("new.log", site.clicks(20))
    site.finish()


def test_bounded_disk_for_retries(site: Site) -> None:
    """While nothing can be joined, reading stops when the retry store is full; then everything comes."""
    site.append("a.log", site.clicks(10))
    site.settle()
    site.kill("joiner")
    site.kill("dispatcher")
    site.settings = SMALL
    site.append("a.log", site.clicks(600, BIG))
    site.dispatch()
    site.until(lambda: json.loads(site.lag().out or "{}").get("behind", 0) > 0, "it does not read on")
    site.beat()
    site.dispatch()
    site.until(lambda: json.loads(site.lag().out or "{}").get("behind", 0) > 0, "it does not read on, once more")
    stored = sum(path.stat().st_size for path in (site.base / "state").glob("dispatcher.db*"))
    assert stored < site.stored_at_start + (6 << 20)
    site.start("joiner")
    site.finish()


def test_lag_per_file(site: Site) -> None:
    site.append("a.log", site.clicks(10))
    site.settle()
    site.kill("joiner")
    site.kill("dispatcher")
    site.settings = SMALL
    site.append("big.log", site.clicks(600, BIG))
    site.dispatch()
    path = f"{site.directory.name}/big.log"

    def behind() -> bool:
        result = site.lag()
        return result.code == 0 and any(row["log"] == path for row in json.loads(result.out)["worst"])

    site.until(behind, "the log is behind")
    (row,) = [row for row in json.loads(site.lag().out)["worst"] if row["log"] == path]
    assert 0 < row["bytes"] <= (site.directory / "big.log").stat().st_size
    assert row["seconds"] > 0
    site.start("joiner")
    site.finish()
    site.until(lambda: json.loads(site.lag().out or "{}").get("bytes") == 0, "nothing is behind")
