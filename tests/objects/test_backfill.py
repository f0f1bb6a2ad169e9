"""photon spark backfill into a real store: killed, next to another one, and read there as other outputs are."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import orjson
import pytest

from photon.library import Output
from tests.integration.commands import photon, running, until
from tests.objects.server import Site
from tests.spark.backfill_site import HOURS, T, check_pairs, in_thread, make_site
from tests.spark.conftest import require_spark

SPARK = ("--master", "local[2]", "--spark", "spark.ui.enabled=false", "--spark", "spark.sql.shuffle.partitions=2")

run = partial(photon, timeout=900.0)


@pytest.mark.timeout(900)
async def test_a_backfill_below_a_url(site: Site, tmp_path: Path) -> None:
    """Killed while batches are staged, run again through faults: each event once, nothing owned, nothing left."""
    require_spark()
    made = make_site(tmp_path / "site", 1500)
    url = f"{site.url}/november"
    command = (*made.arguments(Path("x"), "--part", "40000", *SPARK, "-o", "json"),)
    command = tuple(url if each == "x" else each for each in command)

    def staged() -> bool:
        return any(key.endswith(".staged") for key in site.keys("november/.photon/slots/"))

    site.faults.unwritable = "/manifest.jsonl"  # it is killed before it ends, however fast it is
    async with made.running():
        with running(*command, log=tmp_path / "killed.log") as process:
            await in_thread(until, lambda: staged() or process.poll() is not None, 400.0, "a batch is staged")
            process.kill()
        assert "november/manifest.jsonl" not in site.keys("november/")
        site.faults.unwritable = ""
        site.faults.refused = site.faults.cut = 0.03
        done = await in_thread(run, *command)
        site.faults.refused = site.faults.cut = 0.0
        assert done.code == 0, done.err
        assert await made.owned(done.json["slot"]) == 0
        lines = photon("read", url)
        assert lines.code == 0, lines.err
        check_pairs(made, [orjson.loads(line) for line in lines.out.splitlines()])
        batches = list(Output.of_join(url).batches())
        assert sorted(line for batch in batches for line in batch.lines()) == sorted(lines.out.encode().splitlines())
        again = await in_thread(run, *command)
        assert (again.code, again.json["earlier_run"]) == (0, True), again.err
        whole = ("--from", str(T), "--to", str(T + HOURS * 3600))
        site.put("reports/one/problems/day=none/old.parquet", b"of a report that was cut short")
        site.faults.refused = site.faults.cut = 0.03
        report = ("--config", made.file, "--report", f"{site.url}/reports/one")
        verdict = await in_thread(run, "spark", "verify", *report, *whole, *SPARK, "-o", "json")
        assert verdict.json["counts"]["correct"] == len(made.pairs), (verdict.err, verdict.out)
        assert orjson.loads(site.get("reports/one/verdict.json")) == verdict.json
        assert {"report.html", "inputs.jsonl", "summary.json"} <= {
            key.removeprefix("reports/one/") for key in site.keys("reports/")
        }
        assert "reports/one/problems/day=none/old.parquet" not in site.keys("reports/")
        assert not [each for each in made.file.parent.iterdir() if ".work-" in each.name]
        assert (made.file.parent / ".verified").is_dir()
        applied = await in_thread(run, "spark", "recover", *report, "--yes", "-o", "json")
        assert (applied.json["report"], applied.json["applied"]) == (f"{site.url}/reports/one", True), applied.err
        site.faults.refused = site.faults.cut = 0.0
        assert any(key.startswith("reports/one/recover-") for key in site.keys("reports/"))
    named = {orjson.loads(line)["file"] for line in site.get("november/manifest.jsonl").splitlines()}
    assert {f"november/{each}" for each in named} == set(site.keys("november/joined/"))
    assert not [key for key in site.keys("november/.photon/") if "/parts/" in key or "/found/" in key]


def test_what_is_not_to_be_had_there(tmp_path: Path) -> None:
    made = make_site(tmp_path / "site", 3)
    more = ("--below-boundary", "compare")
    command = tuple("s3://bucket/x" if each == "x" else each for each in made.arguments(Path("x"), *more))
    refused = photon(*command)
    assert refused.code == 2
    assert "below a URL" in refused.err
