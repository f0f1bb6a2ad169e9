"""The example of docs/tables.md with real processes on SQLite, killed at any moment: its result equals its
batch's."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from subprocess import PIPE

import pytest

from photon.supervision.ports import free_ports
from photon.tables import Tables
from photon.tables.standing import look
from tests.integration.commands import photon, until
from tests.integration.forked import Process, begin

DOCUMENT = Path(__file__).parents[2] / "docs" / "tables.md"
CLICKS = 1_000
ROUNDS = 20 if os.environ.get("PHOTON_FULL") == "1" else 2


class Site:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        [program] = re.findall(r"^cat > dedup\.py <<'END'\n(.*?)^END$", DOCUMENT.read_text(), re.M | re.S)
        short = 'tables = Tables.open("clicks.db")\n'
        assert short in program
        # Every writing program knows the observers here: nobody has to be waited for.
        self.program = directory / "dedup.py"
        self.program.write_text(program.replace(short, short + "tables.around.limits.grace_s = 0.1\n"))
        self.running: list[Process] = []

    def join(self) -> None:
        searches, clicks = self.directory / "searches", self.directory / "clicks"
        searches.mkdir()
        clicks.mkdir()
        chance = random.Random(28)
        with (searches / "a.log").open("w") as one, (clicks / "a.log").open("w") as other:
            for n in range(CLICKS):
                one.write(json.dumps({"search": f"s{n}", "campaign": f"campaign-{n % 7}"}) + "\n")
                click = {"id": f"k{n:05}", "search": f"s{n}", "print": f"f{chance.randrange(400)}", "at": n}
                other.write(json.dumps(click) + "\n")
        (self.directory / "join.toml").write_text(
            '[join.clicks]\nprimary = { format = "jsonl", key = "search" }\nforeign = { format = "jsonl", '
            'key = "search", id = "id", time = { field = "at", unit = "s" } }\n'
        )
        said = photon(
            "join", "--config", str(self.directory / "join.toml"), "--primary", str(searches),
            "--foreign", str(clicks), "--output", str(self.directory / "out"), "--once",
        )  # fmt: skip
        assert said.code == 0, said.err

    def start(self, *arguments: str) -> Process:
        """The program."""
        self.running.append(
            subprocess.Popen(
                [sys.executable, self.program, *arguments], cwd=self.directory, text=True, stdout=PIPE, stderr=PIPE
            )
        )
        return self.running[-1]

    def observe(self, *options: str) -> Process:
        command = ["table", "observe", str(self.program), "--threads", "2", *options]
        self.running.append(begin(*command, cwd=self.directory, text=True, stdout=PIPE, stderr=PIPE))
        return self.running[-1]

    def end(self, process: Process) -> str:
        """Waits for its end; returns its output."""
        out, err = process.communicate(timeout=240)
        assert process.returncode == 0, err
        return str(out)

    def size(self, table: str) -> int:
        with Tables.open(self.directory / "clicks.db") as tables, tables.snapshot() as now:
            return sum(1 for _ in now.table(table).scan())

    def at_rest(self) -> bool:
        with Tables.open(self.directory / "clicks.db") as tables:
            return self.size("clicks") > 0 and look(tables.around, tables.system).dirty == 0

    def wait_for_more(self, table: str, process: Process) -> None:
        """Waits until it has more rows, or the process has ended, or everything loaded has been processed."""
        before, deadline = self.size(table), time.monotonic() + 120
        while self.size(table) <= before and process.poll() is None and not (table == "clusters" and self.at_rest()):
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Site:
    site = Site(tmp_path_factory.mktemp("tables"))
    site.join()
    return site


@pytest.fixture
def site(joined: Site) -> Iterator[Site]:
    for path in joined.directory.glob("clicks.db*"):
        path.unlink()
    yield joined
    for process in joined.running:
        if process.poll() is None:
            process.kill()
            process.communicate(timeout=30)
    joined.running.clear()


def test_a_loader_and_observers_that_are_killed_lose_and_repeat_nothing(site: Site) -> None:
    chance = random.Random(28)
    for _ in range(ROUNDS):
        loader, observers = site.start("load"), [site.observe() for _ in range(2)]
        site.wait_for_more("clicks", loader)
        time.sleep(chance.random() / 10)
        loader.kill()
        site.wait_for_more("clusters", observers[0])
        time.sleep(chance.random() / 10)
        for each in observers:
            each.kill()
        for each in (loader, *observers):
            each.communicate(timeout=30)
    site.end(site.start("load"))
    said = json.loads(site.end(site.observe("--once", "-o", "json")))
    assert said["observers"] == ["cluster", "count", "serve"]
    assert re.fullmatch(rf"{CLICKS} clicks in \d+ clusters: as the batch says\n", site.end(site.start("check")))
    verified = photon("table", "verify", "--database", str(site.directory / "clicks.db"), "-o", "json")
    found = json.loads(verified.out)
    assert verified.code == 0
    assert found["problems"] == []
    assert found["notifications"] == 0
    assert site.end(site.start("load")) == "0 records loaded\n"


def test_a_deployment_keeps_its_observers_running_through_kills(site: Site) -> None:
    file, ports = site.directory / "photon.toml", free_ports(2)
    addresses = json.dumps([f"127.0.0.1:{port}" for port in ports])
    file.write_text(f'[tables]\nfile = "clicks.db"\n[observe.dedup]\nfile = "dedup.py"\naddresses = {addresses}\n')
    assert (started := photon("up", file, "--detach")).code == 0, started.err
    try:
        loader = site.start("load")
        for _ in range(ROUNDS):
            site.wait_for_more("clusters", loader)
            for state in json.loads(photon("status", "processes", "--config", file, "-o", "json").out)["processes"]:
                assert state["name"].startswith("observe dedup-")
                if state["pid"] is not None:
                    os.kill(state["pid"], signal.SIGKILL)
        assert loader.communicate(timeout=240)[1] == ""
        with Tables.open(site.directory / "clicks.db") as tables:
            until(lambda: look(tables.around, tables.system).dirty == 0, 240, "nothing waits")
        assert site.end(site.start("check")).endswith(": as the batch says\n")
    finally:
        assert photon("down", file).code == 0


def _catches(pid: int, number: signal.Signals) -> bool:
    [caught] = re.findall(r"SigCgt:\s+(\w+)", Path(f"/proc/{pid}/status").read_text())
    return bool(int(caught, 16) >> (number - 1) & 1)


def test_observers_end_on_sigterm_and_say_what_they_did(site: Site) -> None:
    site.end(site.start("load"))
    observers = [site.observe("-o", "json") for _ in range(2)]
    site.wait_for_more("serving", observers[0])
    for each in observers:
        until(partial(_catches, each.pid, signal.SIGTERM), 120, "it runs")
        each.send_signal(signal.SIGTERM)
    said = []
    for each in observers:
        out, err = each.communicate(timeout=60)
        assert each.returncode == 0, err
        said.append(json.loads(out)["counts"])
    assert sum(counts.get("observed", 0) for counts in said) > 0
