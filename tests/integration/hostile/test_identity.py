"""One id comes with several event times: a phone resends with a new stamp, a shipper stamps on arrival, a
datacentre's clock is a day wrong. It stays one event, and is joined once."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from photon.idregistry.core.id_table import BUCKET_BITS
from photon.lab.demo.check import records
from tests.deployments import addresses, datacentre, join, replica, write
from tests.integration.commands import Detached, Result, photon, until
from tests.integration.join_logs import CONFIG

BUCKET_US = (1 << BUCKET_BITS) // 1000
BEGIN_US = 1_760_000_000_000_000 // BUCKET_US * BUCKET_US
HOUR_US = 3_600_000_000


class Site:
    """A query, clicks on it, and one ``photon join``."""

    def __init__(self, base: Path) -> None:
        self.base, self.out = base, base / "out"
        self.config = base / "join.toml"
        self.config.write_text(CONFIG)
        for name in ("queries", "clicks"):
            (base / name).mkdir()
        (base / "queries" / "q.jsonl").write_text(json.dumps({"query_id": "q1", "time_us": BEGIN_US}) + "\n")

    def clicks(self, log: str, *clicks: tuple[str, int]) -> None:
        """Appends (id, time in us)."""
        with (self.base / "clicks" / log).open("a") as file:
            for click_id, time_us in clicks:
                file.write(json.dumps({"click_id": click_id, "query_id": "q1", "time_us": time_us}) + "\n")

    def join(self) -> Result:
        sources = ("--primary", self.base / "queries", "--foreign", self.base / "clicks")
        return photon("join", *sources, "--output", self.out, "--config", self.config, "--once", "-o", "json")

    def joined(self) -> list[str]:
        return sorted(each["event_id"] for each in records(self.out / "joined"))

    def ledger(self) -> dict[str, int]:
        total: dict[str, int] = json.loads(photon("status", "ledger", self.out, "-o", "json").out)["total"]
        return total


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_an_id_that_comes_again_a_day_later_is_joined_once_and_told(site: Site) -> None:
    first, later = BEGIN_US + 1, BEGIN_US + 24 * HOUR_US
    site.clicks("a.jsonl", ("c1", first), ("c1", later), ("c2", first))
    result = site.join()
    assert result.code == 0, result.err
    assert site.joined() == ["c1", "c2"]
    site.clicks("b.jsonl", ("c2", later), ("c3", later))  # over a restart, in a batch of its own
    result = site.join()
    assert result.code == 0, result.err
    assert site.joined() == ["c1", "c2", "c3"]
    ledger = site.ledger()
    assert (ledger["joined"], ledger["duplicate"], ledger["retimed"]) == (3, 2, 2)
    (told,) = [line for line in result.err.splitlines() if "two event times" in line]
    for said in ("c2", "b.jsonl", "offset=0", "2025-10-", "registered_with"):
        assert said in told


def test_an_id_that_comes_again_from_the_future_is_known_and_no_event_waits_for_the_clock(site: Site) -> None:
    now = time.time_ns() // 1000
    site.clicks("a.jsonl", ("c1", now))
    assert site.join().code == 0
    site.clicks("b.jsonl", ("c1", now + 24 * HOUR_US), ("c2", now + 24 * HOUR_US))
    assert site.join().code == 0
    assert site.joined() == ["c1", "c2"]
    ledger = site.ledger()
    assert (ledger["joined"], ledger["duplicate"], ledger["pending"]) == (2, 1, 0)


def test_ids_on_both_sides_of_a_bucket_and_close_together_are_joined_once(site: Site) -> None:
    end = BEGIN_US + BUCKET_US
    pairs = [(f"c{n}", end - 1 - n, end + n) for n in range(20)]
    site.clicks("a.jsonl", *[(each, before) for each, before, _ in pairs])
    site.clicks("b.jsonl", *[(each, after) for each, _, after in pairs])
    assert site.join().code == 0
    assert site.joined() == sorted(each for each, _, _ in pairs)
    ledger = site.ledger()
    assert (ledger["joined"], ledger["duplicate"], ledger["retimed"]) == (20, 20, 0), "within clock.uncertainty"


DATACENTRES = ("east", "west")
WAIT_S = 120.0


class Deployment(Detached):
    """Two datacentres, each with its own log, over one registry."""

    def __init__(self, base: Path, config: str = CONFIG) -> None:
        super().__init__(base / "photon.toml")
        self.base = base
        free = addresses(1 + 4 * len(DATACENTRES))
        text = [config, "[registry]\nshards = 2\n", replica(next(free))]
        for name in DATACENTRES:
            services = ("eventstore", "dispatcher", "verifier", f"joiners.{name}-1")
            text.append(datacentre(free, *services, name=name, base=f"{name}/"))
            for logs in ("queries", "clicks"):
                (base / name / logs).mkdir(parents=True)
            query = json.dumps({"query_id": "q1", "time_us": BEGIN_US})
            (base / name / "queries" / "q.jsonl").write_text(query + "\n")
        write(base, *text)

    def clicks(self, datacentre: str, ids: range, time_us: int) -> None:
        with (self.base / datacentre / "clicks" / "a.jsonl").open("a") as file:
            for number in ids:
                event = {"click_id": f"c{number}", "query_id": "q1", "time_us": time_us + number}
                file.write(json.dumps(event) + "\n")

    def joined(self) -> list[str]:
        outputs = [self.base / name / "output" / "joined" for name in DATACENTRES]
        return sorted(each["event_id"] for output in outputs for each in records(output))

    def ledgers(self) -> list[dict[str, int]]:
        return [
            json.loads(photon("status", "ledger", "--config", self.file, "--datacentre", dc, "-o", "json").out)[
                "total"
            ]
            for dc in DATACENTRES
        ]

    def settled(self, read: int) -> bool:
        """Each datacentre has read ``read`` lines, and each line has a verdict."""
        return all(each["read"] == read and not each["pending"] for each in self.ledgers())


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    deployment = Deployment(tmp_path)
    try:
        deployment.up()
        yield deployment
    finally:
        deployment.down()


def test_over_two_datacentres_a_day_apart_and_across_a_change_of_the_shards(deployment: Deployment) -> None:
    day_us, number = 24 * HOUR_US, 100
    for at, name in enumerate(DATACENTRES):
        deployment.clicks(name, range(number), BEGIN_US + at * day_us)
    until(lambda: deployment.settled(number), WAIT_S, "all have a verdict")
    once = sorted(f"c{each}" for each in range(number))
    assert deployment.joined() == once
    arguments = ("--config", deployment.file, "--shards", "3", "--lead", "2s")
    changed = photon("registry", "reshard", *arguments, "-o", "json")
    assert changed.code == 0, changed.err
    for at, name in enumerate(DATACENTRES):
        deployment.clicks(name, range(number), BEGIN_US + (3 + at) * day_us)
    until(lambda: deployment.settled(2 * number), WAIT_S, "all have a verdict again")
    assert deployment.joined() == once
    assert sum(each["joined"] for each in deployment.ledgers()) == number
    assert sum(each["retimed"] for each in deployment.ledgers()) >= 2 * number


def test_over_two_datacentres_without_event_times_and_across_a_change_of_the_shards(tmp_path: Path) -> None:
    """Both datacentres use the same constant as time, now and later, so an id stays in one shard."""
    config = join(key="query_id", event_id="click_id", time="")
    deployment, number = Deployment(tmp_path, config), 100
    try:
        deployment.up()
        for name in DATACENTRES:
            deployment.clicks(name, range(number), BEGIN_US)
        until(lambda: deployment.settled(number), WAIT_S, "all have a verdict")
        once = sorted(f"c{each}" for each in range(number))
        assert deployment.joined() == once
        arguments = ("--config", deployment.file, "--shards", "3", "--lead", "2s")
        changed = photon("registry", "reshard", *arguments, "-o", "json")
        assert changed.code == 0, changed.err
        for name in DATACENTRES:
            deployment.clicks(name, range(number // 2, 2 * number), BEGIN_US + 24 * HOUR_US)
        until(lambda: deployment.settled(number + 3 * number // 2), WAIT_S, "all have a verdict again")
        assert deployment.joined() == sorted(f"c{each}" for each in range(2 * number))
        assert sum(each["retimed"] + each["late"] for each in deployment.ledgers()) == 0
        outputs = [tmp_path / name / "output" / "joined" for name in DATACENTRES]
        assert {each["event_time_ns"] for output in outputs for each in records(output)} == {0}
    finally:
        deployment.down()
