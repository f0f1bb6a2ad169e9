"""Joins upon joins: the nightly verification of each stage, whose primary or foreign events another join wrote."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING

from click.testing import CliRunner, Result

from photon.cli.main import main
from tests.integration.chain_site import READY_S, SETTLE_S, ChainSite
from tests.integration.commands import drawn_seed, soon
from tests.integration.supervised import only_registry, supervised

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_S = 86_400.0


async def test_the_nightly_verification_finds_each_stage_right(tmp_path: Path, spark: SparkSession) -> None:
    site = ChainSite(tmp_path, together=True, purchases='unmatched_after = "15s"')
    async with supervised(site.deployment) as supervisor:
        await supervisor.start(site.deployment.services())
        await supervisor.ready(READY_S)
        await site.feed(random.Random(drawn_seed()), 100, 1.0, ago_s=2 * DAY_S)
        await site.settled(supervisor)
        hopeless = len(site.bought) - len(site.expected()["purchases"])
        await soon(
            lambda: len(site.ids("purchases", "unmatched")) == hopeless,
            SETTLE_S,
            "all have verdicts",
        )
        await soon(
            lambda: not any(map(_growing, tmp_path.rglob("durable.json"))), SETTLE_S, "all is cleared and final"
        )
        await only_registry(supervisor, site.deployment)
        for stage in ("purchases", "receipts"):
            done = await asyncio.to_thread(verified, site.file, stage, tmp_path / stage)
            assert done.exit_code == 0, done.output
            said = json.loads((tmp_path / stage / "verdict.json").read_text())
            why = f"{said['counts']}, {said['ledger_unexplained']}, {said['notes']}, {said['reused']}"
            assert said["verdict"] == "right", why


def verified(file: Path, stage: str, report: Path) -> Result:
    words = ["spark", "verify", "--config", file, "--from", "50h", "--to", "46h", "--join", stage, "--report", report]
    return CliRunner().invoke(main, list(map(str, words)))


def _growing(durable: Path) -> bool:
    """True if this is the file of a slot, and names files that are not final."""
    return durable.parent.parent.name == "slots" and bool(json.loads(durable.read_bytes())["files"])
