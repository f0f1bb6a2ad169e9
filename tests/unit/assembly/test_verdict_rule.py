"""Joiners that call no event unmatched: a process of their datacentre has an older file, or nobody knows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from photon.adapters.join_adapters import adapter_of
from photon.assembly.verdict_rule import ASK_S, HEARD_S, SETTINGS, Unmatched, behind, differing, verdict_rule
from photon.config.loader import load
from photon.idregistry.core.verdict_rules import VerdictRules
from photon.idregistry.replica.embedded import EmbeddedRegistry
from tests.kit.clock import ManualClock
from tests.unit.assembly.test_change_a_join import BEFORE, FILE

CHANGES = {
    "primary_files": {"join": 'primary_files = ["more/*"]'},
    "follow_links": {"primary": 'follow_links = ["/var/log/pods"]'},
    "missing_logs": {"join": 'missing_logs = "forget"'},
    "primary_max_delay": {"join": 'primary_max_delay = "1s"'},
    "duplicates": {"primary": 'duplicates = "last"'},
    "within": {"join": 'within = { before = "1h" }'},
    "unmatched_after": {"join": 'unmatched_after = "1h"'},
}
BOTH = {
    "match": {"join": 'unmatched_after = "1h"\nmatch = "latest"'},
    "unmatched": {"join": 'unmatched_after = "1h"\nunmatched = "inline"'},
}
OTHERS = {"join": 'foreign_files = ["more/*"]\nwritten_within = "1h"\nlast_line_after = "1s"'}


def rule(base: Path, changed: dict[str, str]) -> bytes:
    base.mkdir(exist_ok=True)
    (base / "key").write_bytes(b"k" * 32)
    (base / "photon.toml").write_text(FILE.format(**{**BEFORE, **changed}))
    settings = load(base / "photon.toml", environment={})
    return verdict_rule(settings.join["clicks"], adapter_of(settings, "clicks", base))


def test_each_setting_that_decides_the_verdict_is_part_of_the_rule(tmp_path: Path) -> None:
    before = rule(tmp_path, {})
    assert CHANGES.keys() | BOTH.keys() == set(SETTINGS)
    for name, change in CHANGES.items():
        assert differing(before, rule(tmp_path, change)) == [name]
    for name, change in BOTH.items():
        assert differing(before, rule(tmp_path, change)) == sorted([name, "unmatched_after"], key=SETTINGS.index)
    assert rule(tmp_path, OTHERS) == before
    assert differing(before, before + b"a setting of another release") == []


@pytest.mark.parametrize(
    ("processes", "own", "says"),
    [
        ({}, b"B", ""),
        ({"store": b"B", "dispatcher": b"B"}, b"B", ""),
        ({"store": b"B", "another": b"A"}, b"B", ""),  # of another datacentre: that one waits
        ({"store": b"B"}, b"A", "the release: joiner has an older file than west"),
        ({"store": b"A", "dispatcher": b"B"}, b"B", "the release: store has an older file than west"),
    ],
)
def test_an_older_file_of_the_own_datacentre_holds_back(processes: dict[str, bytes], own: bytes, says: str) -> None:
    known = VerdictRules((b"A", b"B"), "west", processes)
    assert "; ".join(behind(known, "joiner", own, ("store", "dispatcher"))) == says


@asynccontextmanager
async def registry(directory: Path) -> AsyncIterator[EmbeddedRegistry]:
    opened = await EmbeddedRegistry.open(directory, id_rules={"clicks": b"rule"})
    try:
        yield opened
    finally:
        await opened.close()


async def test_two_datacentres_out_of_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("photon.assembly.verdict_rule.ASK_S", 0.01)
    clock, stop = ManualClock(), asyncio.Event()
    old, new = rule(tmp_path / "old", {}), rule(tmp_path / "new", CHANGES["within"])
    async with registry(tmp_path / "registry") as registered:

        def started(datacentre: str, its: bytes, join: str = "clicks") -> Unmatched:
            return Unmatched(
                registered, clock, join=join, datacentre=datacentre, process=f"joiner of {datacentre}", rule=its
            )

        east, west = started("east", old), started("west", old)
        assert east.waits
        for each in (east, west):
            assert await each.begin(stop)
            assert not each.waits
        newer = started("east", new)
        assert await newer.begin(stop)
        again = started("west", old)
        assert await again.begin(stop)
        assert (newer.waits, again.waits) == ("", "within: joiner of west has an older file than joiner of east")
        running = asyncio.create_task(west.run(stop))
        async with asyncio.timeout(30):
            while not west.waits:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert west.waits == again.waits
        waiting = asyncio.create_task(started("east", old, "orders").begin(stop))
        await asyncio.sleep(0.05)
        assert not waiting.done(), "the registry has no such join yet"
        stop.set()
        await running
        assert not await waiting
    clock.passes(HEARD_S + ASK_S)
    assert newer.waits == "the registry does not report which file is newest"
