"""Primaries that come late, among events that never find theirs: each is joined as soon as its primary is there.

Back-off is long enough here that only news of a primary's arrival can cause a retry within the test.
"""

from __future__ import annotations

import asyncio
import socket
import sqlite3
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

from photon.config.loader import load
from photon.dispatcher.retry import COMPLETE_NS
from photon.lab.demo.check import records
from photon.supervision.deployment import Deployment
from photon.supervision.supervisor import Watching
from tests.deployments import deployment
from tests.integration.commands import interrupt, running, soon, until
from tests.integration.forked import FIRST
from tests.integration.join_logs import CONFIG
from tests.integration.rig import READY_S
from tests.integration.supervised import supervised

# Nothing is put off for longer than LONGEST_S, above which a start tries a row in any case. Failing rows reach this
# only after many tries.
PATIENT = """
import photon.dispatcher.retry as retry
retry.NOT_YET_BACKOFF = retry.BackOff(first=3000.0, most=3000.0, floor=3000.0)
retry.RETRY_BACKOFF = retry.BackOff(first=0.1, most=3000.0)
"""
WAIT_S = 90.0
HOPELESS = 300
SERVICES = ("eventstore", "joiners.east-1", "caches.c1", "caches.c2", "dispatcher")


class Site:
    """Logs of both sides, and the fate of their events. Click n names query n."""

    def __init__(self, base: Path) -> None:
        self.base, self.output, self.state = base, base / "out", base / "out" / ".photon"
        for name in ("queries", "clicks"):
            (base / name).mkdir()
        self.config = base / "photon.toml"
        self.config.write_text(CONFIG)

    def deploy(self) -> Deployment:
        self.config = deployment(self.base, CONFIG, *SERVICES)
        self.output, self.state = self.base / "output", self.base / "state"
        self.state.mkdir()
        return Deployment(self.config, load(self.config, environment={}), self.base / "run")

    def click(self, numbers: Iterable[int]) -> None:
        for n in numbers:
            line = f'{{"click_id":"c{n}","query_id":"q{n}","time_us":{1_760_000_000_000_000 + n}}}\n'
            _append(self.base / "clicks" / f"{n % 4}.log", line)

    def query(self, numbers: Iterable[int]) -> None:
        _append(self.base / "queries" / "q.log", "".join(f'{{"query_id":"q{n}","text":"{n}"}}\n' for n in numbers))

    def joined(self) -> Counter[str]:
        return Counter(record["event_id"] for record in records(self.output / "joined"))

    def waiting(self) -> int:
        """Events in the retry store that only their back-off would bring back."""
        state = self.state / "dispatcher.db"
        if not state.exists():
            return 0
        with closing(sqlite3.connect(f"file:{state}?mode=ro", uri=True, timeout=30.0)) as db:
            try:
                sql = "SELECT count(*) FROM retries WHERE trigger_ns >= ? AND attempts > 0"
                return int(db.execute(sql, (COMPLETE_NS,)).fetchone()[0])
            except sqlite3.OperationalError:  # it is being made
                return 0

    def has_waited_long(self) -> None:
        """As if they had been tried for hours, some more often than others."""
        with closing(sqlite3.connect(self.state / "dispatcher.db")) as db, db:
            db.execute("UPDATE retries SET attempts = 15 + id % 20")

    def has_joined(self, numbers: Iterable[int]) -> bool:
        return self.joined() == Counter(f"c{n}" for n in numbers)


def _append(log: Path, text: str) -> None:
    with log.open("a") as file:
        file.write(text)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    (tmp_path / "patient.py").write_text(PATIENT)
    monkeypatch.setenv(FIRST, str(tmp_path / "patient.py"))
    return Site(tmp_path)


def test_late_primaries_are_joined_at_once_among_hopeless_events_and_after_a_restart(site: Site) -> None:
    logs = ("--primary", site.base / "queries", "--foreign", site.base / "clicks")
    arguments = ("join", *logs, "--output", site.output, "--config", site.config)
    late, later, hopeless = range(100), range(100, 200), range(1000, 1000 + HOPELESS)
    site.query([9999])
    with running(*arguments, log=site.base / "first") as process:
        site.click([*late, *later, *hopeless])
        until(lambda: site.waiting() == 200 + HOPELESS, WAIT_S, "all wait")
        site.query(late)
        until(lambda: site.has_joined(late), WAIT_S, "those whose primary came are joined")
        assert interrupt(process) == 0
    assert site.waiting() == 100 + HOPELESS
    site.query(later)  # while nobody looks
    with running(*arguments, log=site.base / "second") as process:
        until(lambda: site.has_joined(range(200)), WAIT_S, "those whose primary came meanwhile are joined")
        assert interrupt(process) == 0
    assert site.waiting() == HOPELESS


async def test_workers_with_cache_nodes_are_woken_and_go_on_when_the_event_store_is_killed(site: Site) -> None:
    made = site.deploy()
    late, lost, hopeless = range(100), range(100, 200), range(1000, 1000 + HOPELESS)
    site.query([9999])
    site.click([*late, *lost, *hopeless])
    async with supervised(made, Watching()) as supervisor:
        await supervisor.start(made.services())
        await supervisor.ready(READY_S)
        await soon(lambda: site.waiting() == 200 + HOPELESS, WAIT_S, "all wait")
        site.query(late)
        await soon(lambda: site.has_joined(late), WAIT_S, "those whose primary came are joined")
        supervisor.kill("eventstore east")
        await supervisor.ready(READY_S)
        site.query(lost)
        await soon(lambda: site.has_joined(range(200)), WAIT_S, "so are those of which a new store was to tell")
        supervisor.kill("dispatcher east")
        site.click(range(200, 250))
        site.query(hopeless)
        site.query(range(200, 250))
        await soon(lambda: site.has_joined([*range(250), *hopeless]), WAIT_S, "so are all")


async def test_those_that_waited_long_are_joined_when_their_joiner_is_the_last_to_come_back(site: Site) -> None:
    """News of their primary events comes once, while it still says that it has not started."""
    made = site.deploy()
    late = range(200)
    site.query([9999])
    site.click(late)
    async with supervised(made, Watching()) as supervisor:
        await supervisor.start(made.services())
        await supervisor.ready(READY_S)
        await soon(lambda: site.waiting() == 200, WAIT_S, "all wait")
    site.has_waited_long()
    joiner = [service for service in made.services() if service.name.startswith("joiner")]
    others = [service for service in made.services() if service not in joiner]
    async with supervised(made, Watching()) as supervisor:
        await supervisor.start(others)
        await supervisor.ready(READY_S)
        supervisor.kill("registry r1", hold=True)
        await supervisor.start(joiner)  # it does not get far without the registry
        await soon(lambda: _answers(joiner[0].address), WAIT_S, "it says that it has not started")
        site.query(late)
        await asyncio.sleep(2.0)  # they are tried meanwhile
        supervisor.release("registry r1")
        await soon(lambda: site.has_joined(late), WAIT_S, "all are joined")


def _answers(address: str | None) -> bool:
    assert address is not None
    host, _, port = address.rpartition(":")
    with closing(socket.socket()) as asking:
        return asking.connect_ex((host, int(port))) == 0
