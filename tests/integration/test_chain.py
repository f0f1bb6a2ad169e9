"""Joins upon joins: each pair, triple and receipt exactly once over all datacentres, whichever process is killed."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

from tests.integration.chain_site import READY_S, SETTLE_S, ChainSite
from tests.integration.commands import drawn_seed, photon, soon
from tests.integration.supervised import supervised


async def _run(site: ChainSite, draw: random.Random, *, events: int = 200, seconds: float = 5.0) -> None:
    """Feeds, kills every process at some moment, waits, and compares."""
    async with supervised(site.deployment) as supervisor:
        services = site.deployment.services()
        await supervisor.start(services)
        await supervisor.ready(READY_S)
        feeding = asyncio.create_task(site.feed(draw, events, seconds))
        victims = [each.name for each in services if each.name not in ("registry r2", "registry r3")]
        draw.shuffle(victims)
        for victim in victims:
            await asyncio.sleep(draw.uniform(0.0, 2 * seconds / len(victims)))
            print(f"kill -9 {victim} {supervisor.kill(victim)}")
        await feeding
        await site.settled(supervisor)
        await supervisor.ready(READY_S)
        await asyncio.to_thread(_seen_stage_by_stage, site)
    site.verify()
    site.verify_views()


def _seen_stage_by_stage(site: ChainSite) -> None:
    """What an operator is told while all of it runs."""
    record = site.records("receipts")[0]
    purchase, click = record["event_id"], record["foreign"]["primary"]["event_id"]
    told = photon("explain", purchase, "--config", site.file, "-o", "json")
    story = json.loads(told.out)
    assert (story["join"], story["verdict"], story["contradictions"]) == ("receipts", "joined", []), told
    above = [(each["join"], each["event_id"], each["verdict"]) for each in story["upstream"]]
    assert above == [("purchases", purchase, "joined"), ("clicks", click, "joined")], told
    assert "made of an event of the join clicks" in photon("explain", purchase, "--config", site.file).out

    seen = json.loads(photon("status", "--config", site.file, "-o", "json").out)
    upstream = {each["datacentre"]: {row["upstream"] for row in each["upstream"]} for each in seen["datacentres"]}
    for dc in site.datacentres:
        assert upstream[site.pipeline(dc, "purchases")] == set(site.datacentres)
        assert upstream[site.pipeline(dc, "receipts")] == {
            site.pipeline(each, "purchases") for each in site.datacentres
        }
        assert upstream[dc] == set()


async def test_one_datacentre_with_kill_9_of_every_process(tmp_path: Path) -> None:
    await _run(ChainSite(tmp_path), random.Random(drawn_seed()))


async def test_two_datacentres_with_kill_9_of_every_process(tmp_path: Path) -> None:
    site = ChainSite(tmp_path, ("east", "west"), together=True)
    await _run(site, random.Random(drawn_seed()))


async def test_two_machines_read_each_others_output_in_copies(tmp_path: Path) -> None:
    site = ChainSite(tmp_path, ("east", "west"), ("clicks", "purchases"), together=True, apart=True)
    draw = random.Random(drawn_seed())
    async with supervised(site.deployment) as supervisor:
        services = site.services_apart()
        await supervisor.start(services)
        await supervisor.ready(READY_S)
        feeding = asyncio.create_task(site.feed(draw, 200, 6.0))
        for victim in ("relay east-purchases", "copies east", "datacentre west", "relay west-purchases"):
            await asyncio.sleep(draw.uniform(0.0, 2.0))
            supervisor.kill(victim)
        await feeding
        await site.settled(supervisor)
        await supervisor.stop([[each.name for each in services]])
    site.verify()
    for dc, other in (("east", "west"), ("west", "east")):
        relayed = site.homes[dc] / dc / "purchases.state" / "upstream" / "primary"
        assert not (site.homes[dc] / other).exists()
        assert any(path.name.startswith(f"{other}-1-") for path in relayed.iterdir())


async def test_nothing_is_called_unmatched_for_what_was_joined_and_not_relayed(tmp_path: Path) -> None:
    site = ChainSite(tmp_path, stages=("clicks", "purchases"), together=True, purchases='unmatched_after = "2s"')
    async with supervised(site.deployment) as supervisor:
        await supervisor.start(site.deployment.services())
        await supervisor.ready(READY_S)
        site.add("purchases", purchase_id="p0", click_id="none", shop="s")
        await soon(lambda: site.ids("purchases", "unmatched") == ["p0"], SETTLE_S, "p0 is hopeless")

        supervisor.kill("relay east-purchases", hold=True)
        site.add("queries", query_id="q1")
        site.add("clicks", click_id="c1", query_id="q1")
        site.add("purchases", purchase_id="p1", click_id="c1", shop="s")
        await soon(lambda: site.ids("clicks", "joined") == ["c1"], SETTLE_S, "c1 is joined")
        await asyncio.sleep(6.0)
        assert site.ids("purchases", "unmatched") == ["p0"]

        supervisor.release("relay east-purchases")
        await soon(lambda: site.ids("purchases", "joined") == ["p1"], SETTLE_S, "p1 is joined")
        assert site.ids("purchases", "unmatched") == ["p0"]
