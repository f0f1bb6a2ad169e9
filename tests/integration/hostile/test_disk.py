"""A deployment's disks are full while it joins: each process says so in one line, and all continue once there
is room."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from photon.lab.chaos.disks import empty, fill
from tests.integration.commands import photon, until
from tests.integration.hostile.small_disk import mounted
from tests.integration.verified_site import WAIT_S, Site, site_in

ATTENTION = 3
MEET = ("dispatcher", "joiner", "eventstore")  # kinds that end on a full disk
# The verifier, held until the disk is full, finds no room if it gets as far as writing.
MAY_MEET = (*MEET, "verifier")
# In the log of photon up: kind, manner and reason.
ENDED = re.compile(r"(?m)^\S+ (\w+) .*\| ended (.*), again in [\d.]+ s: (.*)$")
NO_ROOM = re.compile("No space left on device|database or disk is full|disk I/O error")


@pytest.fixture
def small_disks(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """One disk for the output, one for what else is written. A joiner without a disk meets nothing once its
    dispatcher ends at every start: nobody asks it any more."""
    with mounted(tmp_path / "output-disk", "8m") as output, mounted(tmp_path / "state-disk", "8m") as state:
        yield output, state


def _ids(site: Site) -> list[str]:
    """Ids of all whole lines of the output."""
    lines = [line for path in site.files() for line in path.read_bytes().split(b"\n")[:-1]]
    return [json.loads(line)["event_id"] for line in lines]


def _ended(site: Site) -> list[tuple[str, str, str]]:
    return ENDED.findall((site.base / ".photon-run" / "logs" / "up.log").read_text())


def _log(site: Site, kind: str) -> str:
    [log] = (site.base / ".photon-run" / "logs").glob(f"{kind}-*.log")
    return log.read_text()


def _rooms(site: Site) -> set[str]:
    """The directories that photon doctor reports as full."""
    found = photon("doctor", "--config", site.file, "-o", "json")
    assert found.code == ATTENTION
    disks = [each for each in json.loads(found.out)["findings"] if each["area"] == "disks"]
    assert all(each["level"] == "problem" and each["do"].startswith("make room at once") for each in disks), disks
    return {each["where"].partition(":")[0] for each in disks}


def _states(site: Site) -> dict[str, dict[str, Any]]:
    found = photon("status", "processes", "--config", site.file, "-o", "json")
    return {row["name"].partition(" ")[0]: row for row in json.loads(found.out)["processes"]}


def test_a_disk_that_is_full_while_joining(tmp_path: Path, small_disks: tuple[Path, Path]) -> None:
    def prepare(base: Path) -> None:
        output, state = small_disks
        for disk, name in ((output, "output"), (state, "state"), (state, "r1")):
            (disk / name).mkdir()
            (base / name).symlink_to(disk / name)

    with site_in(tmp_path, prepare=prepare) as site:
        site.write(300)
        until(lambda: len(_ids(site)) >= 300, WAIT_S, "it joins")
        site.hold("verifier east")  # remaining ids are cleared on the full disk
        site.write(300)
        until(lambda: len(_ids(site)) >= 600 and site.published(), WAIT_S, "it joins on")

        def met() -> Counter[str]:
            site.write(5)  # pages that one process gives back are taken by another
            return Counter(kind for kind, *_ in _ended(site))

        output, state = small_disks
        fill(output)
        until(lambda: met()["joiner"], WAIT_S, "the joiner meets it")
        fill(state)
        site.release("verifier east")
        until(lambda: met().keys() >= {*MEET}, WAIT_S, "each that ends by it meets it")
        # One that came back shows no reason while another, ended again before it, gives it nothing to write; and all
        # of them may be up between two looks.
        until(
            lambda: met() and any(NO_ROOM.search(_states(site)[kind]["detail"]) for kind in MEET),
            WAIT_S,
            "photon status processes says why",
        )
        until(
            lambda: met() and photon("status", "--config", site.file).code == ATTENTION, WAIT_S, "photon status minds"
        )
        assert _rooms(site) == {"state of east", "output of east", "registry r1"}

        for disk in small_disks:
            empty(disk)
        until(lambda: len(_ids(site)) >= site.events, WAIT_S, "all goes on by itself")
        site.write(100)
        until(lambda: len(_ids(site)) >= site.events and site.published(), WAIT_S, "and further")
        until(lambda: {row["state"] for row in _states(site).values()} == {"up"}, WAIT_S, "all are up")
        until(site.cleared, WAIT_S, "all is cleared")
        _each_told_in_one_line(site)
        _exact(site)


def _each_told_in_one_line(site: Site) -> None:
    """Each ended process names the reason and the file; no other process ended."""
    ended = _ended(site)
    assert {*MEET} <= {kind for kind, *_ in ended} <= {*MAY_MEET}
    for kind, how, why in ended:
        assert how == "with exit code 1", (kind, how)
        assert NO_ROOM.search(why), (kind, why)
        assert f"{site.base}/" in why, (kind, why)
        assert "Errno" not in why, (kind, why)
    for log in (site.base / ".photon-run" / "logs").iterdir():
        said = log.read_text()
        assert "Traceback" not in said, said
        assert "a defect" not in said, said
    for kind in MAY_MEET:
        told = [line for line in _log(site, kind).splitlines() if line.startswith("photon: ")]
        assert len(told) == sum(each == kind for each, *_ in ended), told


def _exact(site: Site) -> None:
    clicks = Counter(f"c{n:06d}" for n in range(site.events))
    assert Counter(_ids(site)) == clicks
    read = photon("read", "--config", site.file, "--datacentre", "east")
    assert Counter(json.loads(line)["event_id"] for line in read.out.splitlines()) == clicks

    def ledger() -> dict[str, int]:
        found = json.loads(photon("status", "ledger", "--config", site.file, "-o", "json").out)
        assert found["balances"]
        return {name: count for name, count in found["total"].items() if count and name not in ("reread", "wasted")}

    until(lambda: ledger() == {"read": site.events, "joined": site.events}, WAIT_S, "the ledger has all")
    assert site.alarms() == []
