"""Verify, recover, verify again: real processes, the real registry, an output file deleted by hand."""

from __future__ import annotations

import asyncio
import gzip
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from photon.cli.heads import Deployed
from photon.cli.spark.verify import _export
from photon.config.loader import load
from photon.fleet.access import output_here
from photon.fleet.ledger import read_ledger
from photon.library import Output
from photon.operations.spark_verify import Wish, nightly
from photon.spark import register
from photon.spark.classes import Class
from photon.spark.verify.run import VerifyOutcome
from photon.supervision.deployment import Deployment
from tests.integration.commands import photon, soon
from tests.integration.supervised import only_registry, supervised
from tests.integration.test_recover import JOINED, UNMATCHED, Site, write
from tests.integration.test_skip import T, joined

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR_NS = 3_600_000_000_000
BEGIN_NS = T * 10**9 // HOUR_NS * HOUR_NS
WISH = {"from_ns": BEGIN_NS, "to_ns": BEGIN_NS + 2 * HOUR_NS}


@pytest.mark.timeout(900)
async def test_what_a_deleted_file_held_is_joined_again_once(spark: SparkSession, tmp_path: Path) -> None:
    """Whole sets; ``test_planted_defects`` has events with one pair."""
    here = Site(tmp_path)
    here.file.write_text(here.file.read_text().replace("[join.clicks]\n", '[join.clicks]\nmatch = "all"\n'))
    here.settings = load(here.file, environment={})
    pairs = 2  # of each joined event: every query is there twice
    for _ in range(2):
        write(tmp_path, "queries/q.log", JOINED)
    write(tmp_path, "clicks/c.log", [*JOINED, *UNMATCHED])
    events = len(JOINED) + len(UNMATCHED)
    deployment = Deployment(here.file, here.settings, tmp_path / "run")
    async with supervised(deployment) as supervisor:
        await supervisor.start(deployment.services())
        await soon(lambda: here.all_done(events), 60, "all is read")
        whole = {"joined": pairs * len(JOINED), "unmatched": len(UNMATCHED)}
        await soon(lambda: held(here) == whole, 60, "all files are final")

        write(tmp_path, "queries/q.log", UNMATCHED)
        [*_, deleted] = here.finals("joined")
        assert deleted.is_relative_to(tmp_path / "west"), "the second datacentre, whose logs are the same"
        lost = gzip.decompress(deleted.read_bytes()).count(b"\n") // pairs
        deleted.unlink()
        outcome = await verified(here)
        found = outcome.verdict
        assert found.exit == 3
        assert {kind: count for kind, count in found.counts.items() if kind not in ("correct", "torn")} == {
            "lost-cleared": lost, "primary-exists": len(UNMATCHED),
        }  # fmt: skip
        assert found.counts["torn"] == 1
        of = {each.datacentre: each.count for each in outcome.figures.counts if each.kind is Class.LOST_CLEARED}
        assert of == {"west": lost}

        done = await here.recover("--yes", "--also-unmatched")
        counts: Any = done.json["classes"]
        assert (done.code, counts) == (0, {
            "lost-cleared": {"reopened": lost},
            "primary-exists": {"reopened": len(UNMATCHED)},
            "torn": {"marked": 1},
        }), done.err  # fmt: skip
        lines = pairs * len(JOINED) + len(UNMATCHED)
        await soon(lambda: len(joined(tmp_path)) >= lines, 60, "they are joined")
        assert Counter(joined(tmp_path)) == {f"c{n}": pairs for n in JOINED} | {f"c{n}": 1 for n in UNMATCHED}
        await soon(lambda: held(here)["joined"] == lines, 60, "all files are final again")
        again = lost + len(UNMATCHED)
        await soon(lambda: sum(read_ledger(state)["reread"] for state in here.states) >= again, 60, "all is counted")
        await only_registry(supervisor, deployment)
        clean = await verified(here)
        assert clean.verdict.counts == {"correct": events}, clean.figures.examples
        assert clean.figures.unexplained() == []
        assert clean.verdict.exit == 0
        every_reader_reads_on(spark, here, deleted, lines)


def every_reader_reads_on(spark: SparkSession, here: Site, deleted: Path, lines: int) -> None:
    """They skip the range of the deleted file, and doctor does not object to it."""
    found = 0
    for name in ("east", "west"):
        done = photon("read", "--config", str(here.file), "--datacentre", name)
        assert done.code == 0, done.err
        found += done.out.count("\n")
        skipped = done.err.count("a damaged range of the output is skipped")
        assert skipped == (1 if deleted.is_relative_to(here.directory / name) else 0), done.err
        place = output_here(here.settings, here.directory, name)
        found -= sum(batch.data.count(b"\n") for batch in Output(place).batches())
    assert found == 0
    register(spark)
    frame = spark.read.format("photon").option("path", str(here.file))
    assert frame.load().count() == lines
    assert frame.option("kind", "late").load().count() == 0, "nothing to read is no error"
    said = [each for each in photon("doctor", "--config", str(here.file), "-o", "json").json["findings"]
            if each["area"] == "output"]  # fmt: skip
    assert [each["level"] for each in said] == ["ok"]
    assert "readers skip 1 damaged range" in said[0]["what"]


def held(here: Site) -> Counter[str]:
    """Lines in final files."""
    found = Counter[str]()
    for kind in ("joined", "unmatched"):
        for file in here.finals(kind):
            found[kind] += gzip.decompress(file.read_bytes()).count(b"\n")
    return found


async def verified(here: Site) -> VerifyOutcome:
    wish = Wish(**WISH, report=here.directory / "report")
    export = partial(_export, Deployed(here.file, (), None, "table"))
    return await asyncio.to_thread(nightly, here.settings, here.directory, wish, export, print)
