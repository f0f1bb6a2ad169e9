"""kill -9 of each kind of service process at random moments; afterwards every click came out exactly once."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from photon.demo.check import check
from photon.demo.deployment import Deployment
from photon.demo.feed import Feed
from photon.demo.generator import Disorder, Generator
from photon.demo.observe import Observer
from photon.embedded.status import balances
from photon.embedded.supervisor import Supervisor

ROUNDS = 20 if os.environ.get("PHOTON_FULL") else 2
SECONDS = 5.0
KILLS = 8
SETTLE_S = 90.0


@pytest.mark.parametrize("round_", range(ROUNDS))
async def test_every_click_exactly_once_whoever_is_killed(tmp_path: Path, round_: int) -> None:
    seed = int(os.environ.get("PHOTON_SEED", random.SystemRandom().randrange(1 << 30)))
    print(f"PHOTON_SEED={seed}")
    rnd = random.Random(seed)
    generator = Generator(
        seed, clicks=1500, seconds=SECONDS, disorder=Disorder(late_by=1.0, query_delay=0.4), epoch_us=_now_us()
    )
    lines = sorted(generator.lines(), key=lambda line: line.at_us)
    deployment = Deployment(tmp_path, unmatched_after_s=3.0)
    deployment.write()
    supervisor = Supervisor()
    observer = Observer(deployment)
    try:
        await supervisor.start(deployment.services())
        await supervisor.ready(60)
        feeding = asyncio.create_task(Feed(lines, deployment.primary, deployment.foreign).run())
        killing = asyncio.create_task(_kill(supervisor, deployment, rnd))
        await asyncio.gather(feeding, killing)
        await _settled(observer, generator.truth.lines)
    finally:
        await supervisor.stop()
    assert check([deployment.output], generator.truth).problems == []
    ledger = observer.ledger()
    truth = generator.truth
    assert balances(ledger)
    assert ledger == {
        **dict.fromkeys(ledger, 0),
        "read": truth.lines,
        "joined": len(truth.joined),
        "unmatched": len(truth.unmatched),
        "rejected": truth.malformed,
        "duplicate": truth.duplicates,
    }


def _now_us() -> int:
    import time

    return time.time_ns() // 1000


async def _kill(supervisor: Supervisor, deployment: Deployment, rnd: random.Random) -> None:
    """Each kind at least once, then whoever comes; a second replica only once the first is up again."""
    names = [service.name for service in deployment.services()]
    replicas = [name for name in names if name.startswith("registry")]
    victims = [rnd.choice(replicas), *(name for name in names if name not in replicas)]
    rnd.shuffle(victims)
    victims += rnd.choices(names, k=KILLS - len(victims))
    for victim in victims:
        await asyncio.sleep(rnd.random() * 2 * SECONDS / KILLS)
        if victim in replicas:
            await supervisor.ready(60)
        print(f"kill -9 {victim} {supervisor.kill(victim)}")


async def _settled(observer: Observer, lines: int) -> None:
    async with asyncio.timeout(SETTLE_S):
        while True:
            ledger = observer.ledger()
            if ledger["read"] == lines and not ledger["pending"] and await observer.idle():
                return
            await asyncio.sleep(0.1)
