"""Served slots whose state is older than their output, or lost: refused, repaired as documented, each click once."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from photon.supervision.control import Request
from photon.supervision.states import ServiceState
from tests.integration.commands import photon, running, until
from tests.integration.hostile.world import copied
from tests.integration.verified_site import SLOT, WAIT_S, Site, site_in

JOINER, VERIFIER = f"joiner {SLOT}", "verifier east"
NO_SOCKETS = shutil.ignore_patterns("*.socket")
ACCEPT = "--accept-damaged-log"


class Slot:
    """The only slot of a site, and operations on its directory."""

    def __init__(self, site: Site) -> None:
        self.site, self.base, self.state = site, site.base, site.state

    def _joiner(self) -> ServiceState:
        return self.site._ask(Request(do="ps"))[JOINER]

    def join(self, clicks: int) -> None:
        """Joins more clicks, to their last record."""
        self.site.write(clicks)
        until(lambda: len(self.site.ids()) >= self.site.events, WAIT_S, "all is joined")

    def copy(self, to: Path) -> None:
        """A copy of one moment, while its joiner is at work."""
        pid = self._joiner().pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        copied(self.state, to)
        os.kill(pid, signal.SIGCONT)

    def down(self) -> None:
        """kill -9 of its joiner in the middle of its work, and of the verifier, which would object to half a copy."""
        seen = len(self.site.ids())
        self.site.write(200)
        until(lambda: len(self.site.ids()) > seen, WAIT_S, "it is at work")
        for name in (JOINER, VERIFIER):
            self.site.hold(name)

    def put_back(self, copy: Path) -> None:
        if self.state.exists():
            shutil.rmtree(self.state)
        shutil.copytree(copy, self.state, ignore=NO_SOCKETS)

    def refused(self, why: str, mended: str) -> None:
        """One line says so, under photon up and by the command, and nothing is changed."""
        before = self._contents()
        self.site.release(JOINER)
        looks: list[ServiceState] = []  # it may be retried at the next one, and has said nothing yet

        def ended() -> bool:
            looks.append(self._joiner())
            return looks[-1].exit_code == 1 and looks[-1].pid is None

        until(ended, WAIT_S, "it is refused")
        said = looks[-1].detail
        self.site.hold(JOINER)
        assert said.startswith("join clicks: ")
        assert why in said
        assert mended in said
        assert self.serve().splitlines()[-1] == f"photon: {said}"
        assert self._contents() == before

    def serve(self, *arguments: str) -> str:
        """``photon serve joiner``, which is refused."""
        found = photon("serve", "joiner", SLOT, "--config", self.site.file, *arguments)
        assert found.code == 1
        assert "Traceback" not in found.err
        return found.err

    def _contents(self) -> dict[Path, bytes]:
        files = [*(self.base / "output").rglob("*"), *self.state.rglob("*")]
        return {path: path.read_bytes() for path in files if path.is_file() and path.name != "lock"}

    def up(self) -> None:
        for name in (JOINER, VERIFIER):
            self.site.release(name)

    def exact(self) -> None:
        """Each click once, in the files and for readers; the ledger says so, and no verifier objects."""
        site = self.site
        until(lambda: set(self._clicks()) <= set(site.ids()), WAIT_S, "each click is joined")
        assert Counter(site.ids()) == Counter(self._clicks())
        until(lambda: len(self._read()) >= site.events, WAIT_S, "all is shown")
        assert Counter(self._read()) == Counter(self._clicks())
        until(lambda: self._ledger()["joined"] == site.events, WAIT_S, "the ledger has all")
        assert {name: count for name, count in self._ledger().items() if count and name != "reread"} == {
            "read": site.events,
            "joined": site.events,
        }
        until(lambda: site.status()["verifier"] is not None, WAIT_S, "the verifier runs")
        assert [alarm for each in site.status()["slots"] for alarm in each["alarms"]] == []

    def _read(self) -> list[str]:
        found = photon("read", "--config", self.site.file, "--datacentre", "east")
        assert found.code == 0, found.err
        return [json.loads(line)["event_id"] for line in found.out.splitlines()]

    def _clicks(self) -> list[str]:
        return [f"c{n:06d}" for n in range(self.site.events)]

    def _ledger(self) -> dict[str, int]:
        found = json.loads(photon("status", "ledger", "--config", self.site.file, "-o", "json").out)
        assert found["balances"]
        total: dict[str, int] = found["total"]
        return total


@pytest.fixture
def slot(tmp_path: Path) -> Iterator[Slot]:
    with site_in(tmp_path) as site:
        yield Slot(site)


def test_a_slot_that_is_older_than_its_output(slot: Slot) -> None:
    """Within one incarnation an operator's confirmation suffices; with an earlier one only the newest copy
    continues."""
    older, newest = slot.base / "older", slot.base / "newest"
    slot.join(200)
    slot.copy(older)
    slot.join(200)
    slot.down()
    slot.put_back(older)
    slot.refused("has records that are in neither the state nor the redo log of slot east-1", ACCEPT)
    log = slot.base / "accepted.log"
    with running("serve", "joiner", SLOT, "--config", slot.site.file, ACCEPT, log=log) as accepting:
        until(lambda: "slot opened" in log.read_text(), WAIT_S, "the slot is opened")
        accepting.terminate()
        assert accepting.wait(60) == 0
    slot.up()
    slot.join(100)
    slot.exact()

    slot.down()
    shutil.copytree(slot.state, newest, ignore=NO_SOCKETS)
    slot.put_back(older)
    why = "is an older copy of slot east-1: its incarnation is 1, but the registry's is 3"
    slot.refused(why, "photon slot retire")
    assert why in slot.serve(ACCEPT)
    slot.put_back(newest)
    slot.up()
    slot.join(100)
    slot.exact()


def test_a_slot_whose_state_is_lost_is_retired(slot: Slot) -> None:
    slot.join(200)
    slot.down()
    shutil.rmtree(slot.state)
    slot.refused("has records of slot east-1, whose state is missing: it was lost", "photon slot retire")
    output, file = slot.base / "output", slot.site.file
    retired = photon("slot", "retire", SLOT, "--config", file, "--copy", output, "--yes")
    assert retired.code == 0, retired.err
    file.write_text(file.read_text().replace("[datacentre.east]", '[datacentre.east]\nretired = ["east-1"]'))
    assert photon("reload", file).code == 0
    slot.site.release(VERIFIER)
    slot.site.state = slot.state.with_name("east-2")
    slot.site.write(100)
    slot.exact()
