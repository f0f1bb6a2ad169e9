"""Bad state and a full disk, met by the command over a real registry and event stores: one line, and nothing lost."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from photon.config.file_lock import alone
from photon.joiner.slot.lock import LOCK_NAME
from tests.integration.hostile.small_disk import mounted
from tests.spark.conftest import require_spark
from tests.spark.join_site import JoinSite, make_site
from tests.spark.test_backfill import until
from tests.spark.test_join import START, _settle, application, once

Undo = Callable[[], object]


def slot_of(site: JoinSite) -> Path:
    return site.state("east") / "slots" / "east-spark"


def other_key(site: JoinSite) -> Undo:
    key = site.directory / "key"
    before = key.read_bytes()
    key.write_bytes(b"z" * 32)
    return lambda: key.write_bytes(before)


def joiner_s(site: JoinSite) -> Undo:
    (slot_of(site) / "redo").mkdir()
    return (slot_of(site) / "redo").rmdir


def held(site: JoinSite) -> Undo:
    lock = alone(slot_of(site) / LOCK_NAME, "held")
    lock.__enter__()
    return lambda: lock.__exit__(None, None, None)


def without(name: str) -> Callable[[JoinSite], Undo]:
    """The state without a file or directory."""

    def remove(site: JoinSite) -> Undo:
        there, away = slot_of(site) / name, site.directory / "away"
        there.rename(away)

        def put_back() -> None:
            shutil.rmtree(there, ignore_errors=True)
            os.replace(away, there)

        return put_back

    return remove


def begun_again(site: JoinSite) -> Undo:
    """An output whose state is lost, in a deployment that has not joined there."""
    file = site.directory / "west/output/joined/west-spark-000001.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("{}\n")
    return file.unlink


REFUSED: tuple[tuple[Callable[[JoinSite], Undo], str, int, str], ...] = (
    (other_key, "east", 2, "the adapter of join clicks differs from the one that the registry was filled with"),
    (joiner_s, "east", 2, "east-spark: is the state of a joiner; give that joiner another name"),
    (held, "east", 2, "east-spark: another process works on this slot; wait until it ends"),
    (without("spark"), "east", 1, "spark: is missing, but its slot was opened before; restore it"),
    (without("spark/commits"), "east", 1, "commits: ends with batch -1, but a later one is planned or published"),
    (without("durable.json"), "east", 3, "east-spark has nothing (durable.json) here, but"),
    (without("slot.json"), "east", 2, "slot east-spark was refused: "),
    (begun_again, "west", 3, "spark has written nothing yet: restore the state that this output belongs to"),
)


async def test_each_is_one_line_and_loses_nothing(tmp_path: Path) -> None:
    """Small batches, which need no Java."""
    require_spark()
    site = make_site(tmp_path, seed=7)
    site.grow(300)
    async with site.running("registry", "eventstore"):
        await asyncio.to_thread(refuse, site)
        await asyncio.to_thread(fill, site)
        site.check()
        log = site.directory / "east.log"
        with application(site, "east") as process:
            await until(lambda: log.exists() and "incarnation" in log.read_text(), "it joins", 60)
            process.terminate()
            assert await asyncio.to_thread(process.wait, 60) == 0, log.read_text()


def refuse(site: JoinSite) -> None:
    assert once(site, "east").code == 0
    for spoil, datacentre, code, said in REFUSED:
        undo = spoil(site)
        done = once(site, datacentre)
        undo()
        last = done.err.splitlines()[-1]
        assert (done.code, done.out, said in last) == (code, "", True), (said, done)
        assert last.startswith("photon: ")


def fill(site: JoinSite) -> None:
    """The output's disk is full when a committed batch is shown."""
    output = site.directory / "west" / "output"
    site.grow(300)
    shutil.rmtree(output, ignore_errors=True)
    with mounted(output, "8k") as disk:
        done = once(site, "west")
        assert (done.code, done.out) == (1, "")
        assert done.err.splitlines()[-1].startswith(f"photon: {disk}/")
        assert done.err.splitlines()[-1].endswith(": No space left on device")
    _settle(site, ["west", "east"])


@pytest.mark.full
async def test_an_executor_that_does_not_reach_the_registry_is_named(tmp_path: Path) -> None:
    """Minutes, as each attempt asks that long. A proxy that does not exist is on its way, but not on the driver's."""
    require_spark()
    site = make_site(tmp_path, seed=8)
    own = "apart.eventstore = '"
    site.file.write_text(site.file.read_text().replace(f"{own}127.0.0.1", f"{own}localhost"))
    site.grow(START)
    cut = ("grpc_proxy=http://127.0.0.1:1", "no_grpc_proxy=localhost")
    async with site.running("registry", "eventstore"):
        done = await asyncio.to_thread(
            once, site, "east", *(word for each in cut for word in ("--spark", f"spark.executorEnv.{each}"))
        )
        last = done.err.splitlines()[-1]
        assert (done.code, done.out) == (1, ""), done
        assert re.fullmatch(r"photon: on \S+: the registry has not answered about \d+ ids; executors .* 127.*", last)
        assert once(site, "east").code == 0
    site.check(rejected_again=-site.rejected)  # west has read nothing
