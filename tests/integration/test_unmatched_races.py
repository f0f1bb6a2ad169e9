"""Two datacentres with real processes: a match in one, a time-out in the other, and nothing more is ever written."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path
from random import Random

from photon.config.loader import load
from photon.fleet.ledger import balances, read_ledger
from photon.lab.demo.check import records
from photon.supervision.deployment import Deployment
from tests.integration.commands import drawn_seed, soon
from tests.integration.supervised import supervised
from tests.integration.test_skip import T, configuration

PATIENCE_S = 3.0
UNCERTAINTY_S = 0.5
CLICKS = 120
NEVER = CLICKS // 6  # number of clicks without any query
SPREAD_S = 0.8  # the queries come within this time before and after the end of patience, in one datacentre alone
ON_TIME_S = 30.0  # the last verdict comes within this time after patience, on a machine with other work


async def test_one_verdict_each_and_on_time(tmp_path: Path) -> None:
    draw = Random(drawn_seed())
    file = configuration(tmp_path)
    text = file.read_text().replace(
        "[join.clicks.primary]", f'[join.clicks]\nunmatched_after = "{PATIENCE_S}s"\n[join.clicks.primary]'
    )
    file.write_text(f'{text}\n[clock]\nuncertainty = "{UNCERTAINTY_S}s"\n')
    deployment = Deployment(file, load(file, environment={}), tmp_path / "run")
    states = [tmp_path / name / "state" for name in ("east", "west")]
    for name in ("east", "west"):
        (tmp_path / name / "queries" / "q.log").write_text('{"query_id":"other"}\n')
    async with supervised(deployment) as supervisor:
        await supervisor.start(deployment.services())
        await supervisor.ready(90)
        clicks = "".join(
            f'{{"click_id":"c{n}","query_id":"q{n}","time_us":{(T + n) * 10**6}}}\n' for n in range(CLICKS)
        )
        for name in ("east", "west"):
            (tmp_path / name / "clicks" / "c.log").write_text(clicks)
        written = time.monotonic()
        await _write_queries(tmp_path / "west" / "queries" / "q.log", written, draw)
        limit = written + PATIENCE_S + UNCERTAINTY_S + ON_TIME_S
        while any(read_ledger(s)["read"] < CLICKS or read_ledger(s)["pending"] for s in states):
            assert time.monotonic() < limit, [read_ledger(state) for state in states]
            await asyncio.sleep(0.05)
        await soon(lambda: sum(_verdicts(tmp_path).values()) >= CLICKS, 60, "all of it is written")
        seen = _verdicts(tmp_path)
        ledgers = [read_ledger(state) for state in states]
    assert len(seen) == CLICKS
    assert set(seen.values()) == {1}, "an event has two verdicts"
    joined = sum(each["joined"] for each in ledgers)
    unmatched = sum(each["unmatched"] for each in ledgers)
    print(f"{joined} joined, {unmatched} unmatched, {[each['wasted'] for each in ledgers]} lost the race")
    assert all(map(balances, ledgers))
    assert joined + unmatched == CLICKS
    assert unmatched >= NEVER
    assert joined > 0


async def _write_queries(log: Path, begun: float, draw: Random) -> None:
    """One after the other, each at its own moment around the end of patience."""
    end = begun + PATIENCE_S + UNCERTAINTY_S
    moments = sorted(end + draw.uniform(-SPREAD_S, SPREAD_S) for _ in range(NEVER, CLICKS))
    with log.open("a") as queries:
        for n, moment in enumerate(moments, NEVER):
            await asyncio.sleep(max(0.0, moment - time.monotonic()))
            queries.write(f'{{"query_id":"q{n}"}}\n')
            queries.flush()


def _verdicts(directory: Path) -> Counter[str]:
    """Event id -> records in all outputs of both datacentres."""
    found: Counter[str] = Counter()
    for name in ("east", "west"):
        output = directory / name / "output"
        for log in ("joined", "unmatched"):
            found.update(record["event_id"] for record in records(output / log))
    return found
