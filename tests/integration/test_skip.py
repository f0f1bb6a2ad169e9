"""photon dispatcher skip with real processes: one datacentre reads everything, the other continues in the middle."""

from __future__ import annotations

import asyncio
from pathlib import Path

from photon.config.loader import load
from photon.fleet.ledger import balances, read_ledger
from photon.lab.demo.check import records
from photon.supervision.deployment import Deployment
from tests.deployments import addresses, datacentre, replica
from tests.deployments import write as deployed
from tests.integration.commands import Result, photon, soon
from tests.integration.join_logs import CONFIG
from tests.integration.supervised import supervised

T = 1_760_000_000  # event time of the first click, seconds; one click a second
CLICKS, SKIPPED, MORE = 400, 250, 40
FAILED, USAGE = 1, 2


def configuration(directory: Path) -> Path:
    free = addresses(7)
    text = [CONFIG, replica(next(free))]
    for name in ("east", "west"):
        for made in ("queries", "clicks"):
            (directory / name / made).mkdir(parents=True)
        text.append(datacentre(free, "eventstore", "dispatcher", f"joiners.{name}-1", name=name, base=f"{name}/"))
    return deployed(directory, *text)


def write(directory: Path, first: int, count: int) -> None:
    for name in ("east", "west"):
        with (directory / name / "queries" / "q.log").open("a") as queries:
            queries.writelines(f'{{"query_id":"q{n}"}}\n' for n in range(first, first + count))
        with (directory / name / "clicks" / "c.log").open("a") as clicks:
            clicks.writelines(
                f'{{"click_id":"c{n}","query_id":"q{n}","time_us":{(T + n) * 10**6}}}\n'
                for n in range(first, first + count)
            )


def joined(directory: Path) -> list[str]:
    """Ids in all outputs."""
    outputs = [directory / name / "output" / "joined" for name in ("east", "west")]
    return [record["event_id"] for output in outputs for record in records(output)]


async def test_what_one_datacentre_skips_comes_from_the_other(tmp_path: Path) -> None:
    file = configuration(tmp_path)
    write(tmp_path, 0, CLICKS)
    deployment = Deployment(file, load(file, environment={}), tmp_path / "run")
    services = {each.name: each for each in deployment.services()}
    east, west = tmp_path / "east" / "state", tmp_path / "west" / "state"

    async def skip(datacentre: str, *more: str) -> Result:
        command = ("dispatcher", "skip", "--config", str(file), "--datacentre", datacentre, *more)
        return await asyncio.to_thread(photon, *command)

    def refused(result: Result, code: int, says: str) -> None:
        assert (result.code, result.out) == (code, "")
        assert says in result.err
        assert result.err.count("\n") == 1

    to = ("--to", str(T + SKIPPED))
    refused(await skip("east", *to, "--yes"), FAILED, "no dispatcher of another datacentre answers (west)")
    refused(await skip("east", *to, "--reader", "north", "--dry-run"), USAGE, "choose from: west")
    refused(await skip("east", "--to", "2025", "--dry-run"), USAGE, "--to 2025: a time is")
    refused(await skip("east", *to), USAGE, "cannot be undone: confirm with --yes, or preview it with --dry-run")
    shown = await skip("east", *to, "--dry-run")
    assert (shown.code, shown.err.count("\n")) == (FAILED, 1)
    assert "refused: no dispatcher of another datacentre answers (west)" in shown.err
    assert "no answer from west" in shown.out
    assert not any(each != each.rstrip() for each in shown.out.splitlines())
    assert not east.exists()
    async with supervised(deployment) as supervisor:
        late = services.pop("dispatcher east")
        await supervisor.start(list(services.values()))
        await soon(lambda: read_ledger(west)["joined"] == CLICKS, 60, "west joins all")
        busy = await skip("west", "--to", "now", "--reader", "east", "--dry-run")
        refused(busy, FAILED, "is in use by another dispatcher")
        shown = await skip("east", *to, "-o", "json", "--dry-run")
        assert (shown.code, shown.err, east.joinpath("dispatcher.db").exists()) == (0, "", False)
        done = await skip("east", *to, "-o", "json", "--yes")
        assert (done.code, done.err) == (0, "")
        assert shown.json | {"applied": True} == done.json
        [row] = done.json["logs"]
        size = (tmp_path / "east" / "clicks" / "c.log").read_bytes().index(b'{"click_id":"c%d"' % SKIPPED)
        assert row["bytes"] == row["to"] == size
        assert abs(row["records"] - SKIPPED) <= 10
        assert (row["oldest"], row["newest"]) == ("2025-10-09T08:53:20Z", "2025-10-09T08:57:29Z")
        assert done.json["readers"] == {"west": True}
        await supervisor.start([late])
        write(tmp_path, CLICKS, MORE)
        total = CLICKS + MORE
        await soon(lambda: read_ledger(west)["read"] == total and not read_ledger(west)["pending"], 60, "west reads")
        rest = total - SKIPPED
        await soon(lambda: read_ledger(east)["read"] >= rest and not read_ledger(east)["pending"], 60, "east reads")
        ledgers = [read_ledger(east), read_ledger(west)]
        assert all(map(balances, ledgers))
        assert [each["read"] for each in ledgers] == [rest, total]
        assert sum(each["joined"] for each in ledgers) == total
        assert ledgers[0]["elsewhere"] >= CLICKS - SKIPPED
        await soon(lambda: len(joined(tmp_path)) >= total, 60, "all is written")
        assert sorted(joined(tmp_path)) == sorted(f"c{n}" for n in range(total))
    again = await skip("east", "--to", "now", "--reader", "west", "--yes")
    assert (again.code, again.err) == (0, "")
    assert again.out.endswith("0 bytes of 0 logs were skipped by datacentre east\n")


async def test_a_datacentre_that_reads_alone_does_not_skip(tmp_path: Path) -> None:
    file = configuration(tmp_path)
    text = file.read_text()
    file.write_text(text[: text.index("[datacentre.west]")])
    done = await asyncio.to_thread(
        photon, "dispatcher", "skip", "--config", file, "--datacentre", "east", "--to", "now", "--yes"
    )
    assert (done.code, done.out) == (USAGE, "")
    assert "alone reads join clicks" in done.err
