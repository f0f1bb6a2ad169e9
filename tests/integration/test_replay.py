"""photon dispatcher replay with real processes: unread lines get their verdict, whatever runs and is killed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from photon.config.loader import load
from photon.fleet.ledger import balances, read_ledger
from photon.supervision.deployment import Deployment
from tests.integration.commands import Result, photon, soon
from tests.integration.supervised import supervised
from tests.integration.test_skip import FAILED, USAGE, T, configuration, joined, write

CLICKS, SKIPPED = 300, 200


async def test_a_skip_by_mistake_is_mended_by_a_replay(tmp_path: Path) -> None:
    file = configuration(tmp_path)
    write(tmp_path, 0, CLICKS)
    deployment = Deployment(file, load(file, environment={}), tmp_path / "run")
    services = {each.name: each for each in deployment.services()}
    states = [tmp_path / name / "state" for name in ("east", "west")]

    async def dispatcher(*arguments: str, datacentre: str = "east") -> Result:
        verb, *more = arguments
        command = ("dispatcher", verb, "--config", str(file), "--datacentre", datacentre, *more)
        return await asyncio.to_thread(photon, *command)

    whole = ("--from", str(T), "--to", str(T + SKIPPED))
    missing = await dispatcher("replay", *whole)
    assert (missing.code, missing.out) == (FAILED, "")
    assert "there is no dispatcher state" in missing.err
    for name, other in (("east", "west"), ("west", "east")):  # each relies on the other: nobody reads these
        done = await dispatcher("skip", "--to", str(T + SKIPPED), "--reader", other, "--yes", datacentre=name)
        assert (done.code, done.err) == (0, "")
    async with supervised(deployment) as supervisor:
        await supervisor.start(list(services.values()))
        rest = CLICKS - SKIPPED
        await soon(lambda: all(read_ledger(s)["read"] == rest for s in states), 60, "what was not skipped is read")
        await soon(lambda: len(joined(tmp_path)) == rest, 60, "and joined")

        shown = await dispatcher("replay", *whole, "--dry-run", "-o", "json")
        assert (shown.code, shown.err, shown.json["number"]) == (0, "", None)
        size = (tmp_path / "east" / "clicks" / "c.log").read_bytes().index(b'{"click_id":"c%d"' % SKIPPED)
        [log] = shown.json["logs"]
        assert (log["file"], log["there"], log["bytes"] >= size) == ("c.log", True, True)
        none = await dispatcher("replay", *whole, "--file", "other*", "--dry-run")
        assert "0 bytes of 0 logs would be read again" in none.out
        for wrong, says in (
            (("--from", "1h"), "give a time range with --from and --to"),
            ((*whole, "--status"), "give a time range"),
            (("--from", "1h", "--to", "2h"), "--from 1h is not before --to 2h"),
            (("--from", "x", "--to", "now"), "--from x: a time is"),
            (("--cancel", "77"), "no waiting or running replay has this number"),
        ):
            refused = await dispatcher("replay", *wrong)
            assert (refused.code, refused.out) == (USAGE, "")
            assert says in refused.err

        asked = await dispatcher("replay", *whole)
        assert asked.code == 0
        assert "replay 1: " in asked.out
        supervisor.kill("dispatcher east")
        await soon(lambda: len(set(joined(tmp_path))) == CLICKS, 60, "the dispatcher that comes back replays it")
        waited = await dispatcher("replay", *whole, "--wait", datacentre="west")
        assert waited.code == 0
        assert "done" in waited.err.splitlines()[-1]
        status = await dispatcher("replay", "--status", "-o", "json", datacentre="west")
        [row] = status.json["replays"]
        assert (row["state"], row["events"], row["known"]) == ("done", SKIPPED, SKIPPED)
        await soon(lambda: read_ledger(states[0])["reread"] == SKIPPED, 60, "east counted them as reread")
        assert sorted(joined(tmp_path)) == sorted(f"c{n}" for n in range(CLICKS))
        ledgers = [read_ledger(state) for state in states]
        assert all(map(balances, ledgers))
        assert [each["read"] for each in ledgers] == [rest, rest]
    queued = await dispatcher("replay", *whole, "-o", "json")
    number = queued.json["number"]
    cancelled = await dispatcher("replay", "--cancel", str(number))
    assert (cancelled.code, cancelled.out) == (0, "cancelled\n")
    shown = await dispatcher("replay", "--status")
    assert "cancelled" in shown.out.splitlines()[-1]
    assert not any(each != each.rstrip() for each in shown.out.splitlines())
