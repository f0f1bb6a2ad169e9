"""Datacentres whose logs several dispatchers divide: kill -9, and another number of them; each event once."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

from photon.dispatcher.database import STATE_NAME
from photon.dispatcher.partitions import all_of, files_of, partition_of, read_number
from photon.fleet.ledger import read_ledger
from photon.lab.demo.check import records
from photon.lab.demo.deployment import Shape
from photon.supervision.ports import free_row
from tests.integration.commands import drawn_seed, photon, until
from tests.integration.rig import Rig
from tests.integration.verified_site import WAIT_S, Site, site_in

ROUNDS = 20 if os.environ.get("PHOTON_FULL") else 1
TWO = Shape(joiners=1, dispatchers=2, round_trip_s=None)
LOGS = 16


async def dispatchers_fail(rig: Rig) -> None:
    """Three of four are killed, another one is stopped for a while."""
    names = [f"dispatcher {datacentre} {n}of2" for datacentre in ("east", "west") for n in (1, 2)]
    rig.random.shuffle(names)
    for name in names[:3]:
        await rig.pause(0.0, 1.5)
        await rig.kill(name)
    await rig.freeze(names[3], 2.0)


@pytest.mark.parametrize("round_", range(ROUNDS))
async def test_two_datacentres_whose_dispatchers_fail(tmp_path: Path, round_: int) -> None:
    await Rig(tmp_path, drawn_seed(), seconds=6.0, shape=TWO).run(dispatchers_fail)


def _number(base: Path, count: int) -> None:
    file = base / "photon.toml"
    text = re.sub(r"dispatchers = .*\n", "", file.read_text())
    file.write_text(text.replace("apart.dispatcher = ", f"dispatchers = {count}\napart.dispatcher = "))


def _four(base: Path) -> None:
    file = base / "photon.toml"
    file.write_text(re.sub(r"dispatcher = '.*'", f'dispatcher = "127.0.0.1:{free_row(8)}"', file.read_text()))
    _number(base, 4)


def _write(site: Site, clicks: int) -> None:
    with open(site.queries, "ab") as queries:
        queries.write(b"".join(b'{"q":"q%06d","words":"w"}\n' % n for n in range(site.events, site.events + clicks)))
    for n in range(site.events, site.events + clicks):
        with open(site.base / "clicks" / f"{n % LOGS}.log", "ab") as log:
            log.write(b'{"id":"c%06d","q":"q%06d","t":%d}\n' % (n, n, 1_760_000_000 + n))
    site.events += clicks


def _read(site: Site) -> bool:
    with suppress(Exception):  # it is being moved
        ledger = read_ledger(site.base / "state")
        return (ledger["read"], ledger["joined"]) == (site.events, site.events)
    return False


def _offsets(site: Site) -> list[dict[str, int]]:
    """How far each dispatcher has read its logs."""
    found = []
    for file in files_of(site.base / "state" / STATE_NAME):
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
            found.append(dict(db.execute("SELECT identity, offset FROM logs").fetchall()))
    return found


def _pids(site: Site) -> dict[str, int | None]:
    shown = json.loads(photon("status", "processes", "--config", site.file, "-o", "json").out)
    return {each["name"]: each["pid"] for each in shown["processes"] if each["name"].startswith("dispatcher")}


def test_one_of_four_is_killed_and_the_others_never_stop(tmp_path: Path) -> None:
    with site_in(tmp_path, prepare=_four) as site:
        _write(site, 10 * LOGS)
        until(lambda: _read(site), WAIT_S, "all is read")
        before, pids = _offsets(site), _pids(site)
        assert sum(map(len, before)) == LOGS
        assert all(partition_of(log, 4) == number for number, logs in enumerate(before, 1) for log in logs)
        victim = next(number for number, logs in enumerate(before) if logs)
        os.kill(pids[f"dispatcher east {victim + 1}of4"] or 0, 9)
        killed = time.monotonic()
        _write(site, LOGS)
        until(lambda: _offsets(site)[victim] != before[victim], WAIT_S, "its logs are read again")
        print(f"its logs are read again after {time.monotonic() - killed:.2f} s")
        until(lambda: _read(site), WAIT_S, "all is read")
        now = _pids(site)
        assert [name for name in pids if now[name] != pids[name]] == [f"dispatcher east {victim + 1}of4"]
        lag = json.loads(photon("status", "lag", "--config", site.file, "-o", "json").out)
        assert (len(lag["dispatchers"]), lag["logs"], lag["behind"], lag["silent"]) == (4, LOGS, 0, [])


def test_a_reload_with_another_number_moves_the_state(tmp_path: Path) -> None:
    with site_in(tmp_path, prepare=_four) as site:
        for count in (4, 2, 8, 1):
            if count != 4:
                _number(site.base, count)
                assert photon("reload", site.file, timeout=WAIT_S).code == 0
            _write(site, 3 * LOGS)
            until(lambda: _read(site), WAIT_S, f"{count} have read all")
            assert read_number(site.base / "state" / STATE_NAME).dispatchers == count
            assert len(_pids(site)) == len(all_of(count))
        assert read_ledger(site.base / "state")["reread"] == 0
        joined = [record["event_id"] for record in records(site.base / "output" / "joined")]
        assert sorted(joined) == [f"c{n:06d}" for n in range(site.events)]
