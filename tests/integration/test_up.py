"""``photon up``, ``ps``, ``down`` as a person uses them: two datacentres, fourteen real processes."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from photon.config.loader import load
from photon.supervision.control import Request, ask
from tests.integration.commands import UP_S, Detached, alive, children, interrupt, photon, running, until
from tests.unit.supervision.deployments import write_deployment

NOTHING_RUNS, ATTENTION = 1, 3
PROCESSES = 14


class Site(Detached):
    """Two datacentres."""

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self.run = file.parent / ".photon-run"

    def ps(self) -> dict[str, dict[str, Any]]:
        result = photon("status", "processes", "--config", self.file, "-o", "json")
        assert result.code in (0, ATTENTION), result.err
        rows = self.seen(result)
        assert result.code == (0 if {row["state"] for row in rows.values()} == {"up"} else ATTENTION)
        return rows

    def own_pid(self) -> int:
        """Pid of ``photon up`` itself."""
        pid = ask(self.run, Request(do="ps")).pid
        self.pids.add(pid)
        return pid

    def left(self) -> list[int]:
        return [pid for pid in self.pids if alive(pid)]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(write_deployment(tmp_path))
    yield site
    site.down()


def test_a_deployment_from_up_to_down(site: Site) -> None:
    rows = site.up()
    assert len(rows) == PROCESSES
    assert {row["state"] for row in rows.values()} == {"up"}
    assert rows["joiner east-1"]["datacentre"] == "east"
    own = site.own_pid()
    routes = (site.run / "routes.json").read_bytes()

    second = photon("up", site.file, "--detach")
    assert (second.code, len(second.err.splitlines())) == (1, 1)
    assert f"(pid {site.own_pid()}) already runs in {site.run};" in second.err
    third = photon("up", site.file)
    assert (third.code, third.err) == (second.code, second.err)

    victim = rows["joiner east-1"]["pid"]
    os.kill(victim, signal.SIGKILL)
    until(lambda: site.ps()["joiner east-1"]["restarts"] == 1, UP_S, "restarted")
    until(lambda: {row["state"] for row in site.ps().values()} == {"up"}, UP_S, "all up again")
    assert site.ps()["joiner east-1"]["pid"] != victim

    lost = {name for name, row in rows.items() if row["datacentre"] == "west"}
    assert len(lost) == 6
    ask(site.run, Request(do="kill", datacentre="west", hold=True))
    until(lambda: {n for n, row in site.ps().items() if row["state"] == "held"} == lost, UP_S, "west is held")
    shown = photon("status", "processes", "--config", site.file)
    assert shown.code == ATTENTION
    assert shown.out.count(" held ") == 6
    ask(site.run, Request(do="release", datacentre="west"))
    until(lambda: {row["state"] for row in site.ps().values()} == {"up"}, UP_S, "west is back")

    down = photon("down", site.file)
    assert down.code == 0, down.err
    assert f"{PROCESSES} processes stopped" in down.out
    assert {*site.left()} <= {own}  # it has released its lock
    until(lambda: site.left() == [], UP_S, "it ends itself")
    assert len(site.pids) >= PROCESSES + 8  # photon up itself, one killed, six lost
    again = photon("down", site.file)
    assert (again.code, again.out) == (0, f"nothing runs in {site.run}\n")
    nothing = photon("status", "processes", "--config", site.file)
    assert nothing.code == NOTHING_RUNS
    assert f"nothing runs in {site.run}" in nothing.err
    assert (site.run / "routes.json").read_bytes() == routes


def test_kill_9_of_up_ends_its_children_and_the_next_up_or_down_what_hangs(site: Site) -> None:
    first = site.up()
    routes = (site.run / "routes.json").read_bytes()
    hung = first["eventstore east"]["pid"]
    os.kill(hung, signal.SIGSTOP)  # it cannot end by itself
    os.kill(site.own_pid(), signal.SIGKILL)
    until(lambda: site.left() == [hung], 60.0, "all children have ended, but the one that hangs")
    assert photon("status", "processes", "--config", site.file).code == NOTHING_RUNS
    second = site.up()
    assert not alive(hung)
    assert not {row["pid"] for row in first.values()} & {row["pid"] for row in second.values()}
    assert (site.run / "routes.json").read_bytes() == routes
    assert f"eventstore east (pid {hung})" in (site.run / "logs" / "up.log").read_text()

    hung = second["dispatcher west"]["pid"]
    os.kill(hung, signal.SIGSTOP)
    os.kill(site.own_pid(), signal.SIGKILL)
    until(lambda: site.left() == [hung], 60.0, "all children have ended, but the one that hangs")
    down = photon("down", site.file)
    assert (down.code, f"dispatcher west (pid {hung})" in down.out) == (0, True)
    assert site.left() == []


def test_in_the_foreground_until_ctrl_c(site: Site, tmp_path: Path) -> None:
    """Shows events and the processes' output; a service that cannot start does not end the others."""
    taken = int(load(site.file, environment={}).joiners("east")["east-2"].rpartition(":")[2])
    said = tmp_path / "up.txt"
    with running("up", site.file, log=said) as process:
        with socket.create_server(("127.0.0.1", taken)):
            until(lambda: site.run.exists() and _state(site, "joiner east-2") == "failing", UP_S, "failing")
            others = {name: row["state"] for name, row in site.ps().items() if name != "joiner east-2"}
            assert "failing" not in others.values()
            assert "is the port in use?" in site.ps()["joiner east-2"]["detail"]
        until(lambda: {row["state"] for row in site.ps().values()} == {"up"}, UP_S, "all up")
        site.pids |= set(children(process.pid))
        assert len(children(process.pid)) == PROCESSES + 1  # and the zygote
        assert interrupt(process, timeout=60.0) == 0
    assert site.left() == []
    text = said.read_text()
    assert "joiner east-2   | ended with exit code 1, again in" in text
    assert "dispatcher east | dispatcher serves" in text
    assert "| stopping 14 processes" in text


def _state(site: Site, name: str) -> str | None:
    result = photon("status", "processes", "--config", site.file, "-o", "json")
    if not result.out:
        return None
    return next(row["state"] for row in json.loads(result.out)["processes"] if row["name"] == name)
