"""``photon serve observe``: a program's observers run, report their state, and end when told to."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from photon.assembly.observe import serve_observe
from photon.assembly.room import Room
from photon.config.errors import UsageError
from photon.config.loader import ConfigError, convert
from photon.config.settings import Settings
from photon.fleet.look import Asker
from photon.fleet.numbers import Numbers
from photon.fleet.polling import Gatherer, healthy
from photon.fleet.processes import processes
from photon.supervision.ports import free_ports
from photon.tables import Tables

PROGRAM = """
from photon.tables import Tables, observer
tables = Tables.open("photon.toml")
tables.around.limits.grace_s = 0.0

@observer(tables, table="clicks", column="campaign")
def count(txn, click):
    row = txn.table("campaigns").row(click.get("campaign"))
    row.set("clicks", (row.get("clicks") or 0) + 1)
"""
WAIT_S = 60.0


def settings_of(directory: Path, processes: int = 1) -> Settings:
    addresses = [f"127.0.0.1:{port}" for port in free_ports(processes)]
    (directory / "photon.toml").write_text('[tables]\nfile = "t.db"\nkeep = "7s"\n')
    (directory / "dedup.py").write_text(PROGRAM)
    observe = {"dedup": {"file": "dedup.py", "addresses": addresses, "threads": 1}}
    return convert({"tables": {"file": "t.db"}, "observe": observe}, "photon.toml")


async def test_they_run_and_are_asked_as_all_processes_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings, stop = settings_of(tmp_path), asyncio.Event()
    [process] = processes(settings)
    assert (process.label, process.identity, process.arguments) == ("observe dedup-1", "observe-dedup", ("dedup-1",))
    with Tables.open(tmp_path / "t.db") as tables:
        with tables.transaction() as t:
            for n in range(3):
                t.table("clicks").row(f"k{n}").set("campaign", "c")
        serving = asyncio.create_task(serve_observe(Room(settings, tmp_path, stop, member="dedup-1")))
        gatherer, asker = Gatherer(None), Asker(settings, [], None)
        try:
            async with asyncio.timeout(WAIT_S):
                while True:
                    [heard] = await gatherer.gather([process])
                    now = Numbers([heard])
                    if now.sum("photon_tables_observed_total") >= 3 and not now.sum("photon_tables_dirty_cells"):
                        break
                    assert not serving.done(), serving
                    await asyncio.sleep(0.05)
            assert await healthy(process, None, 5.0)
            [same] = (await asker.look()).heard
            assert (same.process, same.up) == (process, True)
        finally:
            stop.set()
            await serving
            await gatherer.close()
            await asker.close()
        assert heard.details == {"observers": ["count"], "file": "dedup.py", "problem": ""}
        assert now.sum("photon_tables_store_up") == 1
        with tables.snapshot() as now_:
            assert now_.table("campaigns").row("c").get("clicks") == 3


async def test_what_is_not_in_the_file_is_one_line(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, 2)
    with pytest.raises(UsageError, match="there are: dedup-1, dedup-2"):
        await serve_observe(Room(settings, tmp_path, asyncio.Event(), member="dedup-3"))
    with pytest.raises(ConfigError, match=r"observe\.dedup\.addresses: is empty"):
        convert({"observe": {"dedup": {"file": "x.py", "addresses": []}}}, "file")
    with pytest.raises(ConfigError, match="used twice"):
        convert({"observe": {"dedup": {"file": "x.py", "addresses": ["127.0.0.1:1"] * 2}}}, "file")
